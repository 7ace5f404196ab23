package worker

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// TestUrgentSteerCancelsCallsNotStarted: the call that runs goes on, those
// behind it are answered with the reason, and the model sees the steer next.
func TestUrgentSteerCancelsCallsNotStarted(t *testing.T) {
	three := looptest.Calls(looptest.Call{Name: "work"}, looptest.Call{Name: "work"}, looptest.Call{Name: "work"})
	for _, c := range []struct {
		urgency string
		mode    loop.ExecutionMode
		ran     int32
	}{
		{"interrupt", loop.ExecutionSequential, 1},
		{"interrupt", loop.ExecutionParallel, 3}, // all have begun
		{"normal", loop.ExecutionSequential, 3},
		{"", loop.ExecutionSequential, 3},
	} {
		urgency, ran := c.urgency, c.ran
		t.Run("urgency "+urgency+" "+string(c.mode), func(t *testing.T) {
			b := newBench(t, benchOptions{answers: []looptest.Answer{three, looptest.Text("steered")}})
			s := newStepping()
			b.start("w1", withAgent(Agent{Tools: []loop.Tool{s.tool}, ToolExecution: c.mode}))
			b.say("s1", subjects.KindPrompt, "begin")
			<-s.started
			steer := &session.Input{Message: loop.NewUserText("stop that")}
			if urgency != "" {
				steer.Options.Extra = map[string]json.RawMessage{"urgency": json.RawMessage(`"` + urgency + `"`)}
			}
			b.publish("s1", subjects.KindSteer, steer)
			close(s.release)
			b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
			b.wantUsers("s1", "begin", "stop that")
			if got := s.runs.Load(); got != ran {
				t.Errorf("%d calls ran, want %d", got, ran)
			}
			refused := 0
			for _, ev := range b.events("s1") {
				if e, ok := ev.(*loop.ToolExecutionEnd); ok && e.IsError {
					refused++
					if text := e.Result.Content[0].(*loop.Text).Text; !strings.HasPrefix(text, "Not run: a steering message") {
						t.Errorf("a call was answered %q", text)
					}
				}
			}
			if refused != int(3-ran) {
				t.Errorf("%d calls were refused, want %d", refused, 3-ran)
			}
			b.inboxEmpty("s1")
			b.check("s1")
		})
	}
}

// TestLongWaitHandsThePromptBack: a wish beyond the policy's cap ends the run at
// once, and its settlement says when to come again.
func TestLongWaitHandsThePromptBack(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{
		looptest.Reply{Status: 429, Text: "used up", Headers: map[string]string{"Retry-After": "3600"}}}})
	b.start("w1", withAgent(Agent{Retry: loop.RetryPolicy{MaxRetries: 3, MaxRetryAfter: time.Minute}}))
	b.say("s1", subjects.KindPrompt, "begin")
	got := b.settle("s1", 1)
	b.wantOutcomes(got, loop.OutcomeFailed)
	if d := got[0].RetryAfter; d != time.Hour {
		t.Errorf("settled with the wish %v, want an hour", d)
	}
	b.check("s1")
}

// TestCompactedContextOutlivesTheRun: the next prompt is asked with the summary,
// by another worker, and the summary is paid for in the settlement.
func TestCompactedContextOutlivesTheRun(t *testing.T) {
	long := strings.Repeat("words and words ", 1000)
	usage := &looptest.Usage{Input: 10, Output: 1}
	b := newBench(t, benchOptions{answers: []looptest.Answer{
		looptest.Reply{Text: long, Usage: usage},
		looptest.Reply{Text: "they talked", Usage: usage}, looptest.Reply{Text: "second", Usage: usage},
		looptest.Reply{Text: "third", Usage: usage},
	}})
	agent := withAgent(Agent{Compaction: &loop.Compaction{Window: 4000}})
	w := b.start("w1", agent)
	b.say("s1", subjects.KindPrompt, "first "+long)
	b.settle("s1", 1)
	b.say("s1", subjects.KindPrompt, "and then?")
	settled := b.settle("s1", 2)
	if got := settled[1].Usage.TotalTokens; got != 22 {
		t.Errorf("the run with the summary used %d tokens, want 22", got)
	}
	w.stop()
	<-w.done
	b.start("w2", agent)
	b.say("s1", subjects.KindPrompt, "once more")
	b.wantOutcomes(b.settle("s1", 3), loop.OutcomeCompleted, loop.OutcomeCompleted, loop.OutcomeCompleted)
	reqs := b.script.Requests()
	last := reqs[len(reqs)-1]
	if len(reqs) != 4 || !last.Contains("user", "they talked") || last.Contains("user", "first words") {
		t.Errorf("%d requests; the last one is not asked with the summary", len(reqs))
	}
	b.check("s1")
}
