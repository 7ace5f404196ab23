package worker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// queueAndAbort has a run, a prompt and a steer behind it, and aborts.
func queueAndAbort(t *testing.T, queue string, settled int) (*bench, []*loop.AgentSettled) {
	t.Helper()
	b := newBench(t, benchOptions{answers: []looptest.Answer{callWork}})
	b.script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("ok") })
	s := newStepping()
	b.start("w1", s.agent())
	b.say("s1", subjects.KindPrompt, "begin")
	<-s.started
	b.say("s1", subjects.KindPrompt, "queued prompt")
	b.say("s1", subjects.KindSteer, "queued steer")
	b.abort("s1", queue)
	got := b.settle("s1", settled)
	b.inboxEmpty("s1")
	b.check("s1")
	return b, got
}

func returns(b *bench) (texts []string) {
	for _, ev := range b.events("s1") {
		if r, ok := ev.(*loop.InputReturned); ok && r.Reason == "abort" {
			texts = append(texts, r.Kind+string(r.Input))
		}
	}
	return texts
}

func TestAbortQueueKeep(t *testing.T) {
	b, got := queueAndAbort(t, "keep", 2)
	b.wantOutcomes(got, loop.OutcomeAborted, loop.OutcomeCompleted)
	b.wantUsers("s1", "begin", "queued prompt", "queued steer")
	if r := returns(b); r != nil {
		t.Errorf("returned %q with keep", r)
	}
}

func TestAbortQueueDrop(t *testing.T) {
	b, got := queueAndAbort(t, "drop", 2)
	b.wantOutcomes(got, loop.OutcomeAborted, loop.OutcomeAborted)
	b.wantUsers("s1", "begin")
	if r := returns(b); !slices.Equal(r, []string{"prompt", "steer"}) {
		t.Errorf("returned %q, want both, without their texts", r)
	}
}

func TestAbortQueueReturn(t *testing.T) {
	b, got := queueAndAbort(t, "return", 2)
	b.wantOutcomes(got, loop.OutcomeAborted, loop.OutcomeAborted)
	b.wantUsers("s1", "begin")
	r := returns(b)
	if len(r) != 2 || !strings.Contains(r[0], "queued prompt") || !strings.Contains(r[1], "queued steer") {
		t.Errorf("returned %q, want both with their texts", r)
	}
}

func TestAbortStopsAnswerInMilliseconds(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		hold := make(chan struct{})
		defer close(hold)
		b.script.Add(looptest.Reply{Text: "a long answer", Hold: hold})
		w := b.start("w1", nil)
		b.say("s1", subjects.KindPrompt, "begin")
		b.await("s1", "message_update")
		began := time.Now()
		b.abort("s1", "keep")
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeAborted)
		if d := time.Since(began); d > abortEvery/2 {
			b.Errorf("the abort took %v: it did not come by the announcement", d)
		}
		w.stop()
		<-w.done
	})
}

func TestAbortAfterRunDoesNotAbortNext(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{looptest.Text("one"), looptest.Text("two")}})
	w := b.start("w1", nil)
	b.say("s1", subjects.KindPrompt, "first")
	b.settle("s1", 1)
	w.stop()
	<-w.done
	// Both wait when the next worker comes.
	b.abort("s1", "keep")
	b.say("s1", subjects.KindPrompt, "second")
	b.start("w2", nil)
	b.wantOutcomes(b.settle("s1", 2), loop.OutcomeCompleted, loop.OutcomeCompleted)
	b.inboxEmpty("s1")
	b.check("s1")
}

func TestAbortOfWaitingPromptSettlesIt(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{looptest.Text("two")}})
	b.say("s1", subjects.KindPrompt, "first")
	b.abort("s1", "keep")
	b.say("s1", subjects.KindPrompt, "second")
	b.start("w1", nil)
	b.wantOutcomes(b.settle("s1", 2), loop.OutcomeAborted, loop.OutcomeCompleted)
	b.wantUsers("s1", "second")
	b.check("s1")
}

// Found by internal/chaos: the abort that ended a run moved the cursor over
// aborts that it had passed by, and they were swept away without a word.
func TestAbortBeforeTheOneThatEndsTheRunHasAnOutcome(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callWork}})
	s := newStepping()
	b.start("w1", s.agent())
	b.say("s1", subjects.KindPrompt, "begin")
	<-s.started
	ack, err := b.env.JS.Publish(b.Context(), subjects.Names{}.Input("s1", subjects.KindAbort), []byte(`{"queue":"burn"}`))
	if err != nil {
		t.Fatal(err)
	}
	b.abort("s1", "keep")
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeAborted)
	b.inboxEmpty("s1")
	b.check("s1")
	for _, ev := range b.events("s1") {
		if r, ok := ev.(*loop.InputReturned); ok && r.Seq == ack.Sequence && r.Reason == "dead_letter" {
			return
		}
	}
	t.Errorf("the malformed abort has no outcome:\n%s", b.dump("s1"))
}

// ps shows the outcome also of a prompt that never became a run.
func TestSummaryHasTheOutcomeOfADeadLetter(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.start("w1", func(cfg *Config) {
		cfg.Agent = func(context.Context, AgentRequest) (*Agent, error) { return nil, ErrUnknownAgent }
	})
	b.say("s1", subjects.KindPrompt, "begin")
	b.summary(func(sum *session.Summary) bool {
		return sum.State == "idle" && sum.Outcome == loop.OutcomeDeadLetter
	})
}

// An owner that has nothing to run must not blank what ps shows.
func TestAbortOfIdleSessionKeepsItsSummary(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{
		looptest.Reply{Text: "ok", Usage: &looptest.Usage{Input: 5, Output: 5}},
	}})
	w := b.start("w1", nil)
	b.say("s1", subjects.KindPrompt, "begin")
	b.settle("s1", 1)
	w.stop()
	<-w.done
	b.abort("s1", "keep")
	b.start("w2", nil)
	b.summary(func(sum *session.Summary) bool {
		return sum.Worker == "w2" && sum.State == "idle" && sum.Outcome == loop.OutcomeCompleted &&
			sum.Model == "scripted" && sum.Tokens == 10
	})
}
