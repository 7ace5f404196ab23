package session_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/internal/natsd"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// Found by chaos with long texts: what belongs together was several records
// when it was over the broker's limit, and a worker that died between them left
// a run without its input, or an outcome without its end.
func TestEventsThatBelongTogetherAreOneRecordAtAnySize(t *testing.T) {
	for _, sizes := range [][]int{{10, 10, 10}, {10, 90_000, 10}, {90_000, 90_000, 90_000}, {30_000, 30_000, 30_000}, {30_000, 200_000, 10}} {
		t.Run(fmt.Sprint(sizes), func(t *testing.T) {
			b := newBench(t, natstest.Start(t, &natsd.Config{MaxPayload: 64 << 10}), nil)
			l := b.open("s", "w")
			evs := []loop.Event{&loop.AgentStart{}}
			for i, size := range sizes {
				evs = append(evs, &loop.InputReturned{Reason: fmt.Sprint(i) + strings.Repeat("x", size)})
			}
			settled := &loop.AgentSettled{Outcome: loop.OutcomeAborted, PromptSeq: 7}
			evs = append(evs, settled, &loop.AgentSettled{Outcome: loop.OutcomeAborted, PromptSeq: 8})
			b.must(l.Append(t.Context(), waiting(1)))
			b.must(l.AppendAll(t.Context(), evs, session.InputRef{Kind: subjects.KindPrompt, Seq: 7}, session.InputRef{Kind: subjects.KindPrompt, Seq: 8}))
			b.must(l.Append(t.Context(), waiting(2)))
			b.close(l)
			found := false
			for _, rec := range b.records("s", session.From{}) {
				if len(rec.Inputs) == 0 {
					continue
				}
				found = true
				var got []string
				for _, ev := range rec.Events {
					got = append(got, ev.EventType())
				}
				if len(rec.Events) < len(evs) || rec.Events[len(rec.Events)-1].EventType() != settled.EventType() {
					t.Fatalf("the record that consumes has %v", got)
				}
				for i, ev := range rec.Events[len(rec.Events)-2-len(sizes) : len(rec.Events)-2] {
					if r, ok := ev.(*loop.InputReturned); !ok || len(r.Reason) != sizes[i]+1 {
						t.Errorf("event %d is %T, or not whole", i, ev)
					}
				}
			}
			if !found {
				t.Error("no record consumes the inputs")
			}
			b.fold("s")
		})
	}
}
