package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pi-worker/pi-worker/internal/natsd"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/loop/openai"
	"github.com/pi-worker/pi-worker/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what tests wait for; nothing waits for it to pass.
const patience = 120 * time.Second

// bench is a broker, a scripted model and any number of workers.
type bench struct {
	*testing.T
	env     *natstest.Env
	store   *session.Store
	script  *looptest.Script
	ackWait time.Duration
	workers sync.WaitGroup
}

type benchOptions struct {
	ackWait time.Duration
	answers []looptest.Answer
	memory  bool // in a bubble
	env     *natstest.Env
}

func newBench(t *testing.T, o benchOptions) *bench {
	t.Helper()
	b := &bench{T: t, env: o.env, ackWait: o.ackWait}
	if b.ackWait == 0 {
		b.ackWait = 5 * time.Second
	}
	if b.env == nil {
		b.env = natstest.Start(t, &natsd.Config{})
	}
	if err := subjects.Ensure(t.Context(), b.env.JS, subjects.Names{}, &subjects.EnsureOptions{AckWait: b.ackWait}); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.store, err = session.Open(t.Context(), b.env.NC, subjects.Names{}, nil); err != nil {
		t.Fatal(err)
	}
	if o.memory {
		b.script = looptest.NewMemoryScript(o.answers...)
	} else {
		b.script = looptest.NewScript(o.answers...)
	}
	t.Cleanup(func() {
		b.workers.Wait()
		if err := b.script.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) model() loop.Model {
	b.Helper()
	m, err := openai.New(openai.Config{
		BaseURL: b.script.BaseURL(), APIKey: "test", HTTPClient: b.script.Client(),
		Info: loop.ModelInfo{ID: "scripted"}, Limiter: new(openai.Limiter),
	})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// live is a worker that runs.
type live struct {
	*Worker
	stop func() // asks it to end, as SIGTERM does
	done chan struct{}
}

// start runs a worker until the test ends or it is stopped.
func (b *bench) start(id string, change func(*Config)) *live {
	b.Helper()
	model := b.model()
	cfg := Config{
		NATS: b.env.Connect(), ID: id, AckWait: b.ackWait, Grace: time.Second, Logger: testLogger(),
		Agent: func(context.Context, AgentRequest) (*Agent, error) { return &Agent{Model: model}, nil },
	}
	if change != nil {
		change(&cfg)
	}
	w, err := New(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &live{Worker: w, stop: cancel, done: make(chan struct{})}
	b.workers.Go(func() {
		defer close(l.done)
		if err := w.Run(ctx); err != nil {
			b.Errorf("worker %s: %v", id, err)
		}
	})
	b.Cleanup(func() { cancel(); <-l.done })
	return l
}

// die ends a worker as SIGKILL does: nothing is flushed or released.
func (l *live) die() {
	l.kill(errKilled)
	l.stop()
	<-l.done
}

func testLogger() *slog.Logger {
	if os.Getenv("PI_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// agent replaces what prompts run with.
func withAgent(a Agent) func(*Config) {
	return func(c *Config) {
		base := c.Agent
		c.Agent = func(ctx context.Context, req AgentRequest) (*Agent, error) {
			agent, err := base(ctx, req)
			if err != nil {
				return nil, err
			}
			out := a
			if out.Model == nil {
				out.Model = agent.Model
			}
			return &out, nil
		}
	}
}

func (b *bench) publish(id string, kind subjects.Kind, in *session.Input) uint64 {
	b.Helper()
	r, err := b.store.Publish(b.Context(), id, kind, in)
	if err != nil {
		b.Fatalf("publishing %s: %v", kind, err)
	}
	return r.Seq
}

func (b *bench) say(id string, kind subjects.Kind, text string) uint64 {
	b.Helper()
	return b.publish(id, kind, &session.Input{Message: loop.NewUserText(text)})
}

func (b *bench) abort(id, queue string) uint64 {
	b.Helper()
	return b.publish(id, subjects.KindAbort, &session.Input{Abort: session.AbortOptions{Queue: queue}})
}

// watch reads the log of a session until stop is satisfied with an event.
func (b *bench) watch(id string, stop func(loop.Event) bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	for rec, err := range b.store.Tail(ctx, id, session.From{Start: true, Wait: true}) {
		if err != nil {
			b.Fatalf("tailing %s: %v", id, err)
		}
		for _, ev := range rec.Events {
			if stop(ev) {
				return
			}
		}
	}
	b.Fatalf("%s: the log never had what was waited for:\n%s", id, b.dump(id))
}

// settle waits for that many agent_settled and gives them.
func (b *bench) settle(id string, n int) []*loop.AgentSettled {
	b.Helper()
	var got []*loop.AgentSettled
	b.watch(id, func(ev loop.Event) bool {
		if s, ok := ev.(*loop.AgentSettled); ok {
			got = append(got, s)
		}
		return len(got) == n
	})
	return got
}

func (b *bench) await(id, eventType string) {
	b.Helper()
	b.watch(id, func(ev loop.Event) bool { return ev.EventType() == eventType })
}

// records are all records of a session so far.
func (b *bench) records(id string) []*session.Record {
	b.Helper()
	var out []*session.Record
	for rec, err := range b.store.Read(b.Context(), id, session.From{Start: true}) {
		if err != nil {
			b.Fatalf("reading %s: %v", id, err)
		}
		out = append(out, rec)
	}
	return out
}

func (b *bench) events(id string) []loop.Event {
	var out []loop.Event
	for _, rec := range b.records(id) {
		out = append(out, rec.Events...)
	}
	return out
}

func (b *bench) dump(id string) string {
	out := ""
	for rec, err := range b.store.Read(context.Background(), id, session.From{Start: true}) {
		if err != nil {
			return out + err.Error()
		}
		for i, line := range rec.Lines {
			out += fmt.Sprintf("%d/%d %s %v %.200s\n", rec.Seq, i, rec.Epoch, rec.Inputs, line)
		}
	}
	return out
}

// wantOutcomes compares the outcomes in order.
func (b *bench) wantOutcomes(got []*loop.AgentSettled, want ...loop.Outcome) {
	b.Helper()
	var outcomes []loop.Outcome
	for _, s := range got {
		outcomes = append(outcomes, s.Outcome)
	}
	if !slices.Equal(outcomes, want) {
		b.Fatalf("outcomes %v, want %v", outcomes, want)
	}
}

// wantUsers compares the texts of all user messages of the transcript.
func (b *bench) wantUsers(id string, want ...string) {
	b.Helper()
	if got := b.users(id); !slices.Equal(got, want) {
		b.Fatalf("user messages %q, want %q\n%s", got, want, b.dump(id))
	}
}

func (b *bench) users(id string) []string {
	b.Helper()
	var got []string
	for _, ev := range b.events(id) {
		if end, ok := ev.(*loop.MessageEnd); ok {
			if u, ok := end.Message.(*loop.UserMessage); ok {
				got = append(got, text(u.Content))
			}
		}
	}
	return got
}

func text(blocks []loop.Block) string {
	out := ""
	for _, b := range blocks {
		if t, ok := b.(*loop.Text); ok {
			out += t.Text
		}
	}
	return out
}

// check holds the log of a session against what is promised for every log.
func (b *bench) check(id string) {
	b.Helper()
	var seq, lastPrompt uint64
	var epoch uint64
	running := false
	consumed := map[string]bool{}
	settled := map[uint64]bool{}
	for _, rec := range b.records(id) {
		if rec.Sub == 0 {
			if rec.Seq != seq+1 {
				b.Errorf("%s: record %d follows %d", id, rec.Seq, seq)
			}
			seq = rec.Seq
		}
		if rec.Epoch.N < epoch {
			b.Errorf("%s: record %d of epoch %d after epoch %d", id, rec.Seq, rec.Epoch.N, epoch)
		}
		epoch = rec.Epoch.N
		for _, ref := range rec.Inputs {
			key := string(ref.Kind) + ":" + strconv.FormatUint(ref.Seq, 10)
			if consumed[key] {
				b.Errorf("%s: input %s consumed twice", id, key)
			}
			consumed[key] = true
			if ref.Kind == subjects.KindPrompt && !ref.Early {
				if ref.Seq < lastPrompt {
					b.Errorf("%s: prompt %d after prompt %d", id, ref.Seq, lastPrompt)
				}
				lastPrompt = ref.Seq
			}
		}
		for _, ev := range rec.Events {
			switch ev := ev.(type) {
			case *loop.InputReturned:
				if !slices.ContainsFunc(rec.Inputs, func(ref session.InputRef) bool { return ref.Seq == ev.Seq }) {
					b.Errorf("%s: record %d returns input %d and does not consume it", id, rec.Seq, ev.Seq)
				}
			case *loop.AgentStart:
				if running {
					b.Errorf("%s: two runs at once", id)
				}
				running = true
			case *loop.AgentEnd:
				running = false
			case *loop.AgentSettled:
				if settled[ev.PromptSeq] {
					b.Errorf("%s: prompt %d settled twice", id, ev.PromptSeq)
				}
				settled[ev.PromptSeq] = true
				if running {
					b.Errorf("%s: prompt %d settled while a run is open", id, ev.PromptSeq)
				}
			}
		}
	}
	if b.Failed() {
		b.Log(b.dump(id))
	}
}

// inboxEmpty waits until the session's inbox has been tidied.
func (b *bench) inboxEmpty(id string) {
	b.Helper()
	deadline := time.Now().Add(patience)
	for {
		_, err := b.store.NextInput(b.Context(), id, "", 0)
		if err != nil {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%s: inbox is not empty", id)
		}
		sleep(b.Context(), 5*time.Millisecond)
	}
}

// tool is a tool made of a function.
type tool struct {
	spec loop.ToolSpec
	run  func(ctx context.Context, call loop.Call) (loop.ToolResult, error)
}

func (t *tool) Spec() loop.ToolSpec {
	s := t.spec
	if s.Parameters == nil {
		s.Parameters = json.RawMessage(`{"type":"object"}`)
	}
	return s
}

func (t *tool) Execute(ctx context.Context, call loop.Call, _ func(loop.ToolResult)) (loop.ToolResult, error) {
	return t.run(ctx, call)
}
