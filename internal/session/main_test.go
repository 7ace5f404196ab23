package session_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a store on a server of its own, with the streams in place.
type bench struct {
	testing.TB
	env   *natstest.Env
	store *session.Store
}

func newBench(t testing.TB, env *natstest.Env, opts *session.Options) *bench {
	t.Helper()
	if err := subjects.Ensure(t.Context(), env.JS, subjects.Names{}, nil); err != nil {
		t.Fatal(err)
	}
	return &bench{TB: t, env: env, store: openStore(t, env, opts)}
}

func openStore(t testing.TB, env *natstest.Env, opts *session.Options) *session.Store {
	t.Helper()
	s, err := session.Open(t.Context(), env.NC, subjects.Names{}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func start(t testing.TB) *bench { return newBench(t, natstest.Start(t, nil), nil) }

// must fails the test on an error.
func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) publish(id string, kind subjects.Kind, text string) session.Receipt {
	b.Helper()
	r, err := b.store.Publish(b.Context(), id, kind, &session.Input{Message: loop.NewUserText(text)})
	b.must(err)
	return r
}

func (b *bench) fold(id string) *session.State {
	b.Helper()
	st, err := b.store.Fold(b.Context(), id)
	b.must(err)
	return st
}

// open folds the session and opens its log.
func (b *bench) open(id, worker string) *session.Log {
	b.Helper()
	l, err := b.store.OpenLog(b.Context(), id, b.fold(id), worker)
	b.must(err)
	return l
}

func (b *bench) close(l *session.Log) {
	b.Helper()
	b.must(l.Close(b.Context()))
}

func (b *bench) append(l *session.Log, evs ...loop.Event) {
	b.Helper()
	for _, ev := range evs {
		b.must(l.Append(b.Context(), ev))
	}
	b.must(l.Flush(b.Context()))
}

func (b *bench) records(id string, from session.From) []*session.Record {
	b.Helper()
	var out []*session.Record
	for rec, err := range b.store.Read(b.Context(), id, from) {
		b.must(err)
		out = append(out, rec)
	}
	return out
}

// claim takes the next bell.
func (b *bench) claim() *session.Claim {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	for c, err := range b.store.Claims(ctx, nil) {
		b.must(err)
		return c
	}
	b.Fatal("no bell within five minutes")
	return nil
}

func delta(text string) loop.Event {
	return &loop.MessageUpdate{Update: loop.Update{Type: "text_delta", Delta: text}}
}

func user(text string) loop.Event { return &loop.MessageEnd{Message: loop.NewUserText(text)} }

func waiting(n int) loop.Event { return &loop.Waiting{For: "model", Since: int64(n)} }

func types(recs []*session.Record) string {
	s := ""
	for _, r := range recs {
		s += fmt.Sprintf("%d.%d", r.Seq, r.Sub)
		for _, ev := range r.Events {
			s += " " + ev.EventType()
		}
		s += "\n"
	}
	return s
}
