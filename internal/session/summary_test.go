package session_test

import (
	"sync"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
)

func TestSummariesAndWorkers(t *testing.T) {
	b := start(t)
	for range b.store.Summaries(t.Context()) {
		t.Error("a summary in an empty bucket")
	}
	b.must(b.store.PutSummary(t.Context(), &session.Summary{Session: "s", State: "running"}))
	b.must(b.store.PutSummary(t.Context(), &session.Summary{Session: "s", State: "idle", Turn: 2}))
	b.must(b.store.PutPresence(t.Context(), &session.Presence{Worker: "w1", Slots: 64, Beat: time.Now()}))
	b.must(b.store.PutPresence(t.Context(), &session.Presence{Worker: "w2"}))
	b.must(b.store.DeletePresence(t.Context(), "w2"))
	n := 0
	for s, err := range b.store.Summaries(t.Context()) {
		b.must(err)
		n++
		if s.Session != "s" || s.State != "idle" || s.Turn != 2 {
			t.Errorf("summary %+v", s)
		}
	}
	for w, err := range b.store.Workers(t.Context()) {
		b.must(err)
		n++
		if w.Worker != "w1" || w.Slots != 64 {
			t.Errorf("worker %+v", w)
		}
	}
	if n != 2 {
		t.Errorf("%d entries, want a session and a worker", n)
	}
}

func TestOwnerQuestion(t *testing.T) {
	b := start(t)
	stop, err := b.store.ServeOwns("w1", func(s string) bool { return s == "mine" })
	b.must(err)
	for _, c := range []struct {
		worker, session string
		want            bool
	}{{"w1", "mine", true}, {"w1", "other", false}, {"nobody", "mine", false}, {"not.a.worker", "mine", false}} {
		got, err := b.store.AskOwns(t.Context(), c.worker, c.session)
		b.must(err)
		if got != c.want {
			t.Errorf("%s owns %s: %v, want %v", c.worker, c.session, got, c.want)
		}
	}
	b.must(stop())
	if got, err := b.store.AskOwns(t.Context(), "w1", "mine"); got || err != nil {
		t.Errorf("a stopped worker owns: %v, %v", got, err)
	}
}

func TestWatchInputsIsImmediate(t *testing.T) {
	b := start(t)
	seen := make(chan string, 1)
	var once sync.Once
	stop, err := b.store.WatchInputs("abort", func(s string) { once.Do(func() { seen <- s }) })
	b.must(err)
	_, err = b.store.Publish(t.Context(), "s", "abort", &session.Input{Abort: session.AbortOptions{Queue: session.QueueDrop}})
	b.must(err)
	if got := <-seen; got != "s" {
		t.Errorf("saw %q, want s", got)
	}
	b.must(stop())
	in, err := b.store.NextInput(t.Context(), "s", "abort", 0)
	b.must(err)
	if in.Abort.Queue != session.QueueDrop {
		t.Errorf("queue %q, want drop", in.Abort.Queue)
	}
}
