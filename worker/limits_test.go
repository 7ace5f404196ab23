package worker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

func TestLimitsEndRunWithWhatItHas(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits Limits
		turns  int // answers of the model
		says   string
	}{
		{"turns", Limits{Turns: 3}, 3, "3 turns"},
		{"tool calls", Limits{ToolCalls: 4}, 3, "4 tool calls"},
		{"identical calls", Limits{IdenticalCalls: 2}, 3, "2 identical calls of same"},
		{"tokens", Limits{Tokens: 25}, 3, "25 tokens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, benchOptions{})
			b.script.Otherwise(func(r *looptest.Request) looptest.Answer {
				return looptest.Reply{
					Calls: []looptest.Call{{Name: "same"}, {Name: "other", Args: fmt.Sprintf(`{"n":%d}`, r.Number)}},
					Usage: &looptest.Usage{Input: 6, Output: 4},
				}
			})
			runs := 0
			count := func(name string) *tool {
				return &tool{spec: loop.ToolSpec{Name: name}, run: func(context.Context, loop.Call) (loop.ToolResult, error) {
					runs++
					return loop.TextResult("ok"), nil
				}}
			}
			b.start("w1", withAgent(Agent{
				Tools: []loop.Tool{count("same"), count("other")}, ToolExecution: loop.ExecutionSequential, Limits: c.limits,
			}))
			b.say("s1", subjects.KindPrompt, "hi")
			got := b.settle("s1", 1)
			b.wantOutcomes(got, loop.OutcomeLimit)
			if !strings.Contains(got[0].ErrorMessage, c.says) {
				t.Errorf("says %q, want %q in it", got[0].ErrorMessage, c.says)
			}
			if n := len(b.script.Requests()); n != c.turns {
				t.Errorf("%d turns, want %d", n, c.turns)
			}
			if got[0].Usage.TotalTokens != int64(10*c.turns) {
				t.Errorf("usage %d, want what %d turns cost", got[0].Usage.TotalTokens, c.turns)
			}
			if l := c.limits.ToolCalls; l > 0 && runs != l {
				t.Errorf("%d calls were run, want %d", runs, l)
			}
			b.check("s1")
		})
	}
}

func TestWallTimeEndsRun(t *testing.T) {
	inBubble(t, []looptest.Answer{callWork}, func(b *bench) {
		s := newStepping()
		b.start("w1", withAgent(Agent{Tools: []loop.Tool{s.tool}, Limits: Limits{WallTime: 5 * time.Minute}}))
		began := time.Now()
		b.say("s1", subjects.KindPrompt, "hi")
		<-s.started
		sleep(b.Context(), 5*time.Minute)
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeLimit)
		if d := time.Since(began); d > 6*time.Minute {
			b.Errorf("ended after %v", d)
		}
	})
}

// A run that is taken over again and again does not get its time anew each time:
// it counts from agent_start in the log, the time without an owner included.
func TestWallTimeCountsFromTheRunsFirstRecord(t *testing.T) {
	inBubble(t, []looptest.Answer{callWork, callWork, looptest.Text("never asked")}, func(b *bench) {
		s := newStepping()
		s.tool.spec.Idempotent = true
		agent := withAgent(Agent{Tools: []loop.Tool{s.tool}, Limits: Limits{WallTime: 10 * time.Minute}})
		w1 := b.start("w1", agent)
		began := time.Now()
		b.say("s1", subjects.KindPrompt, "hi")
		<-s.started
		sleep(b.Context(), 4*time.Minute)
		w1.die()
		sleep(b.Context(), 2*time.Minute)
		w2 := b.start("w2", agent)
		<-s.started
		sleep(b.Context(), 2*time.Minute)
		w2.stop()
		<-w2.done
		b.start("w3", agent)
		got := b.settle("s1", 1)
		b.wantOutcomes(got, loop.OutcomeLimit)
		if d := time.Since(began); d < 10*time.Minute-time.Second || d > 11*time.Minute {
			b.Errorf("ended %v after its start, want 10m", d)
		}
		if want := "limit of 10m0s reached"; got[0].ErrorMessage != want {
			b.Errorf("says %q, want %q", got[0].ErrorMessage, want)
		}
		b.check("s1")
	})
}

// While nobody was there the time ran out: the next owner settles the run.
func TestWallTimeThatRanOutWithoutAnOwnerEndsTheRun(t *testing.T) {
	inBubble(t, []looptest.Answer{callWork}, func(b *bench) {
		s := newStepping()
		agent := withAgent(Agent{Tools: []loop.Tool{s.tool}, Limits: Limits{WallTime: 10 * time.Minute}})
		w1 := b.start("w1", agent)
		b.say("s1", subjects.KindPrompt, "hi")
		<-s.started
		w1.die()
		sleep(b.Context(), time.Hour)
		b.start("w2", agent)
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeLimit)
		if n := s.runs.Load(); n != 1 {
			b.Errorf("the tool ran %d times", n)
		}
		b.check("s1")
	})
}

func TestSteerAtTurnLimitBecomesPrompt(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callWork, looptest.Text("next")}})
	s := newStepping()
	b.start("w1", withAgent(Agent{Tools: []loop.Tool{s.tool}, Limits: Limits{Turns: 1}}))
	b.say("s1", subjects.KindPrompt, "hi")
	<-s.started
	b.say("s1", subjects.KindSteer, "too late")
	close(s.release)
	b.wantOutcomes(b.settle("s1", 2), loop.OutcomeLimit, loop.OutcomeCompleted)
	b.wantUsers("s1", "hi", "too late")
	b.inboxEmpty("s1")
	b.check("s1")
}

func TestRunThatEndsAtItsLimitIsCompleted(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{looptest.Text("only answer")}})
	b.start("w1", withAgent(Agent{Limits: Limits{Turns: 1}}))
	b.say("s1", subjects.KindPrompt, "hi")
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
}

func TestLimitsAreOnlyLowered(t *testing.T) {
	agent := Limits{Turns: 10, Tokens: 100, Cost: 1, TreeTokens: 200, TreeCost: 2}
	got := agent.Lower(Limits{Turns: 20, ToolCalls: 5, Tokens: 50, TreeTokens: 300, TreeCost: 1.5})
	if want := (Limits{Turns: 10, ToolCalls: 5, Tokens: 50, Cost: 1, TreeTokens: 200, TreeCost: 1.5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
