// Package nats_test tries the broker's configurations of this folder on a
// real server.
package nats_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
	"github.com/pi-worker/pi-worker/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// roles of authorization.conf.
var roles = []string{"publisher", "viewer", "driver", "worker", "tools"}

// start runs a server with one of this folder's files.
func start(t *testing.T, file string) string {
	t.Helper()
	for _, name := range append([]string{"TENANT_A", "TENANT_B"}, roles...) {
		t.Setenv("PI_"+strings.ToUpper(name)+"_PASSWORD", "secret-of-"+strings.ToLower(name))
	}
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	opts.Host, opts.Port, opts.HTTPPort = "127.0.0.1", server.RANDOM_PORT, 0
	opts.JetStream, opts.StoreDir, opts.NoSigs, opts.NoLog = true, t.TempDir(), true, true
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return srv.ClientURL()
}

// who is one user's connection, and what the broker refused it.
type who struct {
	name string
	nc   *nats.Conn
	js   jetstream.JetStream

	refused chan string
}

func connect(t *testing.T, url, name string) *who {
	t.Helper()
	w := &who{name: name, refused: make(chan string, 1000)}
	opts := []nats.Option{
		nats.UserInfo(name, "secret-of-"+strings.ReplaceAll(name, "-", "_")),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			w.refused <- err.Error()
		}),
	}
	if name != "worker" && !strings.HasPrefix(name, "tenant") {
		opts = append(opts, nats.CustomInboxPrefix("_INBOX_"+name))
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatalf("connecting as %s: %v", name, err)
	}
	t.Cleanup(nc.Close)
	w.nc = nc
	if w.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return w
}

// take lists the refusals so far, after the broker has seen all that was sent.
func (w *who) take(t *testing.T) (out []string) {
	t.Helper()
	if err := w.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for len(w.refused) > 0 {
		out = append(out, <-w.refused)
	}
	return out
}

// next waits for a refusal.
func (w *who) next() string {
	select {
	case text := <-w.refused:
		return text
	case <-time.After(5 * time.Second):
		return ""
	}
}

// startWorker runs a real worker as the user, with a scripted model.
func startWorker(t *testing.T, w *who, id string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	if err := subjects.Ensure(ctx, w.js, subjects.Names{}, nil); err != nil {
		t.Fatalf("creating the streams as %s: %v", w.name, err)
	}
	model := looptest.NewModelFunc(func(r *loop.Request) looptest.Reply { return looptest.Text("done by " + id) })
	run, err := worker.New(ctx, worker.Config{
		NATS: w.nc, ID: id,
		Agent: func(context.Context, worker.AgentRequest) (*worker.Agent, error) {
			return &worker.Agent{Model: model}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := run.Run(ctx); err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
}

func newClient(t *testing.T, w *who) *client.Client {
	t.Helper()
	c, err := client.New(t.Context(), w.nc, nil)
	if err != nil {
		t.Fatalf("a client as %s: %v", w.name, err)
	}
	return c
}

// ask prompts and waits for the outcome.
func ask(t *testing.T, c *client.Client, session, text, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := c.Prompt(ctx, session, loop.NewUserText(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Wait(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	if res.Outcome != loop.OutcomeCompleted || res.Text != want {
		t.Errorf("%s %q (%s), want completed %q", res.Outcome, res.Text, res.ErrorMessage, want)
	}
}
