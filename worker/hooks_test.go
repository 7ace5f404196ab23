package worker

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// tally notes what hooks are told, one word for each call.
type tally struct {
	mu    sync.Mutex // guards words
	words []string
	calls []ModelCall
}

func (c *tally) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.words = append(c.words, fmt.Sprintf(format, args...))
}

func (c *tally) count(word string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.words {
		if w == word {
			n++
		}
	}
	return n
}

func (c *tally) want(b *bench, want map[string]int) {
	b.Helper()
	for word, n := range want {
		if got := c.count(word); got != n {
			b.Errorf("%q was told %d times, want %d; all: %q", word, got, n, c.words)
		}
	}
}

func (c *tally) hooks() Hooks {
	return Hooks{
		Claimed:     func() { c.say("claimed") },
		ClaimEnded:  func(reason string) { c.say("claim ended %s", reason) },
		TakenOver:   func(agent string) { c.say("taken over %s", agent) },
		RunStarted:  func(agent string) { c.say("run started %s", agent) },
		RunEnded:    func(agent string, o loop.Outcome, _ time.Duration) { c.say("run ended %s %s", agent, o) },
		Settled:     func(agent string, o loop.Outcome) { c.say("settled %s %s", agent, o) },
		TurnStarted: func(agent string) { c.say("turn %s", agent) },
		Used:        func(agent string, u loop.Usage) { c.say("used %s %d", agent, u.TotalTokens) },
		Retried:     func(agent, class string) { c.say("retried %s %s", agent, class) },
		ModelCalled: func(m ModelCall) {
			c.say("model %s %s %s", m.Agent, m.Model, m.Result)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.calls = append(c.calls, m)
		},
		ToolCalled:   func(t ToolCall) { c.say("tool %s %s failed=%t", t.Agent, t.Tool, t.Failed) },
		DeadLettered: func(reason string) { c.say("dead letter %s", reason) },
		Log: LogHooks{
			Committed: func(m Commit) {
				if m.Events > 0 && m.Bytes > 0 && m.Took >= 0 {
					c.say("committed")
				}
			},
			Fenced:    func() { c.say("fenced") },
			LeaseLost: func() { c.say("lease lost") },
		},
	}
}

func TestHooksAreToldOfARun(t *testing.T) {
	var c tally
	b := newBench(t, benchOptions{answers: []looptest.Answer{
		looptest.Reply{Status: 500, Text: "no"},
		looptest.Calls(looptest.Call{Name: "good"}, looptest.Call{ID: "c2", Name: "bad"}),
		looptest.Reply{Text: "done", Usage: &looptest.Usage{Input: 10, Output: 2}},
	}})
	ok := &tool{spec: loop.ToolSpec{Name: "good"}, run: func(context.Context, loop.Call) (loop.ToolResult, error) {
		return loop.TextResult("fine"), nil
	}}
	bad := &tool{spec: loop.ToolSpec{Name: "bad"}, run: func(context.Context, loop.Call) (loop.ToolResult, error) {
		panic("oops")
	}}
	b.start("w1", func(cfg *Config) {
		withAgent(Agent{
			Name: "coder", Tools: []loop.Tool{ok, bad},
			Retry: loop.RetryPolicy{MaxRetries: 1, BaseDelay: time.Millisecond},
		})(cfg)
		cfg.Hooks = c.hooks()
	})
	b.say("s1", subjects.KindPrompt, "hi")
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
	b.waitFor(func() bool { return c.count("claim ended done") == 1 })
	c.want(b, map[string]int{
		"claimed": 1, "run started coder": 1, "run ended coder completed": 1, "settled coder completed": 1,
		"turn coder": 2, "used coder 12": 1, "retried coder server": 1,
		"model coder scripted server": 1, "model coder scripted ok": 2,
		"tool coder good failed=false": 1, "tool coder bad failed=true": 1,
		"fenced": 0, "lease lost": 0, "taken over coder": 0,
	})
	if c.count("committed") == 0 {
		t.Error("no commit was told of")
	}
	for _, m := range c.calls {
		if m.Took <= 0 || m.Result == "ok" && (m.FirstByte <= 0 || m.FirstByte > m.Took) {
			t.Errorf("times of a call: %+v", m)
		}
	}
}

func TestHooksAreToldOfATakeOver(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		hold := make(chan struct{})
		b.script.Add(looptest.Reply{Text: "half an answer", Hold: hold}, looptest.Text("a whole answer"))
		var first, second tally
		w1 := b.start("w1", func(cfg *Config) { cfg.Hooks = first.hooks() })
		b.say("s1", subjects.KindPrompt, "hi")
		b.await("s1", "message_update")
		w1.die()
		close(hold)
		w2 := b.start("w2", func(cfg *Config) { cfg.Hooks = second.hooks() })
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		w2.stop()
		<-w2.done
		first.want(b, map[string]int{"run started default": 1, "run ended default ": 1, "settled default completed": 0})
		second.want(b, map[string]int{"taken over default": 1, "run ended default completed": 1, "settled default completed": 1})
	})
}

func TestHooksAreToldOfDeadLetters(t *testing.T) {
	var c tally
	b := newBench(t, benchOptions{})
	b.start("w1", func(cfg *Config) {
		cfg.Hooks = c.hooks()
		cfg.Agent = func(context.Context, AgentRequest) (*Agent, error) { return nil, ErrUnknownAgent }
	})
	b.say("s1", subjects.KindPrompt, "hi")
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeDeadLetter)
	b.waitFor(func() bool { return slices.Contains(c.snapshot(), "claim ended done") })
	c.want(b, map[string]int{"dead letter unknown_agent": 1, "settled unknown dead_letter": 1, "run started unknown": 0})
}

func (c *tally) snapshot() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.words)
}

// waitFor looks again and again, for as long as patience lasts.
func (b *bench) waitFor(ok func() bool) {
	b.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			b.Fatal("it never came")
		}
		sleep(b.Context(), 5*time.Millisecond)
	}
}

// chatty is a model that says a thousand words.
type chatty struct{ loop.Model }

func (chatty) Info() loop.ModelInfo { return loop.ModelInfo{ID: "chatty"} }

func (chatty) Stream(context.Context, *loop.Request) iter.Seq2[*loop.Update, error] {
	return func(yield func(*loop.Update, error) bool) {
		word := &loop.Update{Type: loop.UpdateTextDelta, Delta: "word"}
		for range 1000 {
			if !yield(word, nil) {
				return
			}
		}
		yield(&loop.Update{Type: loop.UpdateDone, Message: &loop.AssistantMessage{StopReason: loop.StopStop}}, nil)
	}
}

// BenchmarkObservedModel is what measuring an answer of a thousand pieces costs.
func BenchmarkObservedModel(b *testing.B) {
	observed := func(h Hooks) loop.Model {
		w := &Worker{cfg: Config{Hooks: h, Tracer: noop.NewTracerProvider().Tracer("")}}
		return &observedModel{chatty{}, &run{agent: &Agent{Name: "a"}, o: &owner{w: w}}}
	}
	for _, c := range []struct {
		name  string
		model loop.Model
	}{
		{"plain", chatty{}}, {"nobody told", observed(Hooks{})}, {"told", observed(Hooks{ModelCalled: func(ModelCall) {}})},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for range c.model.Stream(b.Context(), &loop.Request{}) {
				}
			}
		})
	}
}
