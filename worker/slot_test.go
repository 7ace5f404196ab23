package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// Waiting retries hold no slot: four prompts wait for their provider on a
// worker of two sessions, and the rest goes on.
func TestWaitingRetriesHoldNoSlot(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		busy := map[string]bool{}
		b.script.Otherwise(func(r *looptest.Request) looptest.Answer {
			if text := r.LastUser(); text != "quick" && !busy[text] {
				busy[text] = true
				return looptest.Reply{Status: 429, Text: "slow down"}
			}
			return looptest.Text("ok")
		})
		b.start("w1", func(c *Config) {
			withAgent(Agent{Retry: loop.RetryPolicy{MaxRetries: 2, BaseDelay: 90 * time.Second, MaxDelay: 90 * time.Second}})(c)
			c.Sessions = 2
		})
		began := time.Now()
		for i := range 4 {
			b.say(fmt.Sprintf("slow%d", i), subjects.KindPrompt, fmt.Sprint("wait ", i))
			b.await(fmt.Sprintf("slow%d", i), "auto_retry_start")
		}
		for i := range 4 {
			id := fmt.Sprintf("quick%d", i)
			b.say(id, subjects.KindPrompt, "quick")
			b.wantOutcomes(b.settle(id, 1), loop.OutcomeCompleted)
		}
		if d := time.Since(began); d > time.Minute {
			b.Errorf("the quick ones took %v, so they waited for the slow ones", d)
		}
		for i := range 4 {
			id := fmt.Sprintf("slow%d", i)
			b.wantOutcomes(b.settle(id, 1), loop.OutcomeCompleted)
			b.check(id)
		}
	})
}

// However many wait, no more than that are at work.
func TestSlotsBoundWhatWorksAndWhatWaits(t *testing.T) {
	s := newSlots(1)
	wait := &loop.AutoRetryStart{Delay: time.Minute}
	var waiting []*slot
	for range waitingPerSlot {
		one := s.take(t.Context())
		one.saw(&loop.AutoRetryStart{Delay: time.Millisecond})
		if !one.busy {
			t.Fatal("a short wait gave the slot back")
		}
		one.saw(wait)
		waiting = append(waiting, one)
	}
	last := s.take(t.Context())
	if last.saw(wait); !last.busy {
		t.Error("one more than allowed gave its slot back")
	}
	resumed := make(chan error)
	go func() { resumed <- waiting[0].resume(t.Context()) }()
	last.free()
	if err := <-resumed; err != nil || !waiting[0].busy {
		t.Errorf("resumed: %v", err)
	}
	for _, one := range waiting {
		one.free()
	}
	if len(s.busy) != 0 || len(s.waiting) != 0 {
		t.Errorf("%d and %d are never freed", len(s.busy), len(s.waiting))
	}
}

// A worker of one session takes up the run again whose slot it had given back,
// although nobody else wants that slot.
func TestOnlySlotIsTakenUpAgain(t *testing.T) {
	inBubble(t, []looptest.Answer{
		looptest.Reply{Status: 429, Text: "slow down"}, looptest.Text("ok"),
	}, func(b *bench) {
		b.start("w1", func(c *Config) {
			withAgent(Agent{Retry: loop.RetryPolicy{MaxRetries: 2, BaseDelay: 30 * time.Second, MaxDelay: 30 * time.Second}})(c)
			c.Sessions = 1
		})
		b.say("s", subjects.KindPrompt, "wait")
		b.wantOutcomes(b.settle("s", 1), loop.OutcomeCompleted)
		b.check("s")
	})
}

// Runs that wait for people hold no slot, and are handed over at once when the
// worker ends, however long its grace is.
func TestWaitingApprovalsHoldNoSlotAndNoShutdown(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.script.Otherwise(func(r *looptest.Request) looptest.Answer {
			switch {
			case r.LastUser() == "quick" || r.Contains("tool", "removed"):
				return looptest.Text("ok")
			default:
				return callRm
			}
		})
		var d danger
		agent := d.agent(ApprovalWait, 0)
		w1 := b.start("w1", func(c *Config) { agent(c); c.Sessions, c.Grace = 2, time.Hour })
		for i := range 4 {
			id := fmt.Sprint("asks", i)
			b.say(id, subjects.KindPrompt, "remove it")
			b.await(id, "approval_requested")
		}
		b.say("quick", subjects.KindPrompt, "quick")
		b.wantOutcomes(b.settle("quick", 1), loop.OutcomeCompleted)
		time.Sleep(2 * time.Second) // virtual: inBubble
		if s, err := b.store.Summary(b.Context(), "asks0"); err != nil || s.State != "approval" || s.Tool != "rm" {
			b.Errorf("ps is told %+v, %v", s, err)
		}
		began := time.Now()
		w1.stop()
		<-w1.done
		if took := time.Since(began); took > time.Minute {
			b.Errorf("the worker took %v to end, though nothing went on", took)
		}
		b.start("w2", func(c *Config) { agent(c); c.Sessions = 1 })
		for i := range 4 {
			id := fmt.Sprint("asks", i)
			b.await(id, "run_resumed")
			b.decide(id, "call_rm", true)
			b.wantOutcomes(b.settle(id, 1), loop.OutcomeCompleted)
			b.wantDecision(id, loop.Approved, "ada")
			b.check(id)
		}
		if n := d.runs.Load(); n != 4 {
			b.Errorf("%d calls ran, want each once", n)
		}
	})
}

// A call that runs beside one that waits is finished within the grace.
func TestCallBesideAnApprovalIsFinishedBeforeTheHandOver(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.script.Otherwise(func(r *looptest.Request) looptest.Answer {
			if r.Contains("tool", "removed") {
				return looptest.Text("ok")
			}
			return looptest.Calls(looptest.Call{ID: "call_rm", Name: "rm"}, looptest.Call{ID: "call_work", Name: "work"})
		})
		var d danger
		s := newStepping()
		agent := d.agent(ApprovalWait, 0, func(a *Agent) { a.Tools = append(a.Tools, s.tool) })
		w1 := b.start("w1", func(c *Config) { agent(c); c.Grace = time.Hour })
		b.say("s1", subjects.KindPrompt, "begin")
		b.await("s1", "approval_requested")
		<-s.started
		w1.stop()
		time.Sleep(10 * time.Second) // virtual: inBubble
		close(s.release)
		<-w1.done
		if n := b.count("s1", "tool_execution_end"); n != 1 {
			b.Errorf("%d calls have ended, want the one that ran", n)
		}
		b.start("w2", agent)
		b.await("s1", "run_resumed")
		b.decide("s1", "call_rm", true)
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		if n := s.runs.Load(); n != 1 {
			b.Errorf("the call ran %d times", n)
		}
		b.check("s1")
	})
}
