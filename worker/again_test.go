package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// The broker forgets an id after its window; the session's log does not, and
// neither does the next worker. Each repeat is answered as such, and the log
// knows the first one's fate, which is what clients are told.
func TestSameIDOneEffectBeyondTheDuplicateWindow(t *testing.T) {
	inBubble(t, []looptest.Answer{looptest.Text("the first answer")}, func(b *bench) {
		b.script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("another answer") })
		once := &session.Input{ID: "order-17", Message: loop.NewUserText("once")}
		// again sends it when the broker has forgotten it, and waits until a
		// worker has dealt with it.
		again := func(kind subjects.Kind) uint64 {
			sleep(b.Context(), subjects.DefaultDuplicates+time.Minute)
			r, err := b.store.Publish(b.Context(), "s1", kind, once)
			if err != nil || r.Duplicate {
				b.Fatalf("publishing the %s again: %+v, %v; want it to pass the broker", kind, r, err)
			}
			b.inboxEmpty("s1")
			return r.Seq
		}
		w1 := b.start("w1", nil)
		first := b.publish("s1", subjects.KindPrompt, once)
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		b.inboxEmpty("s1")
		want := []uint64{again(subjects.KindSteer)}
		w1.stop()
		<-w1.done
		b.start("w2", nil)
		want = append(want, again(subjects.KindPrompt))

		var returned []uint64
		for _, ev := range b.events("s1") {
			if r, ok := ev.(*loop.InputReturned); ok && r.Reason == "duplicate" && r.ID == once.ID {
				returned = append(returned, r.Seq)
			}
		}
		if !slices.Equal(returned, want) {
			b.Errorf("returned as duplicates are %v, want %v\n%s", returned, want, b.dump("s1"))
		}
		st, err := b.store.Fold(b.Context(), "s1")
		if err != nil {
			b.Fatal(err)
		}
		if fate, ok := st.Outcome(once.ID, 0); !ok || fate.Ref.Seq != first || fate.Ref.Returned || fate.Turn != 1 {
			b.Errorf("the id's fate is %+v, want that of prompt %d: delivered in turn 1", fate, first)
		}
		b.wantUsers("s1", "once")
		if n := len(b.script.Requests()); n != 1 || b.count("s1", "agent_settled") != 1 {
			b.Errorf("%d requests, want one and one settled prompt\n%s", n, b.dump("s1"))
		}
		b.check("s1")
	})
}
