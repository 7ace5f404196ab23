package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// bench are the processes of one figure.
type bench struct {
	*options
	dir     string
	broker  *child
	model   *child
	workers []*child
	nc      *nats.Conn
	js      jetstream.JetStream
	client  *client.Client
	names   subjects.Names
	serial  int // of sessions
}

func start(o *options) (b *bench, err error) {
	b = &bench{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.dir, err = os.MkdirTemp("", "pi-bench-"); err != nil {
		return nil, err
	}
	if b.broker, err = spawn("broker", childConfig{Dir: filepath.Join(b.dir, "nats"), Profiles: o.profiles}); err != nil {
		return b, err
	}
	if b.model, err = spawn("model", childConfig{}); err != nil {
		return b, err
	}
	if b.nc, err = nats.Connect(b.broker.hello); err != nil {
		return b, err
	}
	if b.js, err = jetstream.New(b.nc); err != nil {
		return b, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	if err = subjects.Ensure(ctx, b.js, b.names, nil); err != nil {
		return b, err
	}
	b.client, err = client.New(ctx, b.nc, nil)
	return b, err
}

func (b *bench) close() error {
	errs := []error{b.stopWorkers()}
	if b.nc != nil {
		b.nc.Close()
	}
	errs = append(errs, b.model.close(), b.broker.close())
	if b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

// work starts one more worker on a broker ("" is the run's own) with so many
// slots, and waits until it claims.
func (b *bench) work(broker string, slots int) (*child, error) {
	if broker == "" {
		broker = b.broker.hello
	}
	id := "w" + strconv.Itoa(len(b.workers)+1)
	w, err := spawn("worker", childConfig{ID: id, Profiles: b.profiles}, b.workerEnv(broker, id, slots)...)
	if err != nil {
		return nil, err
	}
	b.workers = append(b.workers, w)
	return w, nil
}

// workerEnv configures a worker, and nothing of this machine does.
func (b *bench) workerEnv(broker, id string, slots int) []string {
	return []string{
		"PI_CONFIG=", "NATS_URL=", "PI_RETENTION_MAX_AGE=0s", "XDG_CONFIG_HOME=" + b.dir, "OPENAI_API_KEY=bench",
		"PI_NATS_URL=" + broker, "PI_WORKER_ID=" + id, "PI_WORKER_SESSIONS=" + strconv.Itoa(slots),
		"PI_DEFAULTS_BASE_URL=" + b.model.hello, "PI_DEFAULTS_LIMITS_TURNS=0", "PI_DEFAULTS_COMPACTION=false",
		"PI_DEFAULTS_LIMITS_TOOL_CALLS=0", "PI_DEFAULTS_LIMITS_IDENTICAL_CALLS=0",
	}
}

func (b *bench) stopWorkers() error {
	var errs []error
	for _, w := range b.workers {
		errs = append(errs, w.close())
	}
	b.workers = nil
	return errors.Join(errs...)
}

// ask adds up what the workers say.
func (b *bench) ask(command string) (sum stats, err error) {
	for _, w := range b.workers {
		st, err := w.ask(command)
		if err != nil {
			return stats{}, err
		}
		sum.CPU += st.CPU
		sum.RSS += st.RSS
		sum.Heap += st.Heap
		sum.Out += st.Out
		sum.OutMsgs += st.OutMsgs
	}
	return sum, nil
}

// sessions makes up names that were not used before.
func (b *bench) sessions(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		b.serial++
		ids[i] = "s" + strconv.Itoa(b.serial)
	}
	return ids
}

// publish prompts each session once, some of them at a time.
func (b *bench) publish(ctx context.Context, ids []string, text string) error {
	var wg sync.WaitGroup
	next := make(chan string)
	errs := make([]error, 16)
	for i := range errs {
		wg.Go(func() {
			for id := range next {
				if _, err := b.client.Prompt(ctx, id, loop.NewUserText(text), nil); err != nil && errs[i] == nil {
					errs[i] = err
				}
			}
		})
	}
	for _, id := range ids {
		next <- id
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// watch counts what is settled, without a consumer: a subscription that sees
// the appends as they go by.
type watch struct {
	sub     *nats.Subscription
	mu      sync.Mutex // guards what is below
	left    int
	bad     string
	first   time.Time // session_claimed
	last    time.Time // agent_settled
	bytes   int       // payload of the records
	records int
	done    chan struct{}
}

// settledMark begins an agent_settled in a record.
var settledMark = []byte(`{"type":"agent_settled"`)

// watch waits for n prompts to settle.
func (b *bench) watch(n int) (*watch, error) {
	w := &watch{left: n, done: make(chan struct{})}
	var err error
	w.sub, err = b.nc.Subscribe(b.names.Events("*"), func(m *nats.Msg) {
		w.mu.Lock()
		defer w.mu.Unlock()
		now := time.Now()
		if w.first.IsZero() {
			w.first = now
		}
		w.bytes += len(m.Data)
		w.records++
		for rest := m.Data; ; {
			i := bytes.Index(rest, settledMark)
			if i < 0 {
				return
			}
			rest = rest[i+len(settledMark):]
			if !bytes.Contains(rest, []byte(`"outcome":"completed"`)) && w.bad == "" {
				w.bad = string(rest)
			}
			w.last = now
			if w.left--; w.left == 0 {
				close(w.done)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	// Nothing is missed: the server knows of the subscription before the next
	// publish.
	return w, errors.Join(w.sub.SetPendingLimits(-1, -1), b.nc.Flush())
}

// wait ends the watch when all is settled, and says how long it took from the
// first record to the last.
func (w *watch) wait(ctx context.Context) (time.Duration, error) {
	defer func() { _ = w.sub.Unsubscribe() }()
	select {
	case <-w.done:
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		return 0, fmt.Errorf("%d prompts are not settled: %w", w.left, ctx.Err())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bad != "" {
		return 0, fmt.Errorf("a prompt did not complete: agent_settled%.500s", w.bad)
	}
	return w.last.Sub(w.first), nil
}

// stored is how many bytes a stream holds, headers and framing included.
func (b *bench) stored(ctx context.Context, stream string) (int64, error) {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	return int64(s.CachedInfo().State.Bytes), nil
}

// bareRun runs the bare program once.
func (b *bench) bareRun(w *child, sessions int, a answer) (stats, error) {
	return w.ask(strings.Join([]string{
		"run", strconv.Itoa(sessions), strconv.Itoa(a.tokens), strconv.Itoa(a.turns),
		strconv.FormatInt(a.pace.Microseconds(), 10), strconv.FormatBool(a.stamp),
	}, " "))
}

// startBare starts the bare program.
func (b *bench) startBare() (*child, error) {
	return spawn("bare", childConfig{NATS: b.broker.hello, Model: b.model.hello, Profiles: b.profiles})
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
