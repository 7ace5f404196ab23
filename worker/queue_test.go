package worker

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// sayAs publishes a text under an id.
func (b *bench) sayAs(id string, kind subjects.Kind, input, text string) uint64 {
	b.Helper()
	return b.publish(id, kind, &session.Input{ID: input, Message: loop.NewUserText(text)})
}

func (b *bench) cancel(id, target string) uint64 {
	b.Helper()
	return b.publish(id, subjects.KindQueue, &session.Input{Queue: session.QueueOptions{Op: session.OpCancel, Target: target}})
}

func (b *bench) edit(id, target, text string) uint64 {
	b.Helper()
	return b.publish(id, subjects.KindQueue, &session.Input{
		Queue: session.QueueOptions{Op: session.OpEdit, Target: target}, Message: loop.NewUserText(text),
	})
}

// answer waits for the event that ends an input without delivering it.
func (b *bench) answer(id string, seq uint64) *loop.InputReturned {
	b.Helper()
	var got *loop.InputReturned
	b.watch(id, func(ev loop.Event) bool {
		if r, ok := ev.(*loop.InputReturned); ok && r.Seq == seq {
			got = r
		}
		return got != nil
	})
	return got
}

func (b *bench) wantAnswer(id string, seq uint64, reason string, turn int) {
	b.Helper()
	if r := b.answer(id, seq); r.Reason != reason || r.Turn != turn {
		b.Errorf("input %d is answered %q, turn %d; want %q, turn %d", seq, r.Reason, r.Turn, reason, turn)
	}
}

// WISHES 19: a waiting input is cancelled by its id, also out of its turn, and
// while a tool runs.
func TestCancelledInputIsReturnedAndOthersStay(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callWork, looptest.Text("one"), looptest.Text("two"), looptest.Text("three")}})
	s := newStepping()
	b.start("w1", s.agent())
	b.say("s1", subjects.KindPrompt, "begin")
	<-s.started
	b.sayAs("s1", subjects.KindSteer, "a", "first")
	steer := b.sayAs("s1", subjects.KindSteer, "b", "go")
	later := b.sayAs("s1", subjects.KindPrompt, "c", "later")
	b.sayAs("s1", subjects.KindPrompt, "d", "last")
	b.wantAnswer("s1", b.cancel("s1", "b"), "done", 0)
	b.wantAnswer("s1", b.cancel("s1", "c"), "done", 0)
	b.wantAnswer("s1", steer, "cancel", 0)
	b.wantAnswer("s1", later, "cancel", 0)
	b.wantAnswer("s1", b.cancel("s1", "b"), "already_returned", 0)
	b.wantAnswer("s1", b.cancel("s1", "nobody"), "unknown", 0)
	close(s.release)
	got := b.settle("s1", 3)
	b.wantOutcomes(got, loop.OutcomeCompleted, loop.OutcomeAborted, loop.OutcomeCompleted)
	if got[1].PromptSeq != later || got[1].PromptID != "c" {
		t.Errorf("the cancelled prompt settled as %+v", got[1])
	}
	b.wantUsers("s1", "begin", "first", "last")
	b.inboxEmpty("s1")
	b.check("s1")
}

// A lost race is told in which turn the input was delivered.
func TestCancelThatComesTooLateIsToldTheTurn(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callWork, callWork, looptest.Text("done")}})
	s := newStepping()
	b.start("w1", s.agent())
	b.sayAs("s1", subjects.KindPrompt, "p", "begin")
	<-s.started
	b.sayAs("s1", subjects.KindSteer, "a", "rather this")
	s.release <- struct{}{}
	<-s.started
	b.wantAnswer("s1", b.cancel("s1", "a"), "already_delivered", 2)
	b.wantAnswer("s1", b.edit("s1", "p", "something else"), "already_delivered", 1)
	close(s.release)
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
	b.wantUsers("s1", "begin", "rather this")
	b.inboxEmpty("s1")
	b.check("s1")
}

// An edited input is delivered in its place, with its new message; so also by
// the next owner.
func TestEditedInputKeepsItsPlace(t *testing.T) {
	b := newBench(t, benchOptions{ackWait: time.Second, answers: []looptest.Answer{callWork, looptest.Text("one"), looptest.Text("two"), looptest.Text("three")}})
	s := newStepping()
	first := b.start("w1", s.agent())
	b.say("s1", subjects.KindPrompt, "begin")
	<-s.started
	b.sayAs("s1", subjects.KindPrompt, "a", "wrong")
	cancelled := b.sayAs("s1", subjects.KindPrompt, "b", "never")
	b.sayAs("s1", subjects.KindPrompt, "c", "last")
	b.wantAnswer("s1", b.edit("s1", "a", "right"), "done", 0)
	b.wantAnswer("s1", b.cancel("s1", "b"), "done", 0)
	first.die()
	close(s.release)
	b.start("w2", s.agent())
	got := b.settle("s1", 4)
	b.wantOutcomes(got, loop.OutcomeCompleted, loop.OutcomeAborted, loop.OutcomeCompleted, loop.OutcomeCompleted)
	if got[1].PromptSeq != cancelled {
		t.Errorf("the second one settled is %d, want the cancelled prompt %d", got[1].PromptSeq, cancelled)
	}
	b.wantUsers("s1", "begin", "right", "last")
	b.inboxEmpty("s1")
	b.check("s1")
}

// Nothing runs: the cancelled prompt settles at once, in the record that spends
// it, and the change that nobody can understand is dead-lettered.
func TestQueueOfAnIdleSessionIsChanged(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{looptest.Text("ok")}})
	b.sayAs("s1", subjects.KindPrompt, "a", "not this")
	b.sayAs("s1", subjects.KindPrompt, "b", "but this")
	b.cancel("s1", "a")
	if _, err := b.env.JS.Publish(t.Context(), "agent.s1.queue", []byte(`{"op":"burn","target":"b"}`)); err != nil {
		t.Fatal(err)
	}
	b.start("w1", nil)
	b.wantOutcomes(b.settle("s1", 2), loop.OutcomeAborted, loop.OutcomeCompleted)
	b.wantUsers("s1", "but this")
	b.wantDead("s1", 1)
	b.inboxEmpty("s1")
	b.check("s1")
}

// Whenever the cancel comes, the input has one outcome and the answer says
// which.
func TestCancelAtAnyTimeHasOneOutcome(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.script.Otherwise(func(*looptest.Request) looptest.Answer {
		return looptest.Reply{Text: "ok", Delay: time.Millisecond}
	})
	b.start("w1", nil)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		id := fmt.Sprintf("s%d", n)
		kind := rapid.SampledFrom([]subjects.Kind{subjects.KindSteer, subjects.KindFollowUp, subjects.KindPrompt}).Draw(rt, "kind")
		b.sayAs(id, subjects.KindPrompt, "p", "begin")
		seq := b.sayAs(id, kind, "x", "maybe")
		sleep(t.Context(), time.Duration(rapid.IntRange(0, 12000).Draw(rt, "µs"))*time.Microsecond)
		change := b.cancel(id, "x")
		got := b.answer(id, change)
		b.inboxEmpty(id)
		delivered := len(b.users(id)) == 2
		switch {
		case got.Reason == "done" && !delivered && b.answer(id, seq).Reason == "cancel":
		case got.Reason == "already_delivered" && delivered && got.Turn > 0:
		default:
			rt.Fatalf("%s: answered %q, turn %d; delivered %v\n%s", kind, got.Reason, got.Turn, delivered, b.dump(id))
		}
		b.check(id)
	})
}
