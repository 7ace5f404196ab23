package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

func (b *bench) move(id, target, before string) uint64 {
	b.Helper()
	return b.publish(id, subjects.KindQueue, &session.Input{
		Queue: session.QueueOptions{Op: session.OpMove, Target: target, Before: before},
	})
}

// WISHES 19: a waiting prompt is moved by its id, and its order outlives the
// owner. Whoever is too late is told the turn.
func TestMovedPromptGoesBeforeOthers(t *testing.T) {
	b := newBench(t, benchOptions{ackWait: time.Second, answers: []looptest.Answer{callWork}})
	b.script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("ok") })
	s := newStepping()
	first := b.start("w1", s.agent())
	b.sayAs("s1", subjects.KindPrompt, "open", "begin")
	<-s.started
	for _, id := range []string{"a", "b", "c", "d"} {
		b.sayAs("s1", subjects.KindPrompt, id, id)
	}
	b.sayAs("s1", subjects.KindSteer, "steer", "meanwhile")
	b.wantAnswer("s1", b.move("s1", "c", ""), "done", 0)
	b.wantAnswer("s1", b.move("s1", "d", "b"), "done", 0)
	b.wantAnswer("s1", b.move("s1", "a", "a"), "done", 0)
	b.wantAnswer("s1", b.move("s1", "nobody", ""), "unknown", 0)
	b.wantAnswer("s1", b.move("s1", "a", "nobody"), "unknown_before", 0)
	b.wantAnswer("s1", b.move("s1", "a", "open"), "unknown_before", 0)
	b.wantAnswer("s1", b.move("s1", "steer", ""), "not_a_prompt", 0)
	b.wantAnswer("s1", b.move("s1", "open", ""), "already_delivered", 1)
	first.die()
	close(s.release)
	b.sayAs("s1", subjects.KindPrompt, "e", "e") // comes behind
	b.start("w2", s.agent())
	for i, got := range b.settle("s1", 6) {
		if got.Outcome != loop.OutcomeCompleted || got.PromptID != []string{"open", "c", "a", "d", "b", "e"}[i] {
			b.Errorf("prompt %d settled as %+v", i, got)
		}
	}
	b.inboxEmpty("s1")
	b.check("s1")
}

// An abort of the queue takes what was stored before it, whatever the order.
func TestAbortTakesTheQueueInWhateverOrder(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callWork, looptest.Text("last")}})
	s := newStepping()
	b.start("w1", s.agent())
	b.sayAs("s1", subjects.KindPrompt, "open", "begin")
	<-s.started
	b.sayAs("s1", subjects.KindPrompt, "a", "a")
	b.sayAs("s1", subjects.KindPrompt, "b", "b")
	b.wantAnswer("s1", b.move("s1", "b", ""), "done", 0)
	b.abort("s1", session.QueueDrop)
	got := b.settle("s1", 3)
	b.wantOutcomes(got, loop.OutcomeAborted, loop.OutcomeAborted, loop.OutcomeAborted)
	b.sayAs("s1", subjects.KindPrompt, "c", "c")
	b.settle("s1", 4)
	b.inboxEmpty("s1")
	b.check("s1")
}

// Any moves and cancels, any number of owners: each prompt has one outcome, and
// they run in the order that the moves give.
func TestPromptsRunInTheOrderOfAnyMoves(t *testing.T) {
	b := newBench(t, benchOptions{ackWait: time.Second})
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		id := fmt.Sprint("s", n)
		// Nobody owns the session before all is asked for; the changes come
		// before any prompt is taken.
		var want []string
		for i := range rapid.IntRange(1, 6).Draw(t, "prompts") {
			want = append(want, fmt.Sprint("p", i))
			b.sayAs(id, subjects.KindPrompt, want[i], "hi")
		}
		all := slices.Clone(want)
		cancelled := 0
		for range rapid.IntRange(0, 6).Draw(t, "changes") {
			who := rapid.SampledFrom(all).Draw(t, "who")
			if rapid.IntRange(0, 4).Draw(t, "what") == 0 {
				b.cancel(id, who)
				if i := slices.Index(want, who); i >= 0 {
					want, cancelled = slices.Delete(want, i, i+1), cancelled+1
				}
				continue
			}
			before := rapid.SampledFrom(append(slices.Clone(all), "")).Draw(t, "before")
			b.move(id, who, before)
			i, j := slices.Index(want, who), slices.Index(want, before)
			if i < 0 || before != "" && j < 0 || who == before {
				continue
			}
			want = slices.Delete(want, i, i+1)
			want = slices.Insert(want, max(slices.Index(want, before), 0), who)
		}
		b.script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("ok") })
		w := b.start(fmt.Sprint("w", n), nil)
		var got []string
		for _, s := range b.settle(id, len(all)) {
			if s.Outcome == loop.OutcomeCompleted {
				got = append(got, s.PromptID)
			}
		}
		b.inboxEmpty(id)
		w.stop()
		<-w.done
		if !slices.Equal(got, want) || len(want)+cancelled != len(all) {
			t.Fatalf("prompts ran as %v, want %v\n%s", got, want, b.dump(id))
		}
	})
}
