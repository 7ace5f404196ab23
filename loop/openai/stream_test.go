package openai

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

// seen is what a stream yielded.
type seen struct {
	updates []string // "type index delta-or-content"
	msg     *loop.AssistantMessage
	err     *loop.ModelError // of a failed message
}

func collect(t testing.TB, m *Model, req *loop.Request) seen {
	t.Helper()
	if req == nil {
		req = &loop.Request{Messages: []loop.Message{loop.NewUserText("hi")}}
	}
	var s seen
	for u, err := range m.Stream(t.Context(), req) {
		if err != nil {
			t.Fatalf("the sequence failed: %v", err)
		}
		if s.msg != nil {
			t.Fatalf("%s after the end", u.Type)
		}
		text := u.Delta + u.Content
		if u.ToolCall != nil {
			text = u.ToolCall.ID + " " + u.ToolCall.Name + " " + string(u.ToolCall.Arguments)
		}
		s.updates = append(s.updates, strings.TrimRight(string(u.Type)+" "+text, " "))
		if u.Type == loop.UpdateDone || u.Type == loop.UpdateError {
			s.msg = u.Message
		}
	}
	if s.msg == nil {
		t.Fatal("no end")
	}
	errors.As(s.msg.Err, &s.err)
	if (s.msg.StopReason == loop.StopError) != (s.err != nil) {
		t.Fatalf("stop reason %s with error %v", s.msg.StopReason, s.msg.Err)
	}
	return s
}

func (s *seen) text() string {
	var b strings.Builder
	for _, c := range s.msg.Content {
		if t, ok := c.(*loop.Text); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

func (s *seen) calls() (out []*loop.ToolCall) {
	for _, c := range s.msg.Content {
		if tc, ok := c.(*loop.ToolCall); ok {
			out = append(out, tc)
		}
	}
	return out
}

// stream is a response of raw data lines; "[DONE]" is not added.
func stream(data ...string) *looptest.Response {
	r := &looptest.Response{}
	for _, d := range data {
		raw := "data: " + d + "\n\n"
		r.Chunks = append(r.Chunks, looptest.Chunk{Raw: &raw})
	}
	return r
}

// answers serves the responses in order to a model of Chat Completions.
func answers(t testing.TB, cfg Config, responses ...looptest.Answer) (*Model, *looptest.Script) {
	t.Helper()
	script := looptest.NewScript(responses...)
	t.Cleanup(func() { script.Close() })
	cfg.BaseURL = script.BaseURL()
	if cfg.Info.ID == "" {
		cfg.Info.ID = "m"
	}
	return mustModel(t, cfg), script
}

func ask(t testing.TB, r looptest.Answer) seen {
	t.Helper()
	m, _ := answers(t, Config{}, r)
	return collect(t, m, nil)
}

const stop = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`

func delta(d string) string { return `{"id":"c","choices":[{"index":0,"delta":` + d + `}]}` }

func TestErrorNullIgnored(t *testing.T) {
	for _, empty := range []string{"null", `""`, "{}", "{ }", "false"} {
		s := ask(t, stream(`{"error":`+empty+`,"choices":[{"index":0,"delta":{"content":"a"}}]}`, stop, "[DONE]"))
		if s.text() != "a" || s.err != nil {
			t.Errorf("error %s: %q, %v", empty, s.text(), s.err)
		}
	}
}

func TestParallelCallsOnIndexZero(t *testing.T) {
	const a, b = `"name":"read","arguments":"{\"p\":1}"`, `"name":"ls","arguments":"{\"p\":2}"`
	piece := func(head, function string) string { return `{` + head + `"function":{` + function + `}}` }
	cases := map[string][]string{
		"ids differ on index 0":    {delta(`{"tool_calls":[` + piece(`"index":0,"id":"x",`, a) + `]}`), delta(`{"tool_calls":[` + piece(`"index":0,"id":"y",`, b) + `]}`)},
		"ids differ in one chunk":  {delta(`{"tool_calls":[` + piece(`"index":0,"id":"x",`, a) + `,` + piece(`"index":0,"id":"y",`, b) + `]}`)},
		"index -1, no ids":         {delta(`{"tool_calls":[` + piece(`"index":-1,`, a) + `]}`), delta(`{"tool_calls":[` + piece(`"index":-1,`, b) + `]}`)},
		"no index, no ids":         {delta(`{"tool_calls":[` + piece(``, a) + `]}`), delta(`{"tool_calls":[` + piece(``, b) + `]}`)},
		"no index, no ids, a list": {delta(`{"tool_calls":[` + piece(``, a) + `,` + piece(``, b) + `]}`)},
		"one id on two indexes":    {delta(`{"tool_calls":[` + piece(`"index":0,"id":"x",`, a) + `]}`), delta(`{"tool_calls":[` + piece(`"index":1,"id":"x",`, b) + `]}`)},
		"objects as arguments": {delta(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"read","arguments":{"p":1}}},
			{"index":0,"id":"y","function":{"name":"ls","arguments":{"p": 2}}}]}`)},
		"pieces in turns": {
			delta(`{"tool_calls":[` + piece(`"index":0,"id":"x",`, `"name":"read","arguments":"{"`) + `]}`),
			delta(`{"tool_calls":[` + piece(`"index":1,"id":"y",`, `"name":"ls","arguments":"{"`) + `]}`),
			delta(`{"tool_calls":[` + piece(`"index":0,`, `"arguments":"\"p\":1}"`) + `,` + piece(`"index":1,`, `"arguments":"\"p\":2}"`) + `]}`),
		},
		"pieces by position": {
			delta(`{"tool_calls":[` + piece(``, `"name":"read","arguments":"{"`) + `,` + piece(``, `"name":"ls","arguments":"{"`) + `]}`),
			delta(`{"tool_calls":[` + piece(``, `"arguments":"\"p\":1}"`) + `,` + piece(``, `"arguments":"\"p\":2}"`) + `]}`),
		},
		"a new id in each piece": {
			delta(`{"tool_calls":[` + piece(`"index":0,"id":"x1",`, `"name":"read","arguments":"{\"p\""`) + `]}`),
			delta(`{"tool_calls":[` + piece(`"index":0,"id":"x2",`, `"arguments":":1}"`) + `]}`),
			delta(`{"tool_calls":[` + piece(`"index":1,"id":"y1",`, b) + `]}`),
		},
	}
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			for i := range data {
				data[i] = strings.ReplaceAll(data[i], "\n", "")
			}
			s := ask(t, stream(append(data, `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]")...))
			calls := s.calls()
			if len(calls) != 2 || calls[0].Name != "read" || calls[1].Name != "ls" || calls[0].ID == calls[1].ID || calls[0].ID == "" {
				t.Fatalf("%d calls: %q", len(calls), s.updates)
			}
			for i, c := range calls {
				var args struct{ P int }
				if json.Unmarshal(c.Arguments, &args) != nil || args.P != i+1 || c.Incomplete != "" {
					t.Errorf("call %d: %s, %q", i, c.Arguments, c.Incomplete)
				}
			}
		})
	}
}

func TestKeepAliveComments(t *testing.T) {
	raw := ": ping\n\nretry: 100\nid: 1\n\ndata:\n\n: OPENROUTER PROCESSING\r\n\r\ndata: " + delta(`{"content":"a"}`) +
		"\n\n:\n\nevent: message\ndata: " + stop + "\n\n: bye\n\ndata: [DONE]\n\n"
	s := ask(t, &looptest.Response{Chunks: []looptest.Chunk{{Raw: &raw}}})
	if s.text() != "a" || s.err != nil {
		t.Errorf("%q, %v", s.updates, s.err)
	}
}

func TestCutStreamIsError(t *testing.T) {
	half := delta(`{"content":"half"}`)
	for name, r := range map[string]*looptest.Response{
		"clean end":          stream(half),
		"end inside a chunk": {Chunks: []looptest.Chunk{{Raw: ptr("data: " + half + "\n\ndata: " + half[:20])}}},
		"end inside a call":  stream(delta(`{"content":"half","tool_calls":[{"index":0,"id":"x","function":{"name":"t","arguments":"{\"a"}}]}`)),
	} {
		s := ask(t, r)
		if s.err == nil || s.err.Class != "stream_truncated" || !s.err.Retryable || !s.err.MidStream || s.text() != "half" {
			t.Errorf("%s: %+v, %q", name, s.err, s.text())
		}
	}
	r := stream(half)
	r.Chunks = append(r.Chunks, looptest.Chunk{Cut: true})
	if s := ask(t, r); s.err == nil || s.err.Class != "network" || !s.err.Retryable || s.text() != "half" {
		t.Errorf("cut connection: %+v", s.err)
	}
}

func TestEndlessServerMayBeToldSo(t *testing.T) {
	yes := true
	m, _ := answers(t, Config{Compat: &Compat{EndsWithoutFinish: &yes}}, stream(delta(`{"content":"all"}`)))
	if s := collect(t, m, nil); s.err != nil || s.text() != "all" {
		t.Errorf("%+v", s.err)
	}
}

func TestDoneEndsTheStream(t *testing.T) {
	hold := make(chan struct{})
	r := stream(delta(`{"content":"a"}`), stop, "[DONE]")
	r.Chunks = append(r.Chunks, looptest.Chunk{Wait: hold})
	s := ask(t, r)
	close(hold)
	if s.err != nil || s.text() != "a" {
		t.Errorf("held open: %+v", s.err)
	}
	r = stream(delta(`{"content":"a"}`), stop, "[DONE]")
	r.Chunks = append(r.Chunks, looptest.Chunk{Cut: true})
	if s := ask(t, r); s.err != nil || s.text() != "a" {
		t.Errorf("cut: %+v", s.err)
	}
}

func TestErrorsInside200(t *testing.T) {
	body := func(kind, text string) *looptest.Response {
		return &looptest.Response{Headers: map[string]string{"Content-Type": kind}, Chunks: []looptest.Chunk{{Raw: &text}}}
	}
	for name, c := range map[string]struct {
		r     *looptest.Response
		class string
		text  string
	}{
		"error object":        {stream(`{"error":{"message":"no capacity","type":"server_error"}}`), "server", "no capacity"},
		"error string":        {stream(`{"error":"oops"}`), "stream_error", `"oops"`},
		"overloaded":          {stream(`{"error":{"message":"busy","type":"overloaded_error"}}`), "overloaded", "busy"},
		"code of HTTP":        {stream(`{"error":{"message":"slow","code":429}}`), "rate_limited", "slow"},
		"object error":        {stream(`{"object":"error","message":"bad","code":400}`), "client", "bad"},
		"event named error":   {&looptest.Response{Chunks: []looptest.Chunk{{Event: "error", Data: json.RawMessage(`{"message":"broke"}`)}}}, "stream_error", "broke"},
		"too long":            {stream(`{"error":{"message":"This model's maximum context length is 8192 tokens"}}`), "context_overflow", "maximum context length"},
		"finish_reason error": {stream(`{"choices":[{"delta":{"content":"x"},"finish_reason":"error"}]}`, "[DONE]"), "stream_error", "Provider finish_reason: error"},
		"content filter":      {stream(`{"choices":[{"delta":{},"finish_reason":"content_filter"}]}`, "[DONE]"), "content_filter", "content_filter"},
		"zero chunks":         {stream(), "stream_truncated", "empty"},
		"only DONE":           {stream("[DONE]"), "bad_response", "empty"},
		"not JSON":            {stream("{not json}", "[DONE]"), "stream_error", "{not json}"},
		"HTML":                {body("text/html", "<html><title>Login</title></html>"), "bad_response", "Login"},
		"no type, nothing":    {body("application/octet-stream", ""), "bad_response", "empty"},
		"JSON error":          {body("application/json", `{"error":{"message":"quota","type":"insufficient_quota"}}`), "rate_limited", "quota"},
		"JSON something":      {body("application/json", `{"detail":"what"}`), "bad_response", "what"},
	} {
		s := ask(t, c.r)
		if s.err == nil || s.err.Class != c.class || !strings.Contains(s.msg.ErrorMessage, c.text) {
			t.Errorf("%s: %+v", name, s.err)
		}
	}
}

func TestStreamsUnderAnotherName(t *testing.T) {
	text := "\n: hi\n\ndata: " + delta(`{"content":"a"}`) + "\n\ndata: " + stop + "\n\ndata: [DONE]\n\n"
	for _, kind := range []string{"text/plain", "application/json", "application/octet-stream"} {
		s := ask(t, &looptest.Response{Headers: map[string]string{"Content-Type": kind}, Chunks: []looptest.Chunk{{Raw: &text}}})
		if s.text() != "a" || s.err != nil {
			t.Errorf("%s: %+v", kind, s.err)
		}
	}
}

func TestWholeAnswerAsJSON(t *testing.T) {
	s := ask(t, &looptest.Response{Body: json.RawMessage(`{"id":"x","object":"chat.completion","choices":[{"index":0,"message":
		{"role":"assistant","content":"hello","tool_calls":[{"id":"c","type":"function","function":{"name":"t","arguments":"{}"}}]},
		"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`)})
	if s.text() != "hello" || len(s.calls()) != 1 || s.msg.StopReason != loop.StopToolUse || s.msg.Usage.TotalTokens != 5 {
		t.Errorf("%q, %+v", s.updates, s.err)
	}
}

func TestUsageLastWins(t *testing.T) {
	m, _ := answers(t, Config{Info: loop.ModelInfo{Price: loop.Price{Input: 1, Output: 2}}}, stream(
		`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`,
		`{"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`,
		`{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}`,
		`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2},"cost":0.5}}`,
		"[DONE]"))
	u := collect(t, m, nil).msg.Usage
	want := loop.Usage{Input: 6, Output: 5, CacheRead: 4, TotalTokens: 15, Reasoning: 2, Cost: u.Cost}
	if u != want || u.Cost.Total != 0.5 || !u.Cost.Stated {
		t.Errorf("%+v", u)
	}
}

func TestUsageIsEstimatedOnlyWhenAsked(t *testing.T) {
	r := func() *looptest.Response { return stream(delta(`{"content":"12345678"}`), stop, "[DONE]") }
	m, _ := answers(t, Config{}, r())
	if u := collect(t, m, nil).msg.Usage; u != (loop.Usage{}) {
		t.Errorf("not asked: %+v", u)
	}
	m, _ = answers(t, Config{EstimateUsage: true}, r())
	if u := collect(t, m, nil).msg.Usage; !u.Estimated || u.Output != 2 || u.Input == 0 || u.TotalTokens != u.Input+2 {
		t.Errorf("asked: %+v", u)
	}
}

func TestReasoningComesBack(t *testing.T) {
	for _, field := range []string{"reasoning_content", "reasoning", "reasoning_text"} {
		m, script := answers(t, Config{},
			stream(delta(`{"`+field+`":"be"}`), delta(`{"`+field+`":"cause"}`),
				delta(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"t","arguments":"{}"}}]}`),
				`{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]"),
			stream(delta(`{"content":"a"}`), stop, "[DONE]"))
		s := collect(t, m, nil)
		th, ok := s.msg.Content[0].(*loop.Thinking)
		if !ok || th.Thinking != "because" || th.Signature != field {
			t.Fatalf("%s: %+v", field, s.msg.Content[0])
		}
		secondTurn(t, m, s.msg)
		if body := string(script.Requests()[1].Body); !strings.Contains(body, `"`+field+`":"because"`) {
			t.Errorf("%s is not sent back: %s", field, body)
		}
	}
}

// TestReasoningDroppedWhereRefused: a server that does not want earlier thinking
// back is not sent it again; one that wants more of it is not misunderstood.
func TestReasoningDroppedWhereRefused(t *testing.T) {
	thought := stream(delta(`{"reasoning":"because"}`), delta(`{"content":"a"}`), stop, "[DONE]")
	refusal := func(text string) *looptest.Response {
		return &looptest.Response{Status: 400, Body: json.RawMessage(`{"error":{"message":"` + text + `"}}`)}
	}
	for text, dropped := range map[string]bool{
		"'messages.1' : property 'reasoning' is unsupported":        true,
		"The `reasoning` in the thinking mode must be passed back.": false,
		"bad request": false,
	} {
		m, script := answers(t, Config{}, thought, refusal(text), looptest.Text("b"))
		s := collect(t, m, nil)
		if failed := secondTurn(t, m, s.msg); failed.err == nil || failed.err.Retryable != dropped {
			t.Errorf("%s: %+v", text, failed.err)
		}
		secondTurn(t, m, s.msg)
		body := string(script.Requests()[2].Body)
		if got := !strings.Contains(body, "because"); got != dropped {
			t.Errorf("%s: dropped %v, want %v: %s", text, got, dropped, body)
		}
	}
	yes := true
	m, script := answers(t, Config{Compat: &Compat{RefusesReasoning: &yes}}, thought, looptest.Text("b"))
	secondTurn(t, m, collect(t, m, nil).msg)
	if body := string(script.Requests()[1].Body); strings.Contains(body, "because") {
		t.Errorf("sent although the endpoint is known to refuse it: %s", body)
	}
}

func secondTurn(t *testing.T, m *Model, answer *loop.AssistantMessage) seen {
	t.Helper()
	msgs := []loop.Message{loop.NewUserText("hi"), answer}
	for _, b := range answer.Content {
		if tc, ok := b.(*loop.ToolCall); ok {
			msgs = append(msgs, &loop.ToolResultMessage{ToolCallID: tc.ID, ToolName: tc.Name, Content: []loop.Block{&loop.Text{Text: "r"}}})
		}
	}
	return collect(t, m, &loop.Request{Messages: msgs})
}

// TestUnknownFieldsComeBack: what a provider adds to a call, and reasoning
// details, go back byte for byte.
func TestUnknownFieldsComeBack(t *testing.T) {
	const extra = `"extra_content":{"google": {"thought_signature":"A\u002fB=="}}`
	const encrypted = `{"type":"reasoning.encrypted","id":"x","data":"D\/E","format":"f"}`
	yes := true
	m, script := answers(t, Config{Compat: &Compat{ReasoningDetails: &yes}},
		stream(
			delta(`{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a\u00e4","index":0}]}`),
			delta(`{"reasoning":"b","reasoning_details":[{"type":"reasoning.text","text":"b","index":0}]}`),
			delta(`{"reasoning_details":[{"type":"reasoning.text","signature":"S","index":0}]}`),
			delta(`{"reasoning_details":[`+encrypted+`]}`),
			delta(`{"tool_calls":[{"index":0,"id":"x","type":"function",`+extra+`,"function":{"name":"t","arguments":"{}"}}]}`),
			`{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]"),
		stream(delta(`{"content":"a"}`), stop, "[DONE]"))
	s := collect(t, m, nil)
	secondTurn(t, m, s.msg)
	body := string(script.Requests()[1].Body)
	for _, want := range []string{extra, encrypted, `"text":"a\u00e4b"`, `"signature":"S"`, `"reasoning":"ab"`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not in %s", want, body)
		}
	}
	if n := strings.Count(body, `"D\/E"`); n != 1 {
		t.Errorf("the encrypted detail is there %d times: %s", n, body)
	}
}

func TestHalfAnArgumentNeverRun(t *testing.T) {
	for _, reason := range []string{"tool_calls", "stop", "length"} {
		for _, args := range []string{`{"n": 12`, `{"a":`, `hello`, `{'a':1}`, `{"a":1}{"b":2}`, "```json\n{}\n```"} {
			raw, _ := json.Marshal(args)
			s := ask(t, stream(delta(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"t","arguments":`+string(raw)+`}}]}`),
				`{"choices":[{"delta":{},"finish_reason":"`+reason+`"}]}`, "[DONE]"))
			c := s.calls()[0]
			if c.Incomplete == "" || !json.Valid(c.Arguments) || c.Arguments[0] != '{' {
				t.Errorf("%s, %s: %s %q", reason, args, c.Arguments, c.Incomplete)
			}
			if (reason == "length") != strings.Contains(c.Incomplete, "length") {
				t.Errorf("%s, %s: %q", reason, args, c.Incomplete)
			}
		}
	}
	s := ask(t, stream(delta(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"t","arguments":""}}]}`),
		`{"choices":[{"delta":{},"finish_reason":"length"}]}`, "[DONE]"))
	if s.calls()[0].Incomplete == "" {
		t.Error("a call whose arguments had not begun at the limit may run")
	}
}

func TestSplitSurrogatesAreJoined(t *testing.T) {
	s := ask(t, stream(delta(`{"content":"a\ud83d"}`), delta(`{"content":"\ude00b\ud83d"}`), delta(`{"content":"c\ud83d"}`), stop, "[DONE]"))
	if want := "a😀b\uFFFDc\uFFFD"; s.text() != want {
		t.Errorf("%q, want %q", s.text(), want)
	}
	joined := ""
	for _, u := range s.updates {
		if d, ok := strings.CutPrefix(u, "text_delta "); ok {
			joined += d
		}
	}
	if joined != s.text() {
		t.Errorf("the pieces are %q", joined)
	}
}

func TestBreakReleasesEverything(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	r := stream(delta(`{"content":"a"}`))
	r.Chunks = append(r.Chunks, looptest.Chunk{Wait: hold})
	m, _ := answers(t, Config{}, r)
	for u := range m.Stream(t.Context(), &loop.Request{}) {
		if u.Type == loop.UpdateTextDelta {
			break
		}
	}
	// goleak in TestMain sees what is left.
}

func TestAbortDuringStream(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	r := stream(delta(`{"content":"a","tool_calls":[{"index":0,"id":"x","function":{"name":"t","arguments":"{\"q\":\"he"}}]}`))
	r.Chunks = append(r.Chunks, looptest.Chunk{Wait: hold})
	m, _ := answers(t, Config{}, r)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var types []string
	var last *loop.AssistantMessage
	for u := range m.Stream(ctx, &loop.Request{}) {
		types = append(types, string(u.Type))
		last = u.Message
		if u.Type == loop.UpdateToolCallDelta {
			cancel()
		}
	}
	if got := strings.Join(types, " "); !strings.HasSuffix(got, "toolcall_delta text_end toolcall_end error") {
		t.Error(got)
	}
	if last.StopReason != loop.StopAborted || last.ErrorMessage != "Request was aborted" || last.Err != nil {
		t.Errorf("%+v", last)
	}
	if tc := last.Content[1].(*loop.ToolCall); string(tc.Arguments) != `{"q":"he"}` {
		t.Errorf("%s", tc.Arguments)
	}
}

func ptr(s string) *string { return &s }
