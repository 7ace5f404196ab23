package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

func tool(name string, run func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error)) *looptest.Tool {
	return &looptest.Tool{
		ToolSpec: loop.ToolSpec{Name: name, Parameters: json.RawMessage(`{"type":"object"}`)},
		Run:      run,
	}
}

func collect(t *testing.T, seq iter.Seq2[loop.Event, error]) []loop.Event {
	t.Helper()
	events, err := looptest.Collect(seq)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// outline writes a run in one word for each event, without the updates of
// answers.
func outline(events []loop.Event) string {
	var b strings.Builder
	for _, ev := range events {
		switch ev := ev.(type) {
		case *loop.MessageUpdate:
			continue
		case *loop.MessageStart:
			continue
		case *loop.MessageEnd:
			b.WriteString(ev.Message.Role())
			if a, ok := ev.Message.(*loop.AssistantMessage); ok {
				b.WriteString("(" + string(a.StopReason) + ")")
			}
			if r, ok := ev.Message.(*loop.ToolResultMessage); ok {
				b.WriteString("(" + text(r.Content) + ")")
			}
		case *loop.ToolExecutionStart:
			b.WriteString("start:" + ev.ToolName)
		case *loop.ToolExecutionUpdate:
			b.WriteString("update:" + text(ev.PartialResult.Content))
		case *loop.ToolExecutionEnd:
			b.WriteString("end:" + ev.ToolName)
		default:
			b.WriteString(ev.EventType())
		}
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}

func text(blocks []loop.Block) string {
	var b strings.Builder
	for _, block := range blocks {
		if t, ok := block.(*loop.Text); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

func calls(names ...string) looptest.Reply {
	var r looptest.Reply
	for _, n := range names {
		r.Calls = append(r.Calls, looptest.Call{Name: n})
	}
	return r
}

func want(t *testing.T, events []loop.Event, outlines ...string) {
	t.Helper()
	got, want := outline(events), strings.Join(outlines, " ")
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestRunPlaysTurnsUntilNothingIsLeft(t *testing.T) {
	cfg := &loop.Config{
		Model: looptest.NewModel(calls("a"), looptest.Text("done")),
		Tools: []loop.Tool{tool("a", nil)},
	}
	events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user assistant(toolUse) start:a end:a toolResult(a ok) turn_end",
		"turn_start assistant(stop) turn_end agent_end")
	end := events[len(events)-1].(*loop.AgentEnd)
	if got := len(end.Messages); got != 4 {
		t.Errorf("agent_end has %d messages, want 4", got)
	}
}

func TestRunDoesNotTouchTheHistory(t *testing.T) {
	history := make([]loop.Message, 1, 16)
	history[0] = loop.NewUserText("hi")
	cfg := &loop.Config{Model: looptest.NewModel(looptest.Text("a"), looptest.Text("b"))}
	collect(t, loop.Continue(t.Context(), cfg, history))
	collect(t, loop.Run(t.Context(), cfg, history, loop.NewUserText("more")))
	for _, m := range history[:cap(history)][1:] {
		if m != nil {
			t.Fatal("a message was appended to the caller's list")
		}
	}
}

func TestContinueChecksTheLastRole(t *testing.T) {
	cfg := &loop.Config{Model: looptest.NewModel()}
	for _, history := range [][]loop.Message{nil, {&loop.AssistantMessage{StopReason: loop.StopStop}}} {
		events, err := looptest.Collect(loop.Continue(t.Context(), cfg, history))
		if len(events) > 0 || !errors.Is(err, loop.ErrContinue) {
			t.Errorf("history %v: %d events, error %v", history, len(events), err)
		}
	}
}

func TestSteeringNeverSkipsCalls(t *testing.T) {
	polled := 0
	cfg := &loop.Config{
		Model:         looptest.NewModel(calls("a", "b"), looptest.Text("done")),
		ToolExecution: loop.ExecutionSequential,
		Steering: func(context.Context) ([]loop.Message, error) {
			if polled++; polled == 2 {
				return []loop.Message{loop.NewUserText("stop that")}, nil
			}
			return nil, nil
		},
		Tools: []loop.Tool{tool("a", nil), tool("b", nil)},
	}
	events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user assistant(toolUse)",
		"start:a end:a toolResult(a ok) start:b end:b toolResult(b ok) turn_end",
		"turn_start user assistant(stop) turn_end agent_end")
	if polled != 3 {
		t.Errorf("steering was polled %d times, want 3", polled)
	}
}

func TestNothingPolledAfterAbort(t *testing.T) {
	ctx, abort := context.WithCancel(t.Context())
	polls := 0
	poll := func(context.Context) ([]loop.Message, error) {
		polls++
		return []loop.Message{loop.NewUserText("never")}, nil
	}
	cfg := &loop.Config{
		Model:    looptest.NewModel(calls("a")),
		FollowUp: poll,
		Steering: func(ctx context.Context) ([]loop.Message, error) {
			if ctx.Err() != nil {
				return poll(ctx)
			}
			return nil, nil
		},
		Tools: []loop.Tool{tool("a", func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
			abort()
			return loop.TextResult("late"), nil
		})},
	}
	events := collect(t, loop.Run(ctx, cfg, nil, loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user assistant(toolUse) start:a end:a toolResult(late) turn_end agent_end")
	if polls != 0 {
		t.Errorf("queues were polled %d times after the abort", polls)
	}
}

// TestQueueTroubleEndsTheRunInOrder: an error or a panic of a function that
// belongs to no tool call ends the run with an error message.
func TestQueueTroubleEndsTheRunInOrder(t *testing.T) {
	broken := errors.New("queue broke")
	tests := map[string]struct {
		set  func(*loop.Config)
		want string
	}{
		"first poll": {func(c *loop.Config) {
			c.Steering = func(context.Context) ([]loop.Message, error) { return nil, broken }
		}, "agent_start turn_start user assistant(error) turn_end agent_end"},
		"follow-up panics": {func(c *loop.Config) {
			c.FollowUp = func(context.Context) ([]loop.Message, error) { panic("queue broke") }
		}, "agent_start turn_start user assistant(stop) turn_end turn_start assistant(error) turn_end agent_end"},
		"convert": {func(c *loop.Config) {
			c.ConvertToLLM = func(context.Context, []loop.Message) ([]loop.Message, error) { return nil, broken }
		}, "agent_start turn_start user assistant(error) turn_end agent_end"},
		"key": {func(c *loop.Config) {
			c.APIKey = func(context.Context, string) (string, error) { return "", broken }
		}, "agent_start turn_start user assistant(error) turn_end agent_end"},
		"should stop": {func(c *loop.Config) {
			c.ShouldStopAfterTurn = func(context.Context, *loop.AfterTurn) (bool, error) { return true, broken }
		}, "agent_start turn_start user assistant(stop) turn_end turn_start assistant(error) turn_end agent_end"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := &loop.Config{Model: looptest.NewModel(looptest.Text("hello"))}
			tt.set(cfg)
			events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
			want(t, events, tt.want)
			messages := events[len(events)-1].(*loop.AgentEnd).Messages
			last := messages[len(messages)-1].(*loop.AssistantMessage)
			if !strings.Contains(last.ErrorMessage, "queue broke") {
				t.Errorf("error message %q", last.ErrorMessage)
			}
		})
	}
}

func TestConsumerPanicIsItsOwn(t *testing.T) {
	cfg := &loop.Config{Model: looptest.NewModel(looptest.Text("hello"))}
	defer func() {
		if p := recover(); p != "mine" {
			t.Fatalf("recovered %v, want the consumer's own panic", p)
		}
	}()
	for ev := range loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")) {
		if ev.EventType() == "message_update" {
			panic("mine")
		}
	}
	t.Fatal("the panic was swallowed")
}

func TestBreakReleasesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := false
		cfg := &loop.Config{
			Model: looptest.NewModel(calls("a")),
			Tools: []loop.Tool{tool("a", func(ctx context.Context, _ loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
				update(loop.TextResult("working"))
				<-ctx.Done()
				update(loop.TextResult("nobody hears this"))
				stopped = true
				return loop.ToolResult{}, ctx.Err()
			})},
		}
		for ev, err := range loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.EventType() == "tool_execution_update" {
				break
			}
		}
		if !stopped {
			t.Error("the tool was not stopped before the break returned")
		}
	})
}
