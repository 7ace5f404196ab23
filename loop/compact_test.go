package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

var overflow = looptest.Reply{Status: 400, Text: "This model's maximum context length is 8192 tokens. However, you requested 90000 tokens."}

// long is a history of n questions and answers, each of about size tokens.
func long(n, size int) (history []loop.Message) {
	for i := range n {
		history = append(history,
			loop.NewUserText(fmt.Sprintf("question %d %s", i, strings.Repeat("word", size))),
			&loop.AssistantMessage{StopReason: loop.StopStop, Content: []loop.Block{
				&loop.Text{Text: fmt.Sprintf("answer %d %s", i, strings.Repeat("word", size))}}})
	}
	return history
}

func sizes(events []loop.Event) (out []*loop.CompactionEnd) {
	for _, ev := range events {
		if e, ok := ev.(*loop.CompactionEnd); ok {
			out = append(out, e)
		}
	}
	return out
}

// models answers summaries and questions, and records the requests.
type models struct {
	answer   func(*loop.Request) looptest.Reply
	summary  func(*loop.Request) looptest.Reply
	requests []*loop.Request
	summed   []*loop.Request
}

func (m *models) model() loop.Model {
	return looptest.NewModelFunc(func(req *loop.Request) looptest.Reply {
		if strings.Contains(req.SystemPrompt, "summaries") {
			m.summed = append(m.summed, req)
			if m.summary == nil {
				return looptest.Text("they talked")
			}
			return m.summary(req)
		}
		m.requests = append(m.requests, req)
		return m.answer(req)
	})
}

func TestContextOverflowIsCompactedAndAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := models{answer: func(req *loop.Request) looptest.Reply {
			if loop.EstimateTokens(req.Messages...) > 8192 {
				return overflow
			}
			return looptest.Text("short again")
		}}
		cfg := &loop.Config{Model: m.model(), Compaction: &loop.Compaction{}}
		history := long(20, 1000)
		events := collect(t, loop.Run(t.Context(), cfg, history, loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user compaction_start compaction_end assistant(stop) turn_end agent_end")
		for i, e := range sizes(events) {
			if e.Result == nil || !e.WillRetry || e.Result.TokensAfter >= e.Result.TokensBefore || e.Reason != loop.CompactionOverflow {
				t.Errorf("compaction %d: %+v %+v", i, e, e.Result)
			}
		}
		last := m.requests[len(m.requests)-1].Messages
		if got := text(last[0].(*loop.UserMessage).Content); !strings.Contains(got, "they talked") {
			t.Errorf("the context begins with %.80q", got)
		}
		if got := text(last[len(last)-1].(*loop.UserMessage).Content); got != "hi" {
			t.Errorf("the context ends with %.80q, want the prompt itself", got)
		}
		if got := text(m.summed[0].Messages[0].(*loop.UserMessage).Content); !strings.Contains(got, "question 0") {
			t.Errorf("the summary was asked for without the conversation's head: %.200q", got)
		}
	})
}

func TestCompactionAtMostTwicePerTurn(t *testing.T) {
	m := models{answer: func(*loop.Request) looptest.Reply { return overflow }}
	cfg := &loop.Config{Model: m.model(), Compaction: &loop.Compaction{}, Retry: loop.RetryPolicy{MaxRetries: 3}}
	events := collect(t, loop.Run(t.Context(), cfg, long(40, 2000), loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user compaction_start compaction_end compaction_start compaction_end assistant(error) turn_end agent_end")
	if len(m.requests) != 3 || len(m.summed) != 2 {
		t.Errorf("%d requests and %d summaries, want 3 and 2", len(m.requests), len(m.summed))
	}
}

func TestCompactionOnlyIfItShrinks(t *testing.T) {
	m := models{
		answer:  func(*loop.Request) looptest.Reply { return overflow },
		summary: func(*loop.Request) looptest.Reply { return looptest.Text(strings.Repeat("long ", 50000)) },
	}
	cfg := &loop.Config{Model: m.model(), Compaction: &loop.Compaction{}}
	events := collect(t, loop.Run(t.Context(), cfg, long(10, 1000), loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user compaction_start compaction_end assistant(error) turn_end agent_end")
	if e := sizes(events)[0]; e.Result != nil || e.WillRetry || e.ErrorMessage == "" {
		t.Errorf("got %+v", e)
	}
	if len(m.requests) != 1 {
		t.Errorf("%d requests, want no second one for the same context", len(m.requests))
	}
	// With nothing but the prompt there is nothing to summarise.
	events = collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user assistant(error) turn_end agent_end")
}

func TestCompactionAheadOfAFullWindow(t *testing.T) {
	m := models{answer: func(*loop.Request) looptest.Reply { return looptest.Text("fine") }}
	cfg := &loop.Config{Model: m.model(), Compaction: &loop.Compaction{Window: 10000}}
	events := collect(t, loop.Run(t.Context(), cfg, long(2, 1000), loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user assistant(stop) turn_end agent_end")

	events = collect(t, loop.Run(t.Context(), cfg, long(4, 1000), loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user compaction_start compaction_end assistant(stop) turn_end agent_end")
	if e := sizes(events)[0]; e.Reason != loop.CompactionThreshold || e.WillRetry || e.Result.TokensAfter > 7500 {
		t.Errorf("got %+v %+v", e, e.Result)
	}
}

// TestSilentTruncationIsNoticed: the server says that it was sent 4000 tokens,
// which cannot be.
func TestSilentTruncationIsNoticed(t *testing.T) {
	m := models{answer: func(*loop.Request) looptest.Reply { return looptest.Text("fine") }}
	history := long(10, 1000)
	last := history[len(history)-1].(*loop.AssistantMessage)
	last.Usage = loop.Usage{Input: 4000, Output: 96, TotalTokens: 4096}
	cfg := &loop.Config{Model: m.model(), Compaction: &loop.Compaction{}}
	events := collect(t, loop.Run(t.Context(), cfg, history, loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user compaction_start compaction_end assistant(stop) turn_end agent_end")
	if e := sizes(events)[0]; e.Reason != loop.CompactionTruncated || e.Result == nil || e.Result.TokensAfter > 4096 {
		t.Errorf("got %+v %+v", e, e.Result)
	}
	// Where the counts agree nothing is concluded.
	last.Usage = loop.Usage{Input: 15000, Output: 96, TotalTokens: 15096}
	events = collect(t, loop.Run(t.Context(), cfg, history, loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user assistant(stop) turn_end agent_end")
}

func TestFailedSummaryLeavesTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := models{answer: func(*loop.Request) looptest.Reply { return looptest.Text("fine") }}
		cfg := &loop.Config{Model: m.model(), Retry: loop.RetryPolicy{MaxRetries: 1},
			Compaction: &loop.Compaction{Window: 4000}}
		m.summary = func(*loop.Request) looptest.Reply { return looptest.Reply{Status: 500, Text: "down"} }
		events := collect(t, loop.Run(t.Context(), cfg, long(4, 1000), loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user compaction_start auto_retry_start auto_retry_end compaction_end assistant(stop) turn_end agent_end")
		if e := sizes(events)[0]; e.Result != nil || e.ErrorMessage == "" || e.Aborted {
			t.Errorf("got %+v", e)
		}
		if got := len(m.requests[0].Messages); got != 9 {
			t.Errorf("the request has %d messages, want all 9", got)
		}

		cfg.Compaction.Summarize = func(context.Context, []loop.Message) (string, error) { panic("bad summary") }
		events = collect(t, loop.Run(t.Context(), cfg, long(4, 1000), loop.NewUserText("hi")))
		if e := sizes(events)[0]; !strings.Contains(e.ErrorMessage, "bad summary") {
			t.Errorf("got %+v", e)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		cfg.Compaction.Summarize = func(ctx context.Context, _ []loop.Message) (string, error) {
			<-ctx.Done()
			return "", errors.New("ended")
		}
		events = collect(t, loop.Run(ctx, cfg, long(4, 1000), loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user compaction_start compaction_end assistant(aborted) turn_end agent_end")
		if e := sizes(events)[0]; !e.Aborted {
			t.Errorf("got %+v", e)
		}
	})
}

func TestSummaryIsCharged(t *testing.T) {
	m := models{
		answer: func(*loop.Request) looptest.Reply {
			return looptest.Reply{Text: "fine", Usage: &looptest.Usage{Input: 10, Output: 1}}
		},
		summary: func(*loop.Request) looptest.Reply {
			return looptest.Reply{Text: "sum", Usage: &looptest.Usage{Input: 100, Output: 5}}
		},
	}
	cfg := &loop.Config{Model: m.model(), Compaction: &loop.Compaction{Window: 4000}}
	events := collect(t, loop.Run(t.Context(), cfg, long(4, 1000), loop.NewUserText("hi")))
	tr := fold(t, events)
	if got := tr.RunUsage().TotalTokens; got != 116 {
		t.Errorf("the run's usage is %d tokens, want 116", got)
	}
	if got := tr.Usage().TotalTokens; got != 116 {
		t.Errorf("the session's usage is %d tokens, want 116", got)
	}
}

// compactWorld is a run of three turns whose context is summarised in the
// second one.
func compactWorld(t *testing.T) (cfg *loop.Config, requests *[]*loop.Request) {
	t.Helper()
	m := &models{answer: func(req *loop.Request) looptest.Reply {
		results := 0
		for _, msg := range req.Messages {
			if _, ok := msg.(*loop.ToolResultMessage); ok {
				results++
			}
		}
		if results > 9 || strings.Contains(text(req.Messages[0].(*loop.UserMessage).Content), "went well") {
			return looptest.Text("done")
		}
		return looptest.Calls(looptest.Call{ID: fmt.Sprintf("c%d", results), Name: "read", Args: "{}"})
	}}
	read := tool("read", func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
		return loop.TextResult(strings.Repeat("data", 2000)), nil
	})
	read.ToolSpec.Idempotent = true
	return &loop.Config{Model: m.model(), Tools: []loop.Tool{read},
		Compaction: &loop.Compaction{Window: 8000, Keep: 1500,
			Summarize: func(context.Context, []loop.Message) (string, error) { return "it went well", nil }}}, &m.requests
}

// TestCompactionSurvivesACrashAnywhere: the log is cut behind every event, and
// the resumed run, as well as a later one, is asked with the compacted context.
func TestCompactionSurvivesACrashAnywhere(t *testing.T) {
	cfg, _ := compactWorld(t)
	history := long(2, 1000)
	var head []loop.Event
	for _, m := range history {
		head = append(head, &loop.MessageStart{Message: m}, &loop.MessageEnd{Message: m})
	}
	prompt := loop.NewUserText("hi")
	whole := collect(t, loop.Run(t.Context(), cfg, history, prompt))
	if n := len(sizes(whole)); n == 0 {
		t.Fatalf("nothing was compacted: %s", outline(whole))
	}
	for cut := 4; cut < len(whole); cut++ {
		log := overWireEvents(t, slices.Concat(head, whole[:cut]))
		tr := fold(t, log)
		open := tr.Open()
		if open == nil {
			continue
		}
		cfg, requests := compactWorld(t)
		rest := collect(t, loop.Resume(t.Context(), cfg, tr.History(), open))
		all := fold(t, overWireEvents(t, slices.Concat(log, rest)))
		if all.Open() != nil {
			t.Fatalf("cut at %d: the run is open", cut)
		}
		messages := all.Messages()
		if got := text(messages[len(messages)-1].(*loop.AssistantMessage).Content); got != "done" {
			t.Errorf("cut at %d: the run ended with %q", cut, got)
		}
		compacted := slices.ContainsFunc(log, func(ev loop.Event) bool { return ev.EventType() == "compaction_end" })
		for _, req := range *requests {
			if first := text(req.Messages[0].(*loop.UserMessage).Content); compacted && !strings.Contains(first, "it went well") {
				t.Errorf("cut at %d: a request begins with %.60q", cut, first)
			}
			if n := loop.EstimateTokens(req.Messages...); n > 8000 {
				t.Errorf("cut at %d: a request of %d tokens", cut, n)
			}
		}
		// A later run goes on from the same context.
		context := all.Context()
		if first := text(context[0].(*loop.UserMessage).Content); !strings.Contains(first, "it went well") {
			t.Errorf("cut at %d: the next run's context begins with %.60q", cut, first)
		}
		// agent_end lists all messages of the run, summarised or not.
		end := rest[len(rest)-1].(*loop.AgentEnd)
		if got, want := len(end.Messages), len(messages)-len(history); got != want {
			t.Errorf("cut at %d: agent_end has %d messages, the log %d", cut, got, want)
		}
	}
}

func TestAgentKeepsTheCompactedContext(t *testing.T) {
	m := models{answer: func(*loop.Request) looptest.Reply { return looptest.Text("fine") }}
	agent := loop.NewAgent(loop.AgentConfig{
		Config:   loop.Config{Model: m.model(), Compaction: &loop.Compaction{Window: 4000}},
		Messages: long(4, 1000),
	})
	collect(t, agent.Prompt(t.Context(), loop.NewUserText("hi")))
	collect(t, agent.Prompt(t.Context(), loop.NewUserText("again")))
	if len(m.summed) != 1 {
		t.Errorf("%d summaries, want one", len(m.summed))
	}
	last := m.requests[len(m.requests)-1].Messages
	if len(last) > 5 || !strings.Contains(text(last[0].(*loop.UserMessage).Content), "they talked") {
		t.Errorf("the second run was asked with %d messages", len(last))
	}
}

func overWireEvents(t *testing.T, events []loop.Event) (out []loop.Event) {
	t.Helper()
	for _, ev := range events {
		got, err := loop.ParseWire(loop.AppendWire(nil, ev))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, got)
	}
	return out
}
