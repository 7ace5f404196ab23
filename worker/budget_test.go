package worker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// spenders is a tree whose grandchild goes on for ever: an answer of 10 tokens,
// then a call of a minute, again and again. limits are those of each session.
func spenders(b *bench, limits map[string]Limits) *tree {
	t := newTree(b)
	b.script.Otherwise(func(r *looptest.Request) looptest.Answer {
		name := "ask"
		if r.LastUser() == "grandchild" {
			name = "minute"
		}
		return looptest.Reply{Calls: []looptest.Call{{Name: name}}, Usage: &looptest.Usage{Input: 6, Output: 4}}
	})
	t.agent.Tools = append(t.agent.Tools, &tool{spec: loop.ToolSpec{Name: "minute", Idempotent: true}, run: func(ctx context.Context, _ loop.Call) (loop.ToolResult, error) {
		sleep(ctx, time.Minute)
		return loop.TextResult("ok"), context.Cause(ctx)
	}})
	t.limits = limits
	return t
}

func TestTreeBudgetEndsEveryMember(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		tree := spenders(b, map[string]Limits{"root": {TreeTokens: 45}})
		for _, w := range []string{"w1", "w2", "w3"} {
			tree.work(w, nil)
		}
		began := time.Now()
		b.say("root", subjects.KindPrompt, "root")
		sleep(b.Context(), time.Minute)
		b.ends(loop.OutcomeLimit, "limit of 45 tokens in the tree of run root/1 reached", "root", "child", "grandchild")
		// 10 of the root, 10 of the child, then 10 a minute.
		if n := len(b.script.Requests()); n != 5 {
			b.Errorf("%d requests, want 5", n)
		}
		if d := time.Since(began) - 2*time.Minute; d < 0 || d > reach {
			b.Errorf("ended %v after the answer that reached the limit", d)
		}
		b.whole("root", "child", "grandchild")

		// And nothing further begins there.
		in := &session.Input{Message: loop.NewUserText("grandchild")}
		in.Options.Parent = &session.Parent{Session: "child", Run: b.settle("child", 1)[0].PromptSeq}
		b.publish("late", subjects.KindPrompt, in)
		b.wantOutcomes(b.settle("late", 1), loop.OutcomeLimit)
		if n := len(b.script.Requests()); n != 5 {
			b.Errorf("a late prompt asked the model")
		}
	})
}

// A limit in the middle binds what is below it, and nothing above.
func TestTreeBudgetOfAChildLeavesItsParent(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		tree := spenders(b, map[string]Limits{"child": {TreeTokens: 25}, "grandchild": {TreeTokens: 1000}})
		for _, w := range []string{"w1", "w2", "w3"} {
			tree.work(w, nil)
		}
		b.say("root", subjects.KindPrompt, "root")
		sleep(b.Context(), time.Minute)
		b.ends(loop.OutcomeLimit, "limit of 25 tokens in the tree of run child/", "child", "grandchild")
		sleep(b.Context(), time.Minute)
		if n := b.count("root", "agent_settled"); n != 0 {
			b.Error("the root has ended")
		}
		b.abort("root", "keep")
		b.settle("root", 1)
		b.whole("root", "child", "grandchild")
	})
}

// What was used is in the logs: owners that come after say it again, also when
// somebody has deleted it.
func TestTreeBudgetSurvivesWorkersAndItsBucket(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		tree := spenders(b, map[string]Limits{"root": {TreeTokens: 55}})
		workers := map[string]*live{}
		for _, w := range []string{"w1", "w2", "w3", "w4"} {
			workers[w] = tree.work(w, nil)
		}
		b.say("root", subjects.KindPrompt, "root")
		sleep(b.Context(), 90*time.Second) // two answers of the grandchild
		workers[b.worker("grandchild")].die()
		s, err := b.env.JS.Stream(b.Context(), "KV_"+subjects.Names{}.FleetBucket())
		if err == nil {
			err = s.Purge(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		sleep(b.Context(), 2*time.Minute)
		b.ends(loop.OutcomeLimit, "limit of 55 tokens", "root", "child", "grandchild")
		if got := b.settle("grandchild", 1)[0]; got.Attempts != 2 || got.Usage.TotalTokens != 40 {
			b.Errorf("the grandchild used %d tokens in %d attempts, want 40 in 2", got.Usage.TotalTokens, got.Attempts)
		}
		b.whole("root", "child", "grandchild")
	})
}

func TestTreeBudgetInDollars(t *testing.T) {
	b := &budget{run: session.Parent{Session: "s", Run: 1}}
	b.known = map[session.Parent]*session.TreeMember{
		b.run:                     {Cost: 1, MaxCost: 1.25},
		{Session: "c", Run: 2}:    {Cost: 0.25, Above: []session.Parent{b.run}},
		{Session: "else", Run: 3}: {Cost: 9},
	}
	if end := b.over(b.run); end == nil || !strings.Contains(end.Error(), "1.25 dollars") {
		t.Errorf("at the limit: %v", end)
	}
	b.known[b.run].Cost = 0.99
	if end := b.over(b.run); end != nil {
		t.Errorf("below the limit: %v", end)
	}
}

// Prompts that no tree's limit binds cost nothing more.
func TestRunsWithoutTreeLimitsSayNothing(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		newTree(b).grow("w1", "w2", "w3")
		s, err := b.env.JS.Stream(b.Context(), "KV_"+subjects.Names{}.FleetBucket())
		if err != nil {
			b.Fatal(err)
		}
		if info, err := s.Info(b.Context()); err != nil || info.State.LastSeq != 0 {
			b.Errorf("the bucket has seen %d messages (%v)", info.State.LastSeq, err)
		}
		b.abort("root", "keep")
		b.settle("root", 1)
		b.ends(loop.OutcomeAborted, "parent_aborted", "child", "grandchild")
	})
}
