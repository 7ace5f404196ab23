package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/loop/openai"
	"github.com/pi-worker/pi-worker/subjects"
	"github.com/pi-worker/pi-worker/worker"
)

// asCLI makes the test binary behave as pi-cli: tests that need a process of
// their own, to be interrupted or to start further processes, run themselves.
const asCLI = "RUN_AS_PI_CLI"

func TestMain(m *testing.M) {
	if os.Getenv(asCLI) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// fleet is a broker and, with startWorker, a real worker with a scripted model.
type fleet struct {
	*natstest.Env
	script *looptest.Script
	late   atomic.Bool    // the worker knows the agent "late"
	names  subjects.Names // of the worker; the zero value is the default prefix
}

func newFleet(t *testing.T, answers ...looptest.Answer) *fleet {
	t.Helper()
	f := &fleet{Env: natstest.Start(t, nil), script: looptest.NewScript(answers...)}
	t.Cleanup(func() { f.script.Close() })
	err := subjects.Ensure(t.Context(), f.JS, subjects.Names{}, &subjects.EnsureOptions{AckWait: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// startWorker runs a worker until the test ends. Its agents: the default one,
// and "limited" to one turn; everything else is unknown.
func (f *fleet) startWorker(t *testing.T) *fleet {
	t.Helper()
	model, err := openai.New(openai.Config{BaseURL: f.script.BaseURL(), APIKey: "test", Info: loop.ModelInfo{ID: "scripted"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w, err := worker.New(ctx, worker.Config{
		NATS: f.NC, Names: f.names, ID: "w1", AckWait: 2 * time.Second,
		Agent: func(_ context.Context, req worker.AgentRequest) (*worker.Agent, error) {
			agent := &worker.Agent{
				Model: model, Tools: []loop.Tool{echoTool{}},
				Retry: loop.RetryPolicy{MaxRetries: 1, BaseDelay: time.Millisecond, MidStream: true},
			}
			switch {
			case req.Name == "", req.Name == "late" && f.late.Load():
			case req.Name == "limited":
				agent.Limits = worker.Limits{Turns: 1}
			default:
				return nil, fmt.Errorf("%w: %s", worker.ErrUnknownAgent, req.Name)
			}
			return agent, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	serve(ctx, t, w, stop, model.Close)
	return f
}

// serve runs a worker until the test ends, and then closes what it used.
func serve(ctx context.Context, t *testing.T, w *worker.Worker, stop func(), closeAll func() error) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		wg.Wait()
		if err := closeAll(); err != nil {
			t.Error(err)
		}
	})
}

// echoTool answers with its arguments.
type echoTool struct{}

func (echoTool) Spec() loop.ToolSpec {
	return loop.ToolSpec{Name: "echo", Description: "Echo.", Parameters: []byte(`{"type":"object"}`)}
}

func (echoTool) Execute(_ context.Context, call loop.Call, _ func(loop.ToolResult)) (loop.ToolResult, error) {
	return loop.TextResult(string(call.Args)), nil
}

// invocation is one command line of a test.
type invocation struct {
	stdin      string
	env        map[string]string
	interrupts chan os.Signal
	args       []string
}

// result is how it ended.
type result struct {
	code     int
	out, err string
}

// cli runs a command line against the fleet's broker.
func (f *fleet) cli(t *testing.T, args ...string) result {
	t.Helper()
	return f.invoke(t, invocation{args: args})
}

func (f *fleet) invoke(t *testing.T, in invocation) result {
	t.Helper()
	in.args = append([]string{"--server", f.Server.ClientURL()}, in.args...)
	return invoke(t, in)
}

func invoke(t *testing.T, in invocation) result {
	t.Helper()
	// Only a test that fails gets this far in time.
	ctx, cancel := context.WithTimeoutCause(context.Background(), 30*time.Second, fmt.Errorf("the test's patience is over"))
	defer cancel()
	var out, errOut lockedBuffer
	for name, value := range in.env { // the configuration reads the real ones
		t.Setenv(name, value)
	}
	code := run(ctx, in.args, streams{
		in: strings.NewReader(in.stdin), out: &out, err: &errOut, interrupts: in.interrupts,
		env: func(name string) string { return in.env[name] },
	})
	return result{code, out.String(), errOut.String()}
}

// lockedBuffer is written to by the connection's callbacks as well.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// client is a client of the fleet's broker.
func (f *fleet) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(t.Context(), f.NC, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// prompt publishes a prompt without the command.
func (f *fleet) prompt(t *testing.T, session, text string) *client.Receipt {
	t.Helper()
	r, err := f.client(t).Prompt(t.Context(), session, loop.NewUserText(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// until waits for an event of the session that is as wanted.
func (f *fleet) until(t *testing.T, session string, wanted func(*client.Event) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for ev, err := range f.client(t).Tail(ctx, session, &client.TailOptions{Wait: true}) {
		if err != nil {
			t.Fatalf("waiting for an event: %v", err)
		}
		if wanted(ev) {
			return
		}
	}
}

func isTextDelta(ev *client.Event) bool {
	e, ok := ev.Event.(*loop.MessageUpdate)
	return ok && e.Update.Type == loop.UpdateTextDelta
}

func (r result) want(t *testing.T, code int, out, errOut string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code is %d, want %d", r.code, code)
	}
	if !strings.Contains(r.out, out) {
		t.Errorf("stdout is %q, want %q in it", r.out, out)
	}
	if !strings.Contains(r.err, errOut) {
		t.Errorf("stderr is %q, want %q in it", r.err, errOut)
	}
	if t.Failed() {
		t.Logf("code %d\nstdout:\n%s\nstderr:\n%s", r.code, r.out, r.err)
	}
}
