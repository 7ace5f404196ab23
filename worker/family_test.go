package worker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// reach is how fast what ends a run must have ended those below it.
const reach = 2 * time.Second

// tree is a root session whose run asks a child and waits for it, which asks a
// grandchild, whose call stops until the test lets it go on.
type tree struct {
	*bench
	leaf   *stepping
	agent  Agent
	limits map[string]Limits // by session
}

func newTree(b *bench) *tree {
	t := &tree{bench: b, leaf: newStepping()}
	b.script.Otherwise(func(r *looptest.Request) looptest.Answer {
		switch {
		case r.ToolResults() > 0:
			return looptest.Text("done")
		case r.LastUser() == "grandchild", r.LastUser() == "quick":
			return callWork
		}
		return looptest.Calls(looptest.Call{Name: "ask"})
	})
	below := map[string]string{"root": "child", "child": "grandchild"}
	ask := &tool{spec: loop.ToolSpec{Name: "ask", Idempotent: true}, run: func(ctx context.Context, call loop.Call) (loop.ToolResult, error) {
		from, err := session.ParseParent(loop.CallKey(ctx))
		if err != nil {
			return loop.ToolResult{}, err
		}
		// The id is the call's: a call that is run again asks nobody twice.
		in := &session.Input{ID: call.Key, Message: loop.NewUserText(below[from.Session])}
		in.Options.Parent = &from
		if _, err := b.store.Publish(ctx, below[from.Session], subjects.KindPrompt, in); err != nil {
			return loop.ToolResult{}, err
		}
		<-ctx.Done()
		return loop.ToolResult{}, context.Cause(ctx)
	}}
	t.agent = Agent{Tools: []loop.Tool{ask, t.leaf.tool}}
	return t
}

// work starts a worker with one slot: each session has one of its own.
func (t *tree) work(id string, change func(*Agent)) *live {
	agent := t.agent
	if change != nil {
		change(&agent)
	}
	return t.start(id, func(c *Config) {
		withAgent(agent)(c)
		c.Sessions = 1
		base := c.Agent
		c.Agent = func(ctx context.Context, req AgentRequest) (*Agent, error) {
			a, err := base(ctx, req)
			if l, ok := t.limits[req.Session]; ok && err == nil {
				a.Limits = l
			}
			return a, err
		}
	})
}

// grow has the tree up to the grandchild's call.
func (t *tree) grow(workers ...string) map[string]*live {
	byID := map[string]*live{}
	for _, id := range workers {
		byID[id] = t.work(id, nil)
	}
	t.say("root", subjects.KindPrompt, "root")
	<-t.leaf.started
	owner := map[string]*live{}
	for _, id := range []string{"root", "child", "grandchild"} {
		w := byID[t.worker(id)]
		for other, have := range owner {
			if have == w {
				t.Fatalf("%s and %s are on one worker", id, other)
			}
		}
		owner[id] = w
	}
	return owner
}

// worker is the last owner of a session.
func (b *bench) worker(id string) (w string) {
	for _, ev := range b.events(id) {
		if c, ok := ev.(*loop.SessionClaimed); ok {
			w = c.Worker
		}
	}
	return w
}

// ends waits for the one agent_settled of each session.
func (b *bench) ends(outcome loop.Outcome, says string, ids ...string) {
	b.Helper()
	for _, id := range ids {
		got := b.settle(id, 1)
		b.wantOutcomes(got, outcome)
		if !strings.HasPrefix(got[0].ErrorMessage, says) {
			b.Errorf("%s says %q, want %q", id, got[0].ErrorMessage, says)
		}
	}
}

// whole holds the logs against the rules, once all workers are idle.
func (b *bench) whole(ids ...string) {
	b.Helper()
	for _, id := range ids {
		b.inboxEmpty(id)
		b.check(id)
		if n := b.count(id, "agent_settled"); n != 1 {
			b.Errorf("%s has %d agent_settled, want one", id, n)
		}
	}
}

func TestAbortReachesEveryDescendantOnAnyWorker(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		newTree(b).grow("w1", "w2", "w3")
		began := time.Now()
		b.abort("root", "keep")
		b.ends(loop.OutcomeAborted, "", "root")
		b.ends(loop.OutcomeAborted, "parent_aborted: run ", "child", "grandchild")
		if d := time.Since(began); d > reach {
			b.Errorf("the abort took %v", d)
		}
		b.whole("root", "child", "grandchild")
	})
}

func TestAbortOfAChildLeavesItsParent(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		newTree(b).grow("w1", "w2", "w3")
		b.abort("child", "keep")
		b.ends(loop.OutcomeAborted, "", "child")
		b.ends(loop.OutcomeAborted, "parent_aborted: run child/", "grandchild")
		sleep(b.Context(), time.Minute)
		if n := b.count("root", "agent_settled"); n != 0 {
			b.Error("the abort of a child ended its parent")
		}
		b.abort("root", "keep")
		b.ends(loop.OutcomeAborted, "", "root")
		b.whole("root", "child", "grandchild")
	})
}

// The worker between is gone, and so is nobody's ear: the grandchild looks at
// the root by itself, and the child ends under its next owner.
func TestAbortReachesDescendantsOfADeadWorker(t *testing.T) {
	for _, dead := range []string{"root", "child"} {
		t.Run(dead, func(t *testing.T) {
			inBubble(t, nil, func(b *bench) {
				tree := newTree(b)
				tree.grow("w1", "w2", "w3")[dead].die()
				tree.work("w4", nil)
				began := time.Now()
				b.abort("root", "keep")
				alive := []string{"grandchild"}
				if dead == "root" {
					alive = append(alive, "child")
				}
				b.ends(loop.OutcomeAborted, "parent_aborted: run ", alive...)
				if d := time.Since(began); d > reach {
					b.Errorf("the abort took %v", d)
				}
				b.settle("root", 1)
				b.ends(loop.OutcomeAborted, "parent_aborted: run root/", "child")
				b.ends(loop.OutcomeAborted, "", "root")
				b.whole("root", "child", "grandchild")
			})
		})
	}
}

// A limit of the parent is announced by nobody.
func TestLimitOfTheParentEndsItsDescendants(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		tree := newTree(b)
		tree.work("w1", func(a *Agent) { a.Limits.WallTime = 5 * time.Minute })
		began := time.Now()
		b.say("root", subjects.KindPrompt, "root")
		b.await("root", "tool_execution_start")
		tree.work("w2", nil)
		tree.work("w3", nil)
		<-tree.leaf.started
		sleep(b.Context(), 5*time.Minute-time.Since(began))
		b.ends(loop.OutcomeLimit, "limit of 5m", "root")
		b.ends(loop.OutcomeLimit, "parent_limit: run ", "child", "grandchild")
		if d := time.Since(began) - 5*time.Minute; d > reach {
			b.Errorf("the limit took %v to reach all", d)
		}
		b.whole("root", "child", "grandchild")
	})
}

func TestQueuedChildOfAnAbortedRunIsReturned(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		s := newStepping()
		w := b.start("w1", s.agent())
		b.script.Add(callWork)
		run := b.say("root", subjects.KindPrompt, "root")
		<-s.started
		b.abort("root", "keep")
		b.settle("root", 1)
		w.stop()
		<-w.done
		in := &session.Input{ID: "c-1", Message: loop.NewUserText("child")}
		in.Options.Parent = &session.Parent{Session: "root", Run: run}
		seq := b.publish("child", subjects.KindPrompt, in)
		requests := len(b.script.Requests())
		b.start("w2", nil)
		got := b.settle("child", 1)
		b.ends(loop.OutcomeAborted, "parent_aborted: run root/", "child")
		if got[0].PromptSeq != seq || got[0].PromptID != "c-1" {
			b.Errorf("settled %+v", got[0])
		}
		for _, ev := range b.events("child") {
			if r, ok := ev.(*loop.InputReturned); ok && r.Reason == "parent_aborted" && r.Seq == seq {
				b.whole("child")
				if n := len(b.script.Requests()); n != requests {
					b.Error("the model was asked")
				}
				return
			}
		}
		b.Errorf("the prompt was not returned:\n%s", b.dump("child"))
	})
}

func TestChildGoesOnWhenItsParentHasEnded(t *testing.T) {
	inBubble(t, []looptest.Answer{looptest.Text("root is done"), callWork, looptest.Text("child is done")}, func(b *bench) {
		s := newStepping()
		b.start("w1", s.agent())
		run := b.say("root", subjects.KindPrompt, "root")
		b.wantOutcomes(b.settle("root", 1), loop.OutcomeCompleted)
		in := &session.Input{Message: loop.NewUserText("child")}
		in.Options.Parent = &session.Parent{Session: "root", Run: run}
		b.publish("child", subjects.KindPrompt, in)
		<-s.started
		b.abort("root", "keep") // too late for the run
		sleep(b.Context(), time.Minute)
		close(s.release)
		b.wantOutcomes(b.settle("child", 1), loop.OutcomeCompleted)
		b.whole("child")
	})
}

// Agents that ask agents must end somewhere.
func TestTreeHasADepth(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("ok") })
	b.start("w1", nil)
	above := session.Parent{Session: "s0", Run: b.say("s0", subjects.KindPrompt, "begin")}
	b.settle("s0", 1)
	for i := 1; ; i++ {
		id := fmt.Sprint("s", i)
		in := &session.Input{Message: loop.NewUserText("deeper")}
		in.Options.Parent = &above
		seq := b.publish(id, subjects.KindPrompt, in)
		if i <= maxDepth {
			b.wantOutcomes(b.settle(id, 1), loop.OutcomeCompleted)
			above = session.Parent{Session: id, Run: seq}
			continue
		}
		b.wantOutcomes(b.settle(id, 1), loop.OutcomeDeadLetter)
		b.wantDead(id, 1)
		return
	}
}

func TestRunAboveItselfIsRefused(t *testing.T) {
	b := newBench(t, benchOptions{})
	first := b.say("s1", subjects.KindPrompt, "begin")
	in := &session.Input{Message: loop.NewUserText("again")}
	in.Options.Parent = &session.Parent{Session: "s2", Run: first + 1}
	if got := b.publish("s2", subjects.KindPrompt, in); got != first+1 {
		t.Fatalf("stored as %d", got)
	}
	b.script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("ok") })
	b.start("w1", nil)
	b.wantOutcomes(b.settle("s2", 1), loop.OutcomeDeadLetter)
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
}
