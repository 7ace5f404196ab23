package worker

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// A thousand readers are more than the server's default of consumers, and half
// of them stand still from their first record on: the run ends meanwhile, and
// each of them then reads the whole log.
func TestThousandReadersDoNotHoldAWorker(t *testing.T) {
	const readers, turns = 1_050, 10
	b := newBench(t, benchOptions{})
	b.script.Otherwise(func(r *looptest.Request) looptest.Answer {
		if r.LastUser() == "long" && r.ToolResults() < turns {
			return looptest.Reply{Text: strings.Repeat("word ", 50), Calls: []looptest.Call{{Name: "work"}}}
		}
		return looptest.Text("done")
	})
	work := &tool{spec: loop.ToolSpec{Name: "work"}, run: func(context.Context, loop.Call) (loop.ToolResult, error) {
		return loop.TextResult("ok"), nil
	}}
	b.start("w1", withAgent(Agent{Tools: []loop.Tool{work}}))
	for _, id := range []string{"alone", "watched"} {
		b.say(id, subjects.KindPrompt, "short")
		b.settle(id, 1)
	}
	alone := b.longRun("alone")

	goOn := make(chan struct{})
	var there, gone sync.WaitGroup
	there.Add(readers)
	var stores []*session.Store
	for range 8 {
		store, err := session.Open(t.Context(), b.env.Connect(), subjects.Names{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, store)
	}
	for i := range readers {
		gone.Go(func() {
			wait := goOn
			if i%2 == 0 {
				wait = nil
			}
			b.follow(stores[i%len(stores)], "watched", there.Done, wait)
		})
	}
	there.Wait()
	events, err := b.env.JS.Stream(t.Context(), subjects.Names{}.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	if n := events.CachedInfo().State.Consumers; n < readers {
		t.Errorf("%d readers have %d consumers, want one each", readers, n)
	}
	watched := b.longRun("watched")
	close(goOn)
	gone.Wait()
	b.check("watched")
	t.Logf("a run of %d turns: %.0f events/s without readers, %.0f with %d", turns+1, alone, watched, readers)
}

// longRun gives the events a second of a session's second run.
func (b *bench) longRun(id string) float64 {
	b.Helper()
	before, began := len(b.events(id)), time.Now()
	b.say(id, subjects.KindPrompt, "long")
	b.wantOutcomes(b.settle(id, 2), loop.OutcomeCompleted, loop.OutcomeCompleted)
	took := time.Since(began)
	return float64(len(b.events(id))-before) / took.Seconds()
}

// follow reads a log from its start until its second prompt has settled, and
// says what is missing. It calls there after the first record, and then stands
// still until goOn is closed; nil does not.
func (b *bench) follow(store *session.Store, id string, there func(), goOn <-chan struct{}) {
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	there = sync.OnceFunc(there)
	defer there()
	var seq uint64
	settled := 0
	for rec, err := range store.Tail(ctx, id, session.From{Start: true}) {
		if err != nil {
			b.Errorf("after record %d: %v", seq, err)
			return
		}
		if rec.Gap != nil || rec.Sub == 0 && rec.Seq != seq+1 {
			b.Errorf("record %d follows %d, gap %+v", rec.Seq, seq, rec.Gap)
			return
		}
		for _, ev := range rec.Events {
			if _, ok := ev.(*loop.AgentSettled); ok {
				settled++
			}
		}
		seq = rec.Seq
		if there(); goOn != nil {
			select {
			case <-goOn:
			case <-ctx.Done():
			}
		}
		if settled == 2 {
			return
		}
	}
	b.Errorf("the log ended after record %d", seq)
}
