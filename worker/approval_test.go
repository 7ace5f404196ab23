package worker

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// danger is an agent whose tool "rm" needs an approval, and "ls" none.
type danger struct{ runs, lists atomic.Int32 }

func (d *danger) agent(policy ApprovalPolicy, after time.Duration, more ...func(*Agent)) func(*Config) {
	a := Agent{
		Tools: []loop.Tool{
			&tool{spec: loop.ToolSpec{Name: "rm"}, run: func(context.Context, loop.Call) (loop.ToolResult, error) {
				d.runs.Add(1)
				return loop.TextResult("removed"), nil
			}},
			&tool{spec: loop.ToolSpec{Name: "ls"}, run: func(context.Context, loop.Call) (loop.ToolResult, error) {
				d.lists.Add(1)
				return loop.TextResult("listed"), nil
			}},
		},
		Approvals: Approvals{Needed: func(c loop.Call) bool { return c.Name == "rm" }, Policy: policy, After: after},
	}
	for _, change := range more {
		change(&a)
	}
	return withAgent(a)
}

var callRm = looptest.Calls(looptest.Call{ID: "call_rm", Name: "rm"})

func (b *bench) decide(id, call string, approve bool) uint64 {
	b.Helper()
	return b.publish(id, subjects.KindApprove, &session.Input{
		Approve: session.ApproveOptions{Call: call, Approve: approve, By: "ada", Reason: "because"},
	})
}

// answersOf lists how the requests ended.
func (b *bench) answersOf(id string) (list []*loop.ApprovalAnswered) {
	b.Helper()
	for _, ev := range b.events(id) {
		if a, ok := ev.(*loop.ApprovalAnswered); ok {
			list = append(list, a)
		}
	}
	return list
}

func (b *bench) wantDecision(id string, want loop.ApprovalAnswer, by string) {
	b.Helper()
	got := b.answersOf(id)
	if len(got) != 1 || got[0].Answer != want || got[0].By != by {
		b.Errorf("answers of %s: %+v, want one %s by %q", id, got, want, by)
	}
	if n := b.count(id, "approval_requested"); n != 1 {
		b.Errorf("%d requests, want 1", n)
	}
}

func TestCallRunsOnlyAfterItsApproval(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callRm, looptest.Text("done")}})
	var d danger
	b.start("w1", d.agent(ApprovalWait, 0))
	b.say("s1", subjects.KindPrompt, "begin")
	b.await("s1", "approval_requested")
	if n := d.runs.Load(); n != 0 {
		t.Errorf("it ran %d times before anybody answered", n)
	}
	b.decide("s1", "call_rm", true)
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
	b.wantDecision("s1", loop.Approved, "ada")
	if n := d.runs.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	b.inboxEmpty("s1")
	b.check("s1")
}

func TestRefusedCallIsAnErrorResultWithTheReason(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callRm, looptest.Text("done")}})
	var d danger
	b.start("w1", d.agent(ApprovalWait, 0))
	b.say("s1", subjects.KindPrompt, "begin")
	b.await("s1", "approval_requested")
	b.decide("s1", "call_rm", false)
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
	b.wantDecision("s1", loop.Denied, "ada")
	if got := b.results("s1")["rm"]; d.runs.Load() != 0 || !strings.Contains(got, "refused by ada: because") {
		t.Errorf("ran %d times, result %q", d.runs.Load(), got)
	}
}

func TestOtherCallsDoNotWaitForAnApproval(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{
		looptest.Calls(looptest.Call{ID: "call_rm", Name: "rm"}, looptest.Call{ID: "call_ls", Name: "ls"}), looptest.Text("done"),
	}})
	var d danger
	b.start("w1", d.agent(ApprovalWait, 0))
	b.say("s1", subjects.KindPrompt, "begin")
	b.await("s1", "tool_execution_end")
	if d.lists.Load() != 1 || d.runs.Load() != 0 {
		t.Errorf("ls ran %d times, rm %d times", d.lists.Load(), d.runs.Load())
	}
	b.decide("s1", "call_rm", true)
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
}

func TestFirstAnswerWinsAndTheSecondIsTold(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callRm, callWork, looptest.Text("done")}})
	var d danger
	s := newStepping()
	b.start("w1", d.agent(ApprovalWait, 0, func(a *Agent) { a.Tools = append(a.Tools, s.tool) }))
	b.say("s1", subjects.KindPrompt, "begin")
	b.await("s1", "approval_requested")
	b.decide("s1", "call_rm", false)
	second := b.decide("s1", "call_rm", true)
	strange := b.decide("s1", "call_of_nobody", true)
	<-s.started
	close(s.release)
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
	b.wantDecision("s1", loop.Denied, "ada")
	if d.runs.Load() != 0 {
		t.Error("the refused call ran")
	}
	late := b.decide("s1", "call_rm", true) // nothing runs any more
	b.inboxGone("s1", late)
	told := map[uint64]string{}
	for _, ev := range b.events("s1") {
		if r, ok := ev.(*loop.InputReturned); ok && r.Kind == "approve" {
			told[r.Seq] = r.Reason
		}
	}
	if told[second] != "already_answered" || told[strange] != "no_request" || told[late] != "no_request" {
		t.Errorf("they were told %v", told)
	}
	b.check("s1")
}

// inboxGone waits until the log has consumed an input.
func (b *bench) inboxGone(id string, seq uint64) {
	b.Helper()
	b.watch(id, func(ev loop.Event) bool {
		r, ok := ev.(*loop.InputReturned)
		return ok && r.Seq == seq
	})
}

func TestTimeOutIsNobodysRefusal(t *testing.T) {
	inBubble(t, []looptest.Answer{callRm, looptest.Text("done")}, func(b *bench) {
		var d danger
		b.start("w1", d.agent(ApprovalDenyAfter, 20*time.Minute, func(a *Agent) { a.Limits.WallTime = time.Minute }))
		b.say("s1", subjects.KindPrompt, "begin")
		time.Sleep(30 * time.Minute) // virtual: inBubble
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		b.wantDecision("s1", loop.TimedOut, "")
		if took := b.patience("s1"); took < 20*time.Minute || took > 21*time.Minute {
			b.Errorf("it took %v, want 20 minutes, which are none of the run's wall time", took)
		}
		if got := b.results("s1")["rm"]; d.runs.Load() != 0 || !strings.Contains(got, "not refused") {
			b.Errorf("ran %d times, result %q", d.runs.Load(), got)
		}
		waits := 0
		for _, ev := range b.events("s1") {
			if w, ok := ev.(*loop.Waiting); ok && w.For == "approval" {
				waits++
			}
		}
		if waits < 60 {
			b.Errorf("%d events say that it waits for approval, want one every 15 s", waits)
		}
		b.check("s1")
	})
}

// patience is the time from the request to its answer, by the broker's clock.
func (b *bench) patience(id string) time.Duration {
	b.Helper()
	var asked, answered time.Time
	for _, rec := range b.records(id) {
		for _, ev := range rec.Events {
			switch ev.(type) {
			case *loop.ApprovalRequested:
				asked = rec.Time
			case *loop.ApprovalAnswered:
				answered = rec.Time
			}
		}
	}
	return answered.Sub(asked)
}

func TestHaltAfterEndsTheRun(t *testing.T) {
	inBubble(t, []looptest.Answer{callRm}, func(b *bench) {
		var d danger
		b.start("w1", d.agent(ApprovalHaltAfter, time.Hour))
		b.say("s1", subjects.KindPrompt, "begin")
		time.Sleep(2 * time.Hour) // virtual: inBubble
		got := b.settle("s1", 1)
		b.wantOutcomes(got, loop.OutcomeLimit)
		if !strings.Contains(got[0].ErrorMessage, "approval of rm within 1h") {
			b.Errorf("error %q", got[0].ErrorMessage)
		}
		b.wantDecision("s1", loop.TimedOut, "")
		b.check("s1")
	})
}

func TestAbortWithdrawsTheRequest(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callRm}})
	var d danger
	b.start("w1", d.agent(ApprovalWait, 0))
	b.say("s1", subjects.KindPrompt, "begin")
	b.await("s1", "approval_requested")
	b.abort("s1", "")
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeAborted)
	b.wantDecision("s1", loop.Withdrawn, "")
	b.check("s1")
}

// The worker that asked is killed; the answer is given before another one is
// there, and after it.
func TestApprovalSurvivesTheWorkerThatAsked(t *testing.T) {
	for _, early := range []bool{true, false} {
		name := "answered after the takeover"
		if early {
			name = "answered while nobody was there"
		}
		t.Run(name, func(t *testing.T) {
			inBubble(t, []looptest.Answer{callRm, looptest.Text("done")}, func(b *bench) {
				var d danger
				w1 := b.start("w1", d.agent(ApprovalDenyAfter, time.Hour))
				b.say("s1", subjects.KindPrompt, "begin")
				b.await("s1", "approval_requested")
				w1.die()
				if early {
					b.decide("s1", "call_rm", true)
					time.Sleep(2 * time.Hour) // the deadline passes: nobody has said so
				}
				b.start("w2", d.agent(ApprovalDenyAfter, time.Hour))
				if !early {
					b.await("s1", "run_resumed")
					time.Sleep(30 * time.Minute) // virtual: inBubble
					b.decide("s1", "call_rm", true)
				}
				got := b.settle("s1", 1)
				b.wantOutcomes(got, loop.OutcomeCompleted)
				b.wantDecision("s1", loop.Approved, "ada")
				if n := d.runs.Load(); n != 1 {
					b.Errorf("the call ran %d times, want once", n)
				}
				if n := b.count("s1", "tool_execution_start"); n != 1 {
					b.Errorf("%d tool_execution_start, want 1", n)
				}
				if got[0].Attempts != 2 {
					b.Errorf("%d attempts, want 2", got[0].Attempts)
				}
				b.inboxEmpty("s1")
				b.check("s1")
			})
		})
	}
}

// The deadline is the request's, whoever owns the session by then.
func TestDeadlineSurvivesTheWorkerThatAsked(t *testing.T) {
	inBubble(t, []looptest.Answer{callRm, looptest.Text("done")}, func(b *bench) {
		var d danger
		w1 := b.start("w1", d.agent(ApprovalDenyAfter, time.Hour))
		b.say("s1", subjects.KindPrompt, "begin")
		b.await("s1", "approval_requested")
		time.Sleep(40 * time.Minute) // virtual: inBubble
		w1.die()
		b.start("w2", d.agent(ApprovalDenyAfter, time.Hour))
		time.Sleep(40 * time.Minute) // virtual: inBubble
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		b.wantDecision("s1", loop.TimedOut, "")
		if took := b.patience("s1"); took < time.Hour || took > time.Hour+time.Minute {
			b.Errorf("it took %v, want the hour from the request", took)
		}
	})
}

// Owners that come and go while a person thinks are no sign of a poisonous
// prompt.
func TestWaitingForAPersonUsesNoAttempts(t *testing.T) {
	inBubble(t, []looptest.Answer{callRm, looptest.Text("done")}, func(b *bench) {
		var d danger
		b.say("s1", subjects.KindPrompt, "begin")
		for i := range 8 {
			w := b.start(fmt.Sprint("w", i), d.agent(ApprovalWait, 0))
			time.Sleep(time.Minute) // virtual: inBubble
			w.die()
		}
		b.decide("s1", "call_rm", true)
		b.start("last", d.agent(ApprovalWait, 0))
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		b.wantDecision("s1", loop.Approved, "ada")
		if n := d.runs.Load(); n != 1 {
			b.Errorf("the call ran %d times", n)
		}
	})
}
