package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/internal/chaos/check"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/openai"
	"github.com/pi-worker/pi-worker/subjects"
)

// result is what a run has shown.
type result struct {
	o        *options
	report   *check.Report
	broken   []string
	faults   string
	inputs   int
	workers  int
	requests int
	took     time.Duration
	silence  time.Duration
}

// bench is everything that a run needs, started.
type bench struct {
	o          *options
	dir        string
	brokers    *brokers
	world      *world
	model      *model
	fleet      *fleet
	nc         *nats.Conn
	store      *session.Store
	publishers *publishers
	tailers    []*tailer
}

func run(ctx context.Context, o *options, errOut io.Writer) (*result, error) {
	b, err := newBench(ctx, o)
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	defer func() { _ = b.close() }()
	began := time.Now()
	res := &result{o: o}

	tailing, endTails := context.WithCancel(ctx)
	defer endTails()
	var tails sync.WaitGroup
	defer tails.Wait()
	defer endTails()
	if err := b.tail(tailing, &tails); err != nil {
		return nil, err
	}

	f := &faults{
		o: o, fleet: b.fleet, brokers: b.brokers, publishers: b.publishers, nc: b.nc, js: b.store.JetStream(),
		counts: map[string]int{},
	}
	if o.verbose {
		f.out = errOut
	}
	b.load(ctx, f)
	res.broken = append(res.broken, b.settle(ctx)...)
	b.fleet.stop()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	res.took = time.Since(began)
	if err := b.check(ctx, res); err != nil {
		return nil, err
	}
	res.faults = f.summary()
	return res, nil
}

func newBench(ctx context.Context, o *options) (b *bench, err error) {
	b = &bench{o: o, dir: o.dir}
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "pi-worker-chaos-"); err != nil {
			return b, err
		}
	} else if err := os.MkdirAll(b.dir, 0o750); err != nil {
		return b, err
	}
	if b.brokers, err = startBrokers(filepath.Join(b.dir, "nats"), o.nodes); err != nil {
		return b, err
	}
	if err := b.connect(ctx); err != nil {
		return b, err
	}
	if b.world, err = startWorld(); err != nil {
		return b, err
	}
	b.model = startModel(o.pace, len(o.faults) > 0, b.publishers.ending)
	starting, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	b.fleet, err = startFleet(starting, o, b.dir, b.brokers, b.world, b.model)
	return b, err
}

// connect waits until JetStream answers, and creates the streams.
func (b *bench) connect(ctx context.Context) (err error) {
	for end := time.Now().Add(60 * time.Second); ; pause(ctx, 100*time.Millisecond) {
		if err = b.tryConnect(ctx); err == nil {
			return nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("the broker is not ready: %w", err)
		}
	}
}

func (b *bench) tryConnect(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if b.nc == nil {
		b.nc, err = nats.Connect(b.brokers.url(), nats.Name("chaos"), nats.MaxReconnects(-1),
			nats.ReconnectWait(100*time.Millisecond), nats.ReconnectBufSize(-1),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // what matters is told by each call
		if err != nil {
			return err
		}
	}
	if b.store, err = session.Open(ctx, b.nc, subjects.Names{}, nil); err != nil {
		return err
	}
	c, err := client.New(ctx, b.nc, nil)
	if err != nil {
		return err
	}
	b.publishers = newPublishers(b.o, c, b.store)
	return subjects.Ensure(ctx, b.store.JetStream(), subjects.Names{}, &subjects.EnsureOptions{
		Replicas: b.o.nodes, AckWait: b.o.ackWait,
	})
}

// tail lets clients follow some of the sessions.
func (b *bench) tail(ctx context.Context, wg *sync.WaitGroup) error {
	c, err := client.New(ctx, b.nc, nil)
	if err != nil {
		return err
	}
	for n := range min(8, b.o.sessions) {
		t := &tailer{session: sessionName(n)}
		b.tailers = append(b.tailers, t)
		wg.Go(func() { t.follow(ctx, c) })
	}
	return nil
}

// load publishes and breaks, until the time is over or all is sent.
func (b *bench) load(ctx context.Context, f *faults) {
	until, cancel := ctx, context.CancelFunc(func() {})
	if b.o.seconds > 0 {
		until, cancel = context.WithTimeout(ctx, time.Duration(b.o.seconds)*time.Second)
	}
	defer cancel()
	// What is begun when the time is over has this long to be done.
	drain, cancelDrain := context.WithCancel(ctx)
	defer cancelDrain()
	stop := context.AfterFunc(until, func() {
		t := time.AfterFunc(b.o.patience, cancelDrain)
		context.AfterFunc(drain, func() { t.Stop() })
	})
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { b.publishers.run(drain, until) })
	wg.Go(func() { f.run(until, drain) })
	wg.Wait()
}

// settle waits until nothing is left to do. That nothing happens any more
// while something is left is what it reports.
func (b *bench) settle(ctx context.Context) (broken []string) {
	fewest, idle, quiet := uint64(1<<62), time.Duration(0), 0
	for ctx.Err() == nil {
		began := time.Now()
		left, detail, err := b.left(ctx)
		switch {
		case err != nil:
		case left == 0:
			// A bell may hang a moment longer than its last input.
			if quiet++; quiet >= 3 {
				return nil
			}
		case left < fewest:
			fewest, idle = left, 0
		}
		if left > 0 {
			quiet = 0
		}
		if idle > b.o.patience {
			return []string{fmt.Sprintf("hangs: nothing has settled for %v, and there are left: %s (%v)", b.o.patience, detail, err)}
		}
		pause(ctx, 100*time.Millisecond)
		// A computer that was asleep meanwhile has not waited.
		idle += min(time.Since(began), 4*time.Second)
	}
	return nil
}

// left counts inputs and bells.
func (b *bench) left(ctx context.Context) (n uint64, detail string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for _, name := range []string{b.store.Names().InboxStream(), b.store.Names().BellStream()} {
		s, err := b.store.JetStream().Stream(ctx, name)
		if err != nil {
			return n, detail, err
		}
		info, err := s.Info(ctx)
		if err != nil {
			return n, detail, err
		}
		n += info.State.Msgs
		detail += fmt.Sprintf(" %s %d", name, info.State.Msgs)
	}
	return n, strings.TrimSpace(detail), nil
}

// check reads everything and holds it against the promises.
func (b *bench) check(ctx context.Context, res *result) error {
	records, err := b.records(ctx)
	if err != nil {
		return err
	}
	c := &check.Case{Records: records, Inputs: b.publishers.all(), Effects: b.world.all(), Kills: b.fleet.kills}
	for d, err := range b.store.DeadLetters(ctx, "") {
		if err != nil {
			return err
		}
		c.Dead = append(c.Dead, d.InputSeq)
	}
	res.report = check.Run(c)
	res.inputs, res.workers = len(c.Inputs), b.fleet.made
	res.broken = append(res.broken, b.fleet.broken...)
	res.broken = append(res.broken, res.report.Violations...)
	requests, invalid := b.model.report()
	res.requests = requests
	for _, text := range invalid {
		res.broken = append(res.broken, "a strict server refuses a worker's request: "+text)
	}
	res.broken = append(res.broken, b.checkTails(ctx, records)...)
	for _, t := range b.tailers {
		res.silence = max(res.silence, t.silence)
	}
	if m := b.o.maxSilence; m > 0 && res.silence > m {
		res.broken = append(res.broken, fmt.Sprintf("a tailing client saw a silence of %v, at most %v are allowed", res.silence, m))
	}
	return b.checkTranscripts(ctx, res)
}

// records reads the whole events stream, past all the code that is under test.
func (b *bench) records(ctx context.Context) ([]check.Record, error) {
	s, err := b.store.JetStream().Stream(ctx, b.store.Names().EventsStream())
	if err != nil {
		return nil, err
	}
	last := s.CachedInfo().State.LastSeq
	sub, err := b.nc.SubscribeSync(nats.NewInbox())
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	old, err := b.nc.JetStream()
	if err != nil {
		return nil, err
	}
	ordered, err := old.SubscribeSync(b.store.Names().AllEvents(), nats.OrderedConsumer(), nats.BindStream(b.store.Names().EventsStream()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = ordered.Unsubscribe() }()
	blobs, err := b.store.JetStream().ObjectStore(ctx, b.store.Names().BlobBucket())
	if err != nil {
		return nil, err
	}
	var out []check.Record
	for seq := uint64(0); seq < last; {
		m, err := ordered.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		id, err := b.store.Names().ParseEvents(m.Subject)
		if err != nil {
			return nil, err
		}
		seq = meta.Sequence.Stream
		data, err := resolve(ctx, blobs, m.Data)
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", seq, err)
		}
		out = append(out, check.Record{Session: id, StreamSeq: seq, Time: meta.Timestamp, Header: m.Header, Data: data})
	}
	return out, nil
}

// resolve puts what a record's lines refer to in their place. A payload that is
// not there, or not what the reference says, is an error.
func resolve(ctx context.Context, blobs jetstream.ObjectStore, data []byte) ([]byte, error) {
	start := []byte(`{"blob":`)
	if !bytes.Contains(data, start) {
		return data, nil
	}
	lines := bytes.Split(data, []byte("\n"))
	for i, line := range lines {
		var ref struct {
			Blob   string
			Size   int
			Digest string
		}
		if !bytes.HasPrefix(line, start) || json.Unmarshal(line, &ref) != nil || ref.Digest == "" {
			continue
		}
		payload, err := blobs.GetBytes(ctx, ref.Blob) // checks the bucket's own digest
		if err != nil {
			return nil, fmt.Errorf("payload %s: %w", ref.Blob, err)
		}
		if len(payload) != ref.Size {
			return nil, fmt.Errorf("payload %s has %d bytes, its reference says %d", ref.Blob, len(payload), ref.Size)
		}
		lines[i] = payload
	}
	return bytes.Join(lines, []byte("\n")), nil
}

// checkTails gives the tailing clients a moment to come to the end.
func (b *bench) checkTails(ctx context.Context, records []check.Record) (broken []string) {
	last := map[string]uint64{}
	for _, r := range records {
		if len(r.Header["Pi-Epoch"]) > 0 {
			last[r.Session] = r.StreamSeq
		}
	}
	for _, t := range b.tailers {
		for end := time.Now().Add(20 * time.Second); last[t.session] > 0 && !t.reached(last[t.session]) && time.Now().Before(end); {
			pause(ctx, 20*time.Millisecond)
		}
		broken = append(broken, t.check(records)...)
	}
	return broken
}

// checkTranscripts asks both APIs to go on with what each session has become.
func (b *bench) checkTranscripts(ctx context.Context, res *result) error {
	before := len(res.broken)
	for _, api := range []string{openai.ChatCompletions, openai.Responses} {
		m, err := openai.New(openai.Config{
			API: api, BaseURL: b.model.script.BaseURL(), APIKey: "k", HTTPClient: b.model.script.Client(),
			Info: loop.ModelInfo{ID: "scripted", Provider: "openai"},
		})
		if err != nil {
			return err
		}
		for id, t := range res.report.Transcripts {
			req := &loop.Request{Messages: append(t.Context(), loop.NewUserText("go on"))}
			for range m.Stream(ctx, req) {
				break // asking was all
			}
			if _, invalid := b.model.report(); len(invalid) > 0 && len(res.broken) == before {
				res.broken = append(res.broken, fmt.Sprintf("session %s cannot go on by %s: %s", id, api, invalid[0]))
			}
		}
		if err := m.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) close() error {
	var errs []error
	if b.fleet != nil {
		errs = append(errs, b.fleet.close())
	}
	if b.nc != nil {
		b.nc.Close()
	}
	if b.brokers != nil {
		errs = append(errs, b.brokers.close())
	}
	if b.model != nil {
		errs = append(errs, b.model.script.Close())
	}
	if b.world != nil {
		b.world.close()
	}
	if b.o.dir == "" && b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

// print tells what is broken, and then all in one line.
func (r *result) print(out, errOut io.Writer) {
	for i, text := range r.broken {
		if i == 20 {
			fmt.Fprintf(errOut, "… and %d more\n", len(r.broken)-i)
			break
		}
		fmt.Fprintln(errOut, "broken:", text)
	}
	verdict := "ok"
	if len(r.broken) > 0 {
		verdict = fmt.Sprintf("BROKEN (%d)", len(r.broken)+r.report.Dropped)
	}
	c := r.report
	var outcomes []string
	for _, o := range []loop.Outcome{loop.OutcomeCompleted, loop.OutcomeFailed, loop.OutcomeAborted, loop.OutcomeLimit, loop.OutcomeDeadLetter} {
		if n := c.Outcomes[o]; n > 0 {
			outcomes = append(outcomes, fmt.Sprintf("%s:%d", o, n))
		}
	}
	fault := r.faults
	if fault == "" {
		fault = "none"
	}
	if r.o.control {
		fault += " without-fence"
	}
	ms := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	fmt.Fprintf(out, "chaos: %s seed=%d nodes=%d faults=%s took=%v sessions=%d workers=%d inputs=%d delivered=%d returned=%d dead=%d duplicates=%d "+
		"runs=%d settled=%s claims=%d lost=%d resumed=%d discarded=%d tools=%d unknown=%d requests=%d records=%d events=%d "+
		"takeovers=%d p50=%v p90=%v max=%v silence=%v\n",
		verdict, r.o.seed, r.o.nodes, fault, r.took.Round(100*time.Millisecond), c.Sessions, r.workers, r.inputs,
		c.Delivered, c.Returned, c.DeadLetters, c.Duplicates, c.Runs, strings.Join(outcomes, ","), c.Claims, c.Lost, c.Resumed,
		c.Discarded, c.Tools, c.Unknown, r.requests, c.Records, c.Events,
		len(c.Takeovers), ms(c.Quantile(0.5)), ms(c.Quantile(0.9)), ms(c.Quantile(1)), ms(r.silence))
}
