package session_test

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// Where readers have all the consumers that the stream may have, a worker still
// folds a long log and a tail still follows it.
func TestReadingNeedsNoConsumer(t *testing.T) {
	b := start(t)
	l := b.open("s", "w")
	for i := range 100 {
		b.append(l, waiting(i+1))
	}
	half := time.Now()
	for i := range 100 {
		b.append(l, waiting(i+101))
	}
	stream, err := b.env.JS.Stream(t.Context(), subjects.Names{}.EventsStream())
	b.must(err)
	cfg := stream.CachedInfo().Config
	cfg.MaxConsumers = 1
	_, err = b.env.JS.UpdateStream(t.Context(), cfg)
	b.must(err)
	_, err = b.env.JS.CreateConsumer(t.Context(), cfg.Name, jetstream.ConsumerConfig{Durable: "takes_the_only_one"})
	b.must(err)

	if st := b.fold("s"); st.Seq != 201 {
		t.Errorf("folded to record %d, want 201", st.Seq)
	}
	if n := len(b.records("s", session.From{Time: half})); n != 100 {
		t.Errorf("%d records of the second half, want 100", n)
	}
	var got []int64
	var wg sync.WaitGroup
	wg.Go(func() { got, err = tail(t.Context(), b.store, "s", session.From{}) })
	for i := range 100 {
		b.append(l, waiting(i+201))
	}
	b.append(l, &loop.AgentSettled{})
	b.close(l)
	wg.Wait()
	b.must(err)
	for i := range got {
		if got[i] != int64(i+1) {
			t.Fatalf("event %d of the tail is %d", i+1, got[i])
		}
	}
	if len(got) != 300 {
		t.Errorf("the tail saw %d events, want 300", len(got))
	}
}

// Readers that stand still cost the writer nothing and miss nothing when they
// go on.
func TestStalledReadersDoNotHoldTheWriter(t *testing.T) {
	b := start(t)
	l := b.open("s", "w")
	b.append(l, waiting(1))
	const readers, events = 20, 2000
	goOn := make(chan struct{})
	var started, wg sync.WaitGroup
	started.Add(readers)
	for range readers {
		wg.Go(func() {
			n := int64(0)
			for rec, err := range b.store.Tail(t.Context(), "s", session.From{}) {
				if err != nil {
					t.Error(err)
					return
				}
				for _, ev := range rec.Events {
					switch ev := ev.(type) {
					case *loop.Waiting:
						if n++; ev.Since != n {
							t.Errorf("event %d where %d was due", ev.Since, n)
							return
						}
					case *loop.AgentSettled:
						if n != events {
							t.Errorf("%d events, want %d", n, events)
						}
						return
					}
				}
				if n == 1 {
					started.Done()
					<-goOn
				}
			}
		})
	}
	started.Wait()
	for i := 2; i <= events; i++ {
		b.must(l.Append(t.Context(), waiting(i)))
	}
	b.append(l, &loop.AgentSettled{})
	b.close(l)
	close(goOn)
	wg.Wait()
}
