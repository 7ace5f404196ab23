package worker

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// The broker has acknowledged what led to a request or a call before it
// begins, and the input is still in the inbox or already consumed by then.
func TestLogHoldsWhatLedToRequestsAndCalls(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callWork, looptest.Text("done")}})
	has := func(eventType string, n int) bool { return b.count("s1", eventType) >= n }
	b.script.OnRequest(func(r *looptest.Request) {
		if !has("message_end", 1) {
			t.Error("the model was asked before the prompt was in the log")
		}
		if r.Number == 2 && (!has("tool_execution_end", 1) || !has("turn_end", 1)) {
			t.Error("the model was asked before the results were in the log")
		}
	})
	work := &tool{spec: loop.ToolSpec{Name: "work"}, run: func(context.Context, loop.Call) (loop.ToolResult, error) {
		if !has("tool_execution_start", 1) {
			t.Error("the tool ran before its start was in the log")
		}
		return loop.TextResult("ok"), nil
	}}
	b.start("w1", withAgent(Agent{Tools: []loop.Tool{work}}))
	b.say("s1", subjects.KindPrompt, "hi")
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
}

func TestNothingRunsBehindABrokenBarrier(t *testing.T) {
	broken := errors.New("the log is gone")
	barrier := func(context.Context) error { return broken }
	ran := false
	guarded := guardTools([]loop.Tool{&tool{run: func(context.Context, loop.Call) (loop.ToolResult, error) {
		ran = true
		return loop.ToolResult{}, nil
	}}}, barrier, func() {}, masker{})[0]
	if _, err := guarded.Execute(t.Context(), loop.Call{}, nil); !errors.Is(err, broken) || ran {
		t.Errorf("tool: got %v, ran %v", err, ran)
	}
	b := newBench(t, benchOptions{})
	m := &guardedModel{Model: b.model(), barrier: barrier, heard: func() {}}
	for u, err := range m.Stream(t.Context(), &loop.Request{}) {
		if err != nil || u.Type != loop.UpdateError || u.Message.StopReason != loop.StopAborted || !errors.Is(u.Message.Err, broken) {
			t.Errorf("model: got %+v, %v", u, err)
		}
	}
	if n := len(b.script.Requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// A value that comes in two pieces of a tool's output is in neither, and a key
// that was changed while the run went on is masked as well.
func TestSecretsAreMaskedInPiecesAndAfterAChange(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{
		callWork, looptest.Reply{Status: 401, Text: "no such key: pl4nted-second"},
	}})
	says := &saying{tool: tool{spec: loop.ToolSpec{Name: "work"}}, pieces: []string{"it is pl4nted", "-fi", "rst, ", "pl4nted-x"}}
	key := "pl4nted-first"
	b.start("w1", func(c *Config) {
		withAgent(Agent{
			Tools: []loop.Tool{says}, Secrets: []string{key},
			APIKey: func(context.Context, string) (string, error) {
				now := key
				key = "pl4nted-second"
				return now, nil
			},
		})(c)
	})
	b.say("s1", subjects.KindPrompt, "hi")
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeFailed)
	output := ""
	for _, ev := range b.events("s1") {
		if u, ok := ev.(*loop.ToolExecutionUpdate); ok {
			output += text(u.PartialResult.Content)
		}
	}
	if output != "it is [secret], pl4nted-x" {
		t.Errorf("the output's pieces are %q", output)
	}
	if log := b.dump("s1"); strings.Contains(log, "pl4nted-first") || strings.Contains(log, "pl4nted-second") {
		t.Errorf("a key is in the log:\n%s", log)
	}
}

// saying is a tool that tells its output in pieces.
type saying struct {
	tool
	pieces []string
}

func (s *saying) Execute(_ context.Context, _ loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
	for _, p := range s.pieces {
		update(loop.TextResult(p))
	}
	return loop.TextResult(strings.Join(s.pieces, "")), nil
}
