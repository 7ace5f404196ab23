package subjects_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ensure(t *testing.T, e *natstest.Env, opts *subjects.EnsureOptions) error {
	t.Helper()
	return subjects.Ensure(t.Context(), e.JS, subjects.Names{}, opts)
}

func config(t *testing.T, e *natstest.Env, stream string) jetstream.StreamConfig {
	t.Helper()
	s, err := e.JS.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config
}

func TestEnsureIsIdempotent(t *testing.T) {
	e := natstest.Start(t, nil)
	opts := &subjects.EnsureOptions{AckWait: 2 * time.Second, Duplicates: time.Hour, InboxPerSubject: 3, EventsMaxAge: time.Hour, EventsMaxBytes: 1 << 30, DLQMaxAge: time.Hour, Replicas: 1}
	for range 2 {
		if err := ensure(t, e, opts); err != nil {
			t.Fatal(err)
		}
	}
	if err := ensure(t, e, nil); err != nil {
		t.Errorf("no opinion against what exists: %v", err)
	}
	if c := config(t, e, "AGENT_INBOX"); c.MaxMsgsPerSubject != 3 || c.Duplicates != time.Hour || !c.DiscardNewPerSubject || !c.AllowDirect {
		t.Errorf("inbox %+v", c)
	}
	if c := config(t, e, "AGENT_EVENTS"); !c.AllowMsgTTL || !c.AllowDirect || c.MaxAge != time.Hour || c.MaxBytes != 1<<30 {
		t.Errorf("events %+v", c)
	}
	if c := config(t, e, "AGENT_BELL"); c.Retention != jetstream.WorkQueuePolicy || c.MaxMsgsPerSubject != 1 {
		t.Errorf("bell %+v", c)
	}
}

func TestEnsureByManyWorkersAtOnce(t *testing.T) {
	e := natstest.Start(t, nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := ensure(t, e, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestEnsureNamesField(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(context.Context, *natstest.Env) error
		opts   *subjects.EnsureOptions
		says   []string
	}{{
		"limit", func(ctx context.Context, e *natstest.Env) error {
			s, err := e.JS.Stream(ctx, "AGENT_BELL")
			if err != nil {
				return err
			}
			cfg := s.CachedInfo().Config
			cfg.MaxMsgsPerSubject = 7
			_, err = e.JS.UpdateStream(ctx, cfg)
			return err
		}, nil, []string{"AGENT_BELL", "max_msgs_per_subject", "7", "1"},
	}, {
		"ack wait", func(ctx context.Context, e *natstest.Env) error {
			c, err := e.JS.Consumer(ctx, "AGENT_BELL", subjects.ConsumerWorkers)
			if err != nil {
				return err
			}
			cfg := c.CachedInfo().Config
			cfg.AckWait = time.Minute
			_, err = e.JS.UpdateConsumer(ctx, "AGENT_BELL", cfg)
			return err
		}, &subjects.EnsureOptions{AckWait: 5 * time.Second}, []string{"AGENT_BELL/workers", "ack_wait", "1m0s", "5s"},
	}, {
		"option", func(ctx context.Context, e *natstest.Env) error { return nil },
		&subjects.EnsureOptions{EventsMaxAge: time.Hour}, []string{"AGENT_EVENTS", "max_age", "0s", "1h0m0s"},
	}} {
		t.Run(c.name, func(t *testing.T) {
			e := natstest.Start(t, nil)
			if err := ensure(t, e, nil); err != nil {
				t.Fatal(err)
			}
			if err := c.change(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			before := config(t, e, "AGENT_BELL")
			err := ensure(t, e, c.opts)
			if !errors.Is(err, subjects.ErrConfig) {
				t.Fatalf("error %v, want ErrConfig", err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not name %q", err, s)
				}
			}
			if after := config(t, e, "AGENT_BELL"); after.MaxMsgsPerSubject != before.MaxMsgsPerSubject {
				t.Error("it was changed without force")
			}
			opts := subjects.EnsureOptions{}
			if c.opts != nil {
				opts = *c.opts
			}
			opts.Force = true
			if err := ensure(t, e, &opts); err != nil {
				t.Fatalf("with force: %v", err)
			}
			if err := ensure(t, e, c.opts); err != nil {
				t.Errorf("after force: %v", err)
			}
		})
	}
}

// The server's default of consumers, 1,000 a stream, would let readers keep
// workers from the logs.
func TestEnsureAllowsThousandsOfReaders(t *testing.T) {
	e := natstest.Start(t, nil)
	if err := ensure(t, e, nil); err != nil {
		t.Fatal(err)
	}
	setLimit := func(n int) {
		t.Helper()
		cfg := config(t, e, "AGENT_EVENTS")
		cfg.MaxConsumers = n
		if _, err := e.JS.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	want := func(n int, why string) {
		t.Helper()
		if got := config(t, e, "AGENT_EVENTS").MaxConsumers; got != n {
			t.Errorf("%s: max_consumers %d, want %d", why, got, n)
		}
	}
	want(10_000, "a new stream")
	setLimit(-1) // as earlier versions made it
	if err := ensure(t, e, nil); err != nil {
		t.Errorf("an earlier version's stream is refused: %v", err)
	}
	want(-1, "without force")
	if err := ensure(t, e, &subjects.EnsureOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	want(10_000, "with force")
	setLimit(50)
	if err := ensure(t, e, &subjects.EnsureOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	want(50, "what somebody set")
}

// The stream's own limit counts, also where it is above the server's default.
func TestOwnLimitOfReadersBeatsTheServersDefault(t *testing.T) {
	_, js := bare(t, server.Options{
		JetStream: true, StoreDir: t.TempDir(), JetStreamLimits: server.JSLimitOpts{DefaultMaxConsumers: 1},
	})
	if err := subjects.Ensure(t.Context(), js, subjects.Names{}, nil); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := js.OrderedConsumer(t.Context(), "AGENT_EVENTS", jetstream.OrderedConsumerConfig{}); err != nil {
			t.Fatal(err)
		}
	}
}

// An account that allows fewer consumers does not keep a worker from starting:
// its limit counts then.
func TestEnsureWithinAnAccountsLimit(t *testing.T) {
	srv, js := bare(t, server.Options{JetStream: true, StoreDir: t.TempDir()})
	limits := map[string]server.JetStreamAccountLimits{"": {MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: 100}}
	if err := srv.GlobalAccount().UpdateJetStreamLimits(limits); err != nil {
		t.Fatal(err)
	}
	for _, opts := range []*subjects.EnsureOptions{nil, {Force: true}} {
		if err := subjects.Ensure(t.Context(), js, subjects.Names{}, opts); err != nil {
			t.Fatal(err)
		}
		s, err := js.Stream(t.Context(), "AGENT_EVENTS")
		if err != nil {
			t.Fatal(err)
		}
		if n := s.CachedInfo().Config.MaxConsumers; n != -1 {
			t.Errorf("max_consumers %d, want it left to the account", n)
		}
	}
}

func TestEnsureChangesNothingWhenItRefuses(t *testing.T) {
	e := natstest.Start(t, nil)
	_, err := e.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "AGENT_DLQ", Subjects: []string{"something.else"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ensure(t, e, nil); !errors.Is(err, subjects.ErrConfig) || !strings.Contains(err.Error(), "subjects") {
		t.Fatalf("error %v, want ErrConfig about subjects", err)
	}
	for name := range e.JS.StreamNames(t.Context()).Name() {
		if name != "AGENT_DLQ" {
			t.Errorf("stream %s was created by a refusal", name)
		}
	}
}

// bare is a server with options that natstest has not, and a client of it.
func bare(t *testing.T, opts server.Options) (*server.Server, jetstream.JetStream) {
	t.Helper()
	opts.DontListen, opts.NoSigs, opts.NoLog = true, true, true
	srv, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(srv.WaitForShutdown)
	t.Cleanup(srv.Shutdown)
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return srv, js
}

func TestEnsureWithoutJetStream(t *testing.T) {
	_, js := bare(t, server.Options{})
	if err := subjects.Ensure(t.Context(), js, subjects.Names{}, nil); !errors.Is(err, subjects.ErrNoJetStream) {
		t.Errorf("error %v, want ErrNoJetStream", err)
	}
}

func TestEnsureUnreachable(t *testing.T) {
	e := natstest.Start(t, nil)
	if err := e.Server.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := subjects.Ensure(ctx, e.JS, subjects.Names{}, nil); !errors.Is(err, subjects.ErrUnreachable) {
		t.Errorf("error %v, want ErrUnreachable", err)
	}
}

func TestEnsureRefusesAPrefix(t *testing.T) {
	e := natstest.Start(t, nil)
	if err := subjects.Ensure(t.Context(), e.JS, subjects.Names{Prefix: "a.*"}, nil); !errors.Is(err, subjects.ErrPrefix) {
		t.Errorf("error %v, want ErrPrefix", err)
	}
}

// forgetful fails to answer for a stream once it has.
type forgetful struct {
	jetstream.JetStream
	name  string
	asked int
}

func (f *forgetful) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if name == f.name {
		if f.asked++; f.asked > 1 {
			return nil, nats.ErrTimeout
		}
	}
	return f.JetStream.Stream(ctx, name)
}

// A deleted inbox begins behind its old numbers or not at all: at 1, the cursors
// would take all that comes for spent.
func TestDeletedInboxIsNotMadeWithoutTheLogsAnswer(t *testing.T) {
	e := natstest.Start(t, nil)
	if err := ensure(t, e, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := e.JS.Publish(t.Context(), "agent.s1.events", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := e.JS.DeleteStream(t.Context(), "AGENT_INBOX"); err != nil {
		t.Fatal(err)
	}
	js := &forgetful{JetStream: e.JS, name: "AGENT_EVENTS"}
	if err := subjects.Ensure(t.Context(), js, subjects.Names{}, nil); !errors.Is(err, subjects.ErrUnreachable) {
		t.Errorf("without an answer for the logs: %v, want ErrUnreachable", err)
	}
	if _, err := e.JS.Stream(t.Context(), "AGENT_INBOX"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the inbox: %v, want none", err)
	}
	before := uint64(time.Now().UnixMilli())
	if err := ensure(t, e, nil); err != nil {
		t.Fatal(err)
	}
	if c := config(t, e, "AGENT_INBOX"); c.FirstSeq < before {
		t.Errorf("the inbox begins at %d, want %d or later", c.FirstSeq, before)
	}
}
