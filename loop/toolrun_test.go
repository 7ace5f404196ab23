package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

func TestNoToolStartsAfterAbort(t *testing.T) {
	for _, mode := range []loop.ExecutionMode{loop.ExecutionSequential, loop.ExecutionParallel} {
		t.Run(string(mode), func(t *testing.T) {
			ctx, abort := context.WithCancel(t.Context())
			ran := 0
			cfg := &loop.Config{
				Model:         looptest.NewModel(calls("a", "b")),
				ToolExecution: mode,
				BeforeToolCall: func(_ context.Context, b *loop.BeforeToolCall) (loop.BeforeDecision, error) {
					abort()
					return loop.BeforeDecision{}, nil
				},
			}
			for _, name := range []string{"a", "b"} {
				cfg.Tools = append(cfg.Tools, tool(name, func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
					ran++
					return loop.ToolResult{}, nil
				}))
			}
			events := collect(t, loop.Run(ctx, cfg, nil, loop.NewUserText("hi")))
			if ran != 0 {
				t.Errorf("%d tools ran after the abort", ran)
			}
			results := 0
			for _, m := range looptest.Messages(events) {
				if r, ok := m.(*loop.ToolResultMessage); ok {
					results++
					if !r.IsError || !strings.Contains(text(r.Content), "aborted") {
						t.Errorf("result %q, error %t", text(r.Content), r.IsError)
					}
				}
			}
			if results != 2 {
				t.Errorf("%d results, want one for each call", results)
			}
		})
	}
}

func TestToolPanicIsErrorResult(t *testing.T) {
	cfg := &loop.Config{
		Model: looptest.NewModel(calls("a"), looptest.Text("sorry")),
		Tools: []loop.Tool{tool("a", func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
			panic("boom")
		})},
	}
	events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user assistant(toolUse) start:a end:a toolResult(Tool a panicked: boom) turn_end",
		"turn_start assistant(stop) turn_end agent_end")
}

func TestHookPanicIsErrorResult(t *testing.T) {
	cfg := &loop.Config{
		Model: looptest.NewModel(calls("a"), calls("a"), looptest.Text("sorry")),
		Tools: []loop.Tool{tool("a", nil)},
	}
	n := 0
	cfg.BeforeToolCall = func(context.Context, *loop.BeforeToolCall) (loop.BeforeDecision, error) {
		if n++; n == 1 {
			panic("before")
		}
		return loop.BeforeDecision{}, nil
	}
	cfg.AfterToolCall = func(context.Context, *loop.AfterToolCall) (*loop.ResultOverride, error) { panic("after") }
	events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user",
		"assistant(toolUse) start:a end:a toolResult(BeforeToolCall panicked: before) turn_end",
		"turn_start assistant(toolUse) start:a end:a toolResult(AfterToolCall panicked: after) turn_end",
		"turn_start assistant(stop) turn_end agent_end")
}

func TestToolThatIgnoresTheAbortIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, abort := context.WithCancel(t.Context())
		release := make(chan struct{})
		cfg := &loop.Config{
			Model:      looptest.NewModel(calls("deaf")),
			AbortGrace: time.Minute,
			Tools: []loop.Tool{tool("deaf", func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
				abort()
				<-release
				return loop.TextResult("too late"), nil
			})},
		}
		begin := time.Now()
		events := collect(t, loop.Run(ctx, cfg, nil, loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user assistant(toolUse) start:deaf end:deaf",
			"toolResult(Tool deaf did not stop after the abort: outcome unknown) turn_end agent_end")
		if d := time.Since(begin); d != time.Minute {
			t.Errorf("waited %v, want the grace", d)
		}
		close(release)
	})
}

func TestUpdatesAfterReturnAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late sync.WaitGroup
		defer late.Wait()
		cfg := &loop.Config{
			Model: looptest.NewModel(calls("a", "b")),
			Tools: []loop.Tool{
				tool("a", func(_ context.Context, _ loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
					update(loop.TextResult("in time"))
					late.Go(func() {
						time.Sleep(time.Second)
						update(loop.TextResult("late"))
					})
					return loop.ToolResult{Terminate: true}, nil
				}),
				tool("b", func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
					time.Sleep(time.Minute)
					return loop.ToolResult{Terminate: true}, nil
				}),
			},
		}
		events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user assistant(toolUse) start:a start:b update:in time end:a end:b",
			"toolResult() toolResult() turn_end agent_end")
	})
}

func TestParallelResultsInCallOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := &loop.Config{Model: looptest.NewModel(calls("slow", "fast"), looptest.Text("done"))}
		for name, d := range map[string]time.Duration{"slow": time.Hour, "fast": time.Second} {
			cfg.Tools = append(cfg.Tools, tool(name, func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
				time.Sleep(d)
				return loop.TextResult(name), nil
			}))
		}
		begin := time.Now()
		events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user assistant(toolUse) start:slow start:fast end:fast end:slow",
			"toolResult(slow) toolResult(fast) turn_end turn_start assistant(stop) turn_end agent_end")
		if d := time.Since(begin); d != time.Hour {
			t.Errorf("the batch took %v: not side by side", d)
		}
	})
}

func TestOneSequentialToolMakesTheBatchSequential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tool("b", nil)
		b.ExecutionMode = loop.ExecutionSequential
		cfg := &loop.Config{
			Model: looptest.NewModel(calls("a", "b"), looptest.Text("done")),
			Tools: []loop.Tool{tool("a", nil), b},
		}
		events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user assistant(toolUse) start:a end:a toolResult(a ok)",
			"start:b end:b toolResult(b ok) turn_end turn_start assistant(stop) turn_end agent_end")
	})
}

func TestIncompleteCallNeverRuns(t *testing.T) {
	ran := false
	cfg := &loop.Config{
		Model: looptest.NewModel(looptest.Calls(looptest.Call{Name: "a", Args: `{"path": "/et`}), looptest.Text("sorry")),
		Tools: []loop.Tool{tool("a", func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
			ran = true
			return loop.ToolResult{}, nil
		})},
	}
	events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user assistant(toolUse) start:a end:a",
		"toolResult(Not run: the arguments are not whole JSON) turn_end turn_start assistant(stop) turn_end agent_end")
	if ran {
		t.Error("a tool ran with cut arguments")
	}
}

func TestThreeIncompleteCallsEndRun(t *testing.T) {
	bad := looptest.Calls(looptest.Call{Name: "a", Args: `{"x": 1`})
	good := looptest.Calls(looptest.Call{Name: "a", Args: `{"x": 1}`})
	cfg := &loop.Config{
		Model: looptest.NewModel(bad, bad, good, bad, bad, bad, looptest.Text("never asked")),
		Tools: []loop.Tool{tool("a", nil)},
	}
	events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
	if got := len(cfg.Model.(*looptest.Model).Requests()); got != 6 {
		t.Errorf("%d requests, want 6: three bad answers in a row end the run", got)
	}
	end := events[len(events)-1].(*loop.AgentEnd)
	last := end.Messages[len(end.Messages)-1].(*loop.AssistantMessage)
	if last.StopReason != loop.StopError || !strings.Contains(last.ErrorMessage, "3 times in a row") {
		t.Errorf("the run ended with %s %q", last.StopReason, last.ErrorMessage)
	}
}

func TestBeforeHookArgsAreValidatedAgain(t *testing.T) {
	var got []string
	a := tool("a", func(_ context.Context, c loop.Call, _ func(loop.ToolResult)) (loop.ToolResult, error) {
		got = append(got, string(c.Args))
		return loop.TextResult("ok"), nil
	})
	a.Parameters = json.RawMessage(`{"type":"object","properties":{"n":{"type":"number"}},"required":["n"]}`)
	replies := []string{`{"n":"7"}`, `{"n":"many"}`}
	cfg := &loop.Config{
		Model: looptest.NewModel(looptest.Calls(looptest.Call{Name: "a", Args: `{"n":1}`}, looptest.Call{Name: "a", Args: `{"n":1}`}), looptest.Text("done")),
		Tools: []loop.Tool{a},
		BeforeToolCall: func(context.Context, *loop.BeforeToolCall) (loop.BeforeDecision, error) {
			args := replies[0]
			replies = replies[1:]
			return loop.BeforeDecision{Args: json.RawMessage(args)}, nil
		},
	}
	collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
	if !slices.Equal(got, []string{`{"n":7}`}) {
		t.Errorf("the tool got %q", got)
	}
}

func TestTerminateNeedsEveryResult(t *testing.T) {
	for _, tt := range []struct {
		first, second bool
		requests      int
	}{{true, true, 1}, {true, false, 2}} {
		t.Run(fmt.Sprint(tt.first, tt.second), func(t *testing.T) {
			cfg := &loop.Config{Model: looptest.NewModel(calls("a", "b"), looptest.Text("done"))}
			for name, terminate := range map[string]bool{"a": tt.first, "b": tt.second} {
				cfg.Tools = append(cfg.Tools, tool(name, func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
					return loop.ToolResult{Terminate: terminate}, nil
				}))
			}
			collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
			if got := len(cfg.Model.(*looptest.Model).Requests()); got != tt.requests {
				t.Errorf("%d requests, want %d", got, tt.requests)
			}
		})
	}
}

// TestInterruptCancelsCallsNotStarted: an urgent message lets the calls that
// run finish, and answers the others with the reason.
func TestInterruptCancelsCallsNotStarted(t *testing.T) {
	run := func(mode loop.ExecutionMode, slowHook bool) []loop.Event {
		urgent := ""
		cfg := &loop.Config{
			Model:         looptest.NewModel(calls("a", "b", "c"), looptest.Text("done")),
			ToolExecution: mode,
			Interrupt:     func(context.Context) string { return urgent },
			Steering: func(context.Context) ([]loop.Message, error) {
				if urgent == "" {
					return nil, nil
				}
				urgent = ""
				return []loop.Message{loop.NewUserText("stop that")}, nil
			},
			BeforeToolCall: func(_ context.Context, b *loop.BeforeToolCall) (loop.BeforeDecision, error) {
				if slowHook && b.ToolCall.Name == "b" {
					urgent = "a person said stop"
				}
				return loop.BeforeDecision{}, nil
			},
		}
		for _, name := range []string{"a", "b", "c"} {
			cfg.Tools = append(cfg.Tools, tool(name, func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
				if !slowHook && name == "a" {
					urgent = "a person said stop"
				}
				return loop.TextResult("ran"), nil
			}))
		}
		return collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
	}
	const refused = "toolResult(Not run: a person said stop)"
	want(t, run(loop.ExecutionSequential, false), "agent_start turn_start user assistant(toolUse)",
		"start:a end:a toolResult(ran) start:b end:b", refused, "start:c end:c", refused,
		"turn_end turn_start user assistant(stop) turn_end agent_end")
	want(t, run(loop.ExecutionParallel, true), "agent_start turn_start user assistant(toolUse)",
		"start:a start:b start:c end:c end:a end:b", refused, refused, refused,
		"turn_end turn_start user assistant(stop) turn_end agent_end")
}
