package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

// item events of the Responses API, as short as they can be written.
func added(i int, item string) string {
	return fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":%s}`, i, item)
}

func doneItem(i int, item string) string {
	return fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":%s}`, i, item)
}

func argsDelta(i int, args string) string {
	raw, _ := json.Marshal(args)
	return fmt.Sprintf(`{"type":"response.function_call_arguments.delta","output_index":%d,"delta":%s}`, i, raw)
}

func callItem(n int, args string) string {
	raw, _ := json.Marshal(args)
	return fmt.Sprintf(`{"type":"function_call","id":"fc_%d","call_id":"call_%d","name":"t","arguments":%s}`, n, n, raw)
}

const completed = `{"type":"response.completed","response":{"id":"r","status":"completed"}}`

func respond(t testing.TB, data ...string) seen {
	t.Helper()
	m, _ := answers(t, Config{API: Responses}, stream(data...))
	return collect(t, m, nil)
}

func TestItemsGoByOutputIndex(t *testing.T) {
	s := respond(t, added(0, callItem(1, "")), added(1, callItem(2, "")),
		argsDelta(0, `{"q":`), argsDelta(1, `{"q":`), argsDelta(0, `1}`), argsDelta(1, `2}`),
		doneItem(1, callItem(2, `{"q":2}`)), doneItem(0, callItem(1, `{"q":1}`)), completed)
	c := s.calls()
	if len(c) != 2 || string(c[0].Arguments) != `{"q":1}` || string(c[1].Arguments) != `{"q":2}` || s.msg.StopReason != loop.StopToolUse {
		t.Errorf("%q", s.updates)
	}
	if c[0].ID != "call_1|fc_1" || c[0].Incomplete+c[1].Incomplete != "" {
		t.Errorf("%+v", c[0])
	}
}

func TestItemsThatComeOnlyDone(t *testing.T) {
	s := respond(t,
		doneItem(0, `{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"why"}],"encrypted_content":"E"}`),
		doneItem(1, `{"type":"message","id":"msg","content":[{"type":"output_text","text":"text"}]}`),
		doneItem(2, callItem(1, `{"a":1}`)), completed)
	want := []string{"start", "thinking_start", "thinking_delta why", "thinking_end why", "text_start", "text_delta text", "text_end text",
		"toolcall_start call_1|fc_1 t {}", `toolcall_delta {"a":1}`, `toolcall_end call_1|fc_1 t {"a":1}`, "done"}
	if strings.Join(s.updates, "\n") != strings.Join(want, "\n") {
		t.Errorf("got  %q\nwant %q", s.updates, want)
	}
	whole := respond(t, `{"type":"response.completed","response":{"status":"completed","output":[`+callItem(1, `{"a":1}`)+`]}}`)
	if len(whole.calls()) != 1 || string(whole.calls()[0].Arguments) != `{"a":1}` {
		t.Errorf("output of the response alone: %q", whole.updates)
	}
}

func TestResponsesEnds(t *testing.T) {
	half := []string{added(0, callItem(1, "")), argsDelta(0, `{"q":"hal`)}
	for name, c := range map[string]struct {
		end   string
		stop  loop.StopReason
		class string
		text  string
	}{
		"incomplete":        {`{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"usage":{"input_tokens":10,"output_tokens":5,"total_tokens":15}}}`, loop.StopLength, "", ""},
		"filtered":          {`{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"}}}`, loop.StopError, "content_filter", "incomplete: content_filter"},
		"failed":            {`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"died"}}}`, loop.StopError, "server", "server_error: died"},
		"failed, no reason": {`{"type":"response.failed","response":{"status":"failed"}}`, loop.StopError, "stream_error", "Unknown error (no error details in response)"},
		"completed, failed": {`{"type":"response.completed","response":{"status":"failed","error":{"code":"x","message":"y"}}}`, loop.StopError, "stream_error", "x: y"},
		"error":             {`{"type":"error","code":"rate_limit_exceeded","message":"Slow down"}`, loop.StopError, "rate_limited", "Error Code rate_limit_exceeded: Slow down"},
		"error object":      {`{"type":"error","error":{"type":"server_error","message":"nested"}}`, loop.StopError, "server", "nested"},
		"too long":          {`{"type":"response.failed","response":{"error":{"code":"context_length_exceeded","message":"long"}}}`, loop.StopError, "context_overflow", "context_length_exceeded: long"},
		"no end":            {`{"type":"response.in_progress"}`, loop.StopError, "stream_truncated", "the stream ended before the answer was complete"},
	} {
		s := respond(t, append(half[:2:2], c.end)...)
		class := ""
		if s.err != nil {
			class = s.err.Class
		}
		if s.msg.StopReason != c.stop || class != c.class || s.msg.ErrorMessage != c.text {
			t.Errorf("%s: %s, %s, %q", name, s.msg.StopReason, class, s.msg.ErrorMessage)
		}
		call := s.calls()[0]
		if string(call.Arguments) != `{"q":"hal"}` || (call.Incomplete == "") != (c.stop == loop.StopError) {
			t.Errorf("%s: %s %q", name, call.Arguments, call.Incomplete)
		}
	}
}

// TestOrphanReasoningItems: whatever event an answer is cut at, the next
// request is one that a server which stores nothing accepts.
func TestOrphanReasoningItems(t *testing.T) {
	reasoning := `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"E"}`
	events := []string{
		`{"type":"response.created","response":{"id":"r"}}`,
		added(0, `{"type":"reasoning","id":"rs_1","summary":[]}`),
		`{"type":"response.reasoning_text.delta","item_id":"rs_1","delta":"half"}`,
		doneItem(0, reasoning),
		added(1, callItem(1, "")), argsDelta(1, "{}"), doneItem(1, callItem(1, "{}")),
		doneItem(2, `{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"E"}`),
		`{"type":"response.incomplete","response":{"status":"incomplete"}}`,
	}
	for _, end := range []string{"", completed, events[len(events)-1]} {
		for n := range events {
			m, _ := answers(t, Config{API: Responses, Info: loop.ModelInfo{Reasoning: true, Provider: "openai"}}, stream(append(events[:n:n], end)...))
			answer := collect(t, m, nil).msg
			msgs := []loop.Message{loop.NewUserText("hi"), answer}
			for _, next := range [][]loop.Message{msgs, append(msgs[:2:2], loop.NewUserText("go on"))} {
				m.compat.encrypted = true
				body := m.responsesBody(&loop.Request{SystemPrompt: "s", Messages: next})
				if err := looptest.CheckResponsesRequest(body); err != nil {
					t.Errorf("cut after event %d, end %q: %v\n%s", n, end, err, body)
				}
			}
		}
	}
}

func TestReasoningItemComesBackByteForByte(t *testing.T) {
	item := `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"A\/B+=","x_new":{"b":1,"a":2}}`
	m, script := answers(t, Config{API: Responses, Info: loop.ModelInfo{Reasoning: true}},
		stream(added(0, `{"type":"reasoning","id":"rs_1","summary":[]}`), doneItem(0, item), doneItem(1, callItem(1, "{}")), completed),
		stream(completed))
	secondTurn(t, m, collect(t, m, nil).msg)
	body := string(script.Requests()[1].Body)
	if !strings.Contains(body, item) || !strings.Contains(body, `"store":false`) {
		t.Error(body)
	}
}

func TestRefusalIsText(t *testing.T) {
	s := respond(t, added(0, `{"type":"message","id":"m","content":[]}`),
		`{"type":"response.content_part.added","output_index":0,"part":{"type":"refusal","refusal":""}}`,
		`{"type":"response.refusal.delta","output_index":0,"delta":"No."}`,
		doneItem(0, `{"type":"message","id":"m","content":[{"type":"refusal","refusal":"No."}]}`), completed)
	if s.text() != "No." {
		t.Errorf("%q", s.updates)
	}
	if s = ask(t, stream(delta(`{"refusal":"No"}`), delta(`{"refusal":"."}`), stop, "[DONE]")); s.text() != "No." {
		t.Errorf("%q", s.updates)
	}
}

func TestServiceTierChangesTheCost(t *testing.T) {
	for tier, want := range map[string]float64{"flex": 5, "priority": 20, "default": 10, "": 10} {
		m, _ := answers(t, Config{API: Responses, Info: loop.ModelInfo{Price: loop.Price{Input: 10}}},
			stream(`{"type":"response.completed","response":{"status":"completed","service_tier":"`+tier+`","usage":{"input_tokens":1000000,"total_tokens":1000000}}}`))
		if c := collect(t, m, nil).msg.Usage.Cost; c.Total != want {
			t.Errorf("%s: %v", tier, c.Total)
		}
	}
}

// TestAbortAtAnyEventOfAResponse: whatever had come when the caller gave up, the
// next request, stateless and with encrypted reasoning, is one that is accepted.
func TestAbortAtAnyEventOfAResponse(t *testing.T) {
	events := []string{
		`{"type":"response.created","response":{"id":"r"}}`,
		added(0, `{"type":"reasoning","id":"rs_1","summary":[]}`),
		`{"type":"response.reasoning_text.delta","item_id":"rs_1","delta":"half"}`,
		doneItem(0, `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"E"}`),
		added(1, callItem(1, "")), argsDelta(1, `{"a":`), argsDelta(1, "1}"), doneItem(1, callItem(1, `{"a":1}`)), completed,
	}
	ends := 0
	for at := 1; ; at++ {
		m, _ := answers(t, Config{API: Responses, Info: loop.ModelInfo{Reasoning: true, Provider: "openai"}}, stream(events...))
		m.compat.encrypted = true
		ctx, cancel := context.WithCancel(t.Context())
		var answer *loop.AssistantMessage
		n := 0
		for u, err := range m.Stream(ctx, &loop.Request{Messages: []loop.Message{loop.NewUserText("hi")}}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == at {
				cancel()
			}
			answer = u.Message
		}
		cancel()
		if n < at {
			break
		}
		if answer.StopReason == loop.StopAborted {
			ends++
		}
		body := m.responsesBody(&loop.Request{SystemPrompt: "s", Messages: []loop.Message{loop.NewUserText("hi"), answer, loop.NewUserText("go on")}})
		if err := looptest.CheckResponsesRequest(body); err != nil {
			t.Errorf("aborted at update %d: %v\n%s", at, err, body)
		}
		if answer.StopReason == loop.StopAborted && strings.Contains(string(body), "rs_1") {
			t.Errorf("aborted at update %d: the reasoning of a failed answer is sent: %s", at, body)
		}
	}
	if ends < 6 {
		t.Errorf("only %d aborts", ends)
	}
}
