package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/chaos/check"
	"github.com/pi-worker/pi-worker/internal/chaos/proxy"
	"github.com/pi-worker/pi-worker/subjects"
)

// faults break things, each kind by itself, by the seed.
type faults struct {
	o          *options
	fleet      *fleet
	brokers    *brokers
	publishers *publishers
	nc         *nats.Conn
	js         jetstream.JetStream
	names      subjects.Names
	out        io.Writer // nil: silent

	mu     sync.Mutex // guards counts
	counts map[string]int
}

// run breaks things until ctx ends, and mends what it can. drain bounds what
// must still be done then.
func (f *faults) run(ctx, drain context.Context) {
	kinds := map[string]func(context.Context, *rand.Rand) string{
		"kill": f.kill, "stop": f.stop, "term": f.term, "broker": f.broker, "cluster": f.cluster,
		"proxy": f.proxy, "full": f.full, "strangers": f.strangers,
	}
	var wg sync.WaitGroup
	for i, name := range faultNames {
		if !f.o.has(name) {
			continue
		}
		rng := rand.New(rand.NewPCG(f.o.seed, uint64(1000+i)))
		wg.Go(func() {
			for {
				pause(ctx, time.Duration((0.5+rng.Float64())*float64(f.o.every)))
				if ctx.Err() != nil {
					return
				}
				if what := kinds[name](drain, rng); what != "" {
					f.note(name, what)
				}
			}
		})
	}
	wg.Wait()
}

func (f *faults) note(kind, what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[kind]++
	if f.out != nil {
		fmt.Fprintf(f.out, "%s %s: %s\n", time.Now().Format("15:04:05.000"), kind, what)
	}
}

func (f *faults) summary() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(f.counts)) {
		parts = append(parts, fmt.Sprintf("%s:%d", k, f.counts[k]))
	}
	return strings.Join(parts, ",")
}

func (f *faults) kill(ctx context.Context, rng *rand.Rand) string {
	s := f.fleet.take(rng)
	if s == nil {
		return ""
	}
	defer s.mu.Unlock()
	name := s.worker.name
	if err := f.fleet.kill(ctx, s); err != nil {
		f.fleet.fault("%v", err)
	}
	return name + ", now " + s.worker.name
}

// stop freezes a worker beyond its lease and lets it go on.
func (f *faults) stop(ctx context.Context, rng *rand.Rand) string {
	s := f.fleet.take(rng)
	if s == nil {
		return ""
	}
	defer s.mu.Unlock()
	d := time.Duration((1.1 + rng.Float64()) * float64(f.o.ackWait))
	s.worker.signal(syscall.SIGSTOP)
	pause(ctx, d)
	s.worker.signal(syscall.SIGCONT)
	return fmt.Sprintf("%s for %v", s.worker.name, d.Round(time.Millisecond))
}

func (f *faults) term(ctx context.Context, rng *rand.Rand) string {
	s := f.fleet.take(rng)
	if s == nil {
		return ""
	}
	defer s.mu.Unlock()
	name := s.worker.name
	if err := f.fleet.roll(ctx, s); err != nil {
		f.fleet.fault("%v", err)
	}
	return name + ", now " + s.worker.name
}

// broker restarts a server on its store, after a crash or in order.
func (f *faults) broker(ctx context.Context, rng *rand.Rand) string {
	how := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[rng.IntN(2)]
	i, down := rng.IntN(len(f.brokers.nodes)), time.Duration(rng.IntN(2000))*time.Millisecond
	if err := f.brokers.restart(ctx, i, how, down, func() bool { return f.replicated(ctx) }); err != nil {
		f.fleet.fault("%v", err)
	}
	return fmt.Sprintf("node %d, %v, down for %v", i+1, how, down)
}

// replicated says that every replica of the logs and inputs is up to date. Two
// of three are promised to be enough; one of three is not.
func (f *faults) replicated(ctx context.Context) bool {
	if f.o.nodes == 1 {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, name := range []string{f.names.EventsStream(), f.names.InboxStream(), f.names.BellStream()} {
		s, err := f.js.Stream(ctx, name)
		if err != nil {
			return false
		}
		c := s.CachedInfo().Cluster
		if c == nil || c.Leader == "" || slices.ContainsFunc(c.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline }) {
			return false
		}
	}
	return true
}

// cluster lets leaders step down, or kills a node for a while.
func (f *faults) cluster(ctx context.Context, rng *rand.Rand) string {
	if rng.IntN(4) == 0 {
		return f.broker(ctx, rng)
	}
	n := f.names
	subject := []string{
		"STREAM.LEADER.STEPDOWN." + n.EventsStream(),
		"STREAM.LEADER.STEPDOWN." + n.InboxStream(),
		"STREAM.LEADER.STEPDOWN." + n.BellStream(),
		"CONSUMER.LEADER.STEPDOWN." + n.BellStream() + "." + subjects.ConsumerWorkers,
		"CONSUMER.LEADER.STEPDOWN." + n.InboxStream() + "." + subjects.ConsumerRinger,
	}[rng.IntN(5)]
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := f.nc.RequestWithContext(ctx, "$JS.API."+subject, nil); err != nil {
		return subject + " (no answer)"
	}
	return subject
}

// proxy cuts a worker's connection, or stalls or delays one direction or both.
func (f *faults) proxy(ctx context.Context, rng *rand.Rand) string {
	s := f.fleet.slots[rng.IntN(len(f.fleet.slots))]
	d := time.Duration((0.2 + 1.4*rng.Float64()) * float64(f.o.ackWait))
	cut := rng.IntN(2) == 0
	what := "cut"
	switch rng.IntN(5) {
	case 0:
		cut = true
	case 1:
		what = "stalled up"
		s.proxy.Stall(proxy.Up, d)
		pause(ctx, d)
	case 2:
		what = "stalled down"
		s.proxy.Stall(proxy.Down, d)
		pause(ctx, d)
	case 3:
		what = "stalled"
		s.proxy.Stall(proxy.Up, d)
		s.proxy.Stall(proxy.Down, d)
		pause(ctx, d)
	case 4:
		what = "acks delayed"
		s.proxy.Delay(proxy.Down, time.Duration(50+rng.IntN(400))*time.Millisecond)
		pause(ctx, d)
		s.proxy.Delay(proxy.Down, 0)
	}
	if cut {
		s.proxy.Cut()
		what += ", cut"
	}
	return fmt.Sprintf("slot %d: %s, %v", s.n, what, d.Round(time.Millisecond))
}

// full lets a stream refuse what comes, for a while.
func (f *faults) full(ctx context.Context, rng *rand.Rand) string {
	names := []string{f.names.EventsStream(), f.names.InboxStream(), f.names.BellStream()}
	name, byBytes := names[rng.IntN(len(names))], rng.IntN(2) == 0
	d := time.Duration(500+rng.IntN(3000)) * time.Millisecond
	var before jetstream.StreamConfig
	err := f.change(ctx, name, func(info *jetstream.StreamInfo) jetstream.StreamConfig {
		before = info.Config
		cfg := info.Config
		cfg.Discard = jetstream.DiscardNew
		if byBytes {
			cfg.MaxBytes = int64(max(info.State.Bytes, 1))
		} else {
			cfg.MaxMsgs = int64(max(info.State.Msgs, 1))
		}
		return cfg
	})
	if err != nil {
		return ""
	}
	pause(ctx, d)
	for ctx.Err() == nil {
		if err := f.change(ctx, name, func(*jetstream.StreamInfo) jetstream.StreamConfig { return before }); err == nil {
			break
		}
		pause(ctx, 200*time.Millisecond)
	}
	return fmt.Sprintf("%s (bytes: %t) for %v", name, byBytes, d)
}

func (f *faults) change(ctx context.Context, name string, to func(*jetstream.StreamInfo) jetstream.StreamConfig) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	s, err := f.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	_, err = f.js.UpdateStream(ctx, to(s.CachedInfo()))
	return err
}

// malformed is what strangers say to a session.
var malformed = map[string][]string{
	"prompt":   {`{"message":`, "\xff\xfe", " ", `{"id":7}`, `{"message":{"role":"assistant","content":[]}}`, `[]`},
	"steer":    {`{"message":[]}`, `{}`},
	"followup": {`{"options":{"agent":3},"message":"x"}`},
	"abort":    {`{"queue":"burn"}`, `{`},
	"queue":    {`{"op":"burn","target":"x"}`, "cancel"},
}

// strangers delete what is not theirs and talk nonsense.
func (f *faults) strangers(ctx context.Context, rng *rand.Rand) string {
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	id := sessionName(rng.IntN(f.o.sessions))
	switch rng.IntN(9) {
	case 0:
		return f.did("consumer workers deleted", f.js.DeleteConsumer(short, f.names.BellStream(), subjects.ConsumerWorkers))
	case 1:
		return f.did("consumer ringer deleted", f.js.DeleteConsumer(short, f.names.InboxStream(), subjects.ConsumerRinger))
	case 2:
		return f.did("bells deleted", f.js.DeleteStream(short, f.names.BellStream()))
	case 3:
		s, err := f.js.Stream(short, f.names.BellStream())
		if err == nil {
			err = s.Purge(short)
		}
		return f.did("bells purged", err)
	case 4:
		return f.did("summaries deleted", f.js.DeleteKeyValue(short, f.names.SessionsBucket()))
	case 5:
		_, err := f.js.Publish(short, f.names.Events(id), []byte("hello, world"))
		return f.did("nonsense in the log of "+id, err)
	case 6:
		return f.did("bells of nobody", errors.Join(f.nc.Publish(f.names.Bell("nobody"), []byte("x")), f.nc.Publish(f.names.Bell(id), []byte("x"))))
	}
	kinds := slices.Sorted(maps.Keys(malformed))
	kind := kinds[rng.IntN(len(kinds))]
	body := malformed[kind][rng.IntN(len(malformed[kind]))]
	f.publishers.stranger(ctx, &check.Input{
		Session: id, Kind: kind, Malformed: true, ID: fmt.Sprintf("stranger-%d", rng.Uint64()),
	}, []byte(body))
	return fmt.Sprintf("%s %q to %s", kind, body, id)
}

func (f *faults) did(what string, err error) string {
	if err != nil {
		return ""
	}
	return what
}
