package openai

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

func TestHTTPErrorsAreTyped(t *testing.T) {
	type header = map[string]string
	for name, c := range map[string]struct {
		status    int
		headers   header
		body      string
		class     string
		retryable bool
		text      string
		after     time.Duration
	}{
		"object":            {400, nil, `{"error":{"message":"Invalid"}}`, "client", false, "400 Invalid", 0},
		"string":            {404, nil, `{"error":"no model"}`, "client", false, `404 "no model"`, 0},
		"message object":    {400, nil, `{"error":{"message":{"a": 1}}}`, "client", false, `400 {"a":1}`, 0},
		"no error key":      {422, nil, `{"detail":"bad"}`, "client", false, `422 {"detail":"bad"}`, 0},
		"behind a router":   {502, nil, `{"error":{"message":"Provider","metadata":{"raw":"it died"}}}`, "server", true, "502 Provider\nit died", 0},
		"plain text":        {404, nil, `"404 page not found"`, "client", false, "404 404 page not found", 0},
		"empty":             {503, nil, `""`, "overloaded", true, "503 status code (no body)", 0},
		"key":               {401, nil, `{"error":{"message":"Incorrect key"}}`, "auth", false, "401 Incorrect key", 0},
		"timeout":           {408, nil, `{"error":{"message":"x"}}`, "server", true, "408 x", 0},
		"conflict":          {409, nil, `{"error":{"message":"x"}}`, "server", true, "409 x", 0},
		"rate, ms":          {429, header{"retry-after-ms": "1500", "retry-after": "9"}, `{"error":{"message":"x"}}`, "rate_limited", true, "429 x", 1500 * time.Millisecond},
		"rate, seconds":     {429, header{"retry-after": "0.5"}, `{"error":{"message":"x"}}`, "rate_limited", true, "429 x", 500 * time.Millisecond},
		"told not to retry": {500, header{"x-should-retry": "false"}, `{"error":{"message":"x"}}`, "server", false, "500 x", 0},
		"told to retry":     {400, header{"x-should-retry": "true"}, `{"error":{"message":"x"}}`, "client", true, "400 x", 0},
		"context":           {400, nil, `{"error":{"message":"m","code":"context_length_exceeded"}}`, "context_overflow", false, "400 m", 0},
	} {
		m, script := answers(t, Config{}, &looptest.Response{Status: c.status, Headers: c.headers, Body: json.RawMessage(c.body)})
		s := collect(t, m, nil)
		e := s.err
		if e == nil || e.Class != c.class || e.Retryable != c.retryable || s.msg.ErrorMessage != c.text || e.Status != c.status || e.RetryAfter != c.after || e.MidStream {
			t.Errorf("%s: %+v, %q", name, e, s.msg.ErrorMessage)
		}
		if !slices.Equal(s.updates, []string{"error"}) || len(script.Requests()) != 1 {
			t.Errorf("%s: %q, %d requests", name, s.updates, len(script.Requests()))
		}
	}
}

func TestRefusedUsageIsNotAskedForAgain(t *testing.T) {
	refusal := &looptest.Response{Status: 400, Body: json.RawMessage(`{"error":{"message":"Unrecognized request argument supplied: stream_options"}}`)}
	m, script := answers(t, Config{}, refusal, looptest.Text("x"), refusal)
	if s := collect(t, m, nil); s.err == nil || !s.err.Retryable {
		t.Errorf("%+v", s.err)
	}
	collect(t, m, nil)
	r := script.Requests()
	if !strings.Contains(string(r[0].Body), "stream_options") || strings.Contains(string(r[1].Body), "stream_options") {
		t.Errorf("%s\n%s", r[0].Body, r[1].Body)
	}
	if s := collect(t, m, nil); s.err.Retryable {
		t.Error("the same refusal is retried for ever")
	}
}

// TestConnectionIsUsedAgain: the end of the body is read after [DONE], so that
// the next request needs no new connection.
func TestConnectionIsUsedAgain(t *testing.T) {
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+delta(`{"content":"a"}`)+"\n\ndata: "+stop+"\n\ndata: [DONE]\n\n")
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	m := mustModel(t, Config{BaseURL: server.URL})
	for range 5 {
		collect(t, m, nil)
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections for 5 requests", n)
	}
}

func TestRetryAfterDate(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
		"": 0, "soon": 0, "-1": 0, "1e300": 365 * 24 * time.Hour,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

func TestOverflowTexts(t *testing.T) {
	seen := map[string]bool{}
	for _, text := range []string{
		"This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
		"Your input exceeds the context window of this model. Please adjust your input and try again.",
		"the request exceeds the available context size. try increasing the context size",
		"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
		"The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
		"This model's maximum prompt length is 131072 but the request contains 537812 tokens",
		"Please reduce the length of the messages or completion.",
		"prompt is too long: 213462 tokens > 200000 maximum",
		"prompt too long; exceeded max context length by 4 tokens",
		"tokens to keep from the initial prompt is greater than the context length",
		"Your request exceeded model token limit: 8192",
		"Prompt contains 40000 tokens ... too large for model with 32768 maximum context length",
		"invalid params, context window exceeds limit (2013)",
		"prompt token count of 130000 exceeds the limit of 128000",
		"input is too long for requested model",
		"request (9000 tokens) exceeds the available context size (8192 tokens): exceed_context_size_error",
		"The prompt is longer than the model's context length",
		"Error code: context_length_exceeded",
	} {
		if !overflows(text, nil) {
			t.Errorf("not recognised: %s", text)
		}
		for _, known := range overflowTexts {
			if strings.Contains(strings.ToLower(text), known) {
				seen[known] = true
			}
		}
	}
	for _, known := range overflowTexts {
		if !seen[known] {
			t.Errorf("no sample for %q", known)
		}
	}
	for _, text := range []string{"Rate limit reached for tokens per min", "max_tokens is too large: 999999", "Invalid 'messages'."} {
		if overflows(text, nil) {
			t.Errorf("recognised: %s", text)
		}
	}
}

func TestKeyNeverAppears(t *testing.T) {
	const key = "sk-secret-0123456789"
	for _, r := range []*looptest.Response{
		{Status: 401, Body: json.RawMessage(`{"error":{"message":"Incorrect API key provided: ` + key + `"}}`)},
		{Status: 401, Body: json.RawMessage(`"no such key ` + key + `"`)},
		stream(`{"error":{"message":"bad key ` + key + `","type":"x"}}`),
	} {
		m, _ := answers(t, Config{APIKey: key}, r)
		s := collect(t, m, nil)
		if all := s.msg.ErrorMessage + string(s.err.Raw) + s.err.Error(); strings.Contains(all, key) || !strings.Contains(all, "***") {
			t.Errorf("%s", all)
		}
	}
}

func TestNoConnection(t *testing.T) {
	m, script := answers(t, Config{APIKey: "test"}, &looptest.Response{CutBeforeHeaders: true})
	s := collect(t, m, nil)
	script.Close()
	for range 2 {
		if s.err == nil || s.err.Class != "network" || !s.err.Retryable || !strings.HasPrefix(s.msg.ErrorMessage, "Connection error") {
			t.Errorf("%+v", s.err)
		}
		s = collect(t, m, nil)
	}
}

// inBubble runs f with a model of a server that answers with r after the
// headers' delay and then says nothing; time passes by itself.
func inBubble(t *testing.T, limits Timeouts, r *looptest.Response, f func(*testing.T, *Model)) {
	synctest.Test(t, func(t *testing.T) {
		script := looptest.NewMemoryScript(r)
		defer script.Close()
		m, err := New(Config{BaseURL: script.BaseURL(), HTTPClient: script.Client(), Timeouts: limits, Info: loop.ModelInfo{ID: "m"}})
		if err != nil {
			t.Fatal(err)
		}
		f(t, m)
	})
}

func TestSilenceIsRetryable(t *testing.T) {
	silent := func(data ...string) *looptest.Response {
		r := stream(data...)
		r.Chunks = append(r.Chunks, looptest.Chunk{DelayMS: 1e9})
		return r
	}
	half := delta(`{"content":"half"}`)
	slow := stream(half)
	slow.Chunks = append(slow.Chunks, looptest.Chunk{DelayMS: 100_000}, looptest.Chunk{Raw: ptr(": still here\n\n")},
		looptest.Chunk{DelayMS: 100_000}, looptest.Chunk{Raw: ptr("data: " + stop + "\n\n")})
	for name, c := range map[string]struct {
		limits Timeouts
		r      *looptest.Response
		class  string
		after  time.Duration
	}{
		"no headers":            {Timeouts{}, &looptest.Response{HeaderDelayMS: 1e9}, "timeout_first_byte", 150 * time.Second},
		"no headers, own limit": {Timeouts{FirstByte: time.Second}, &looptest.Response{HeaderDelayMS: 1e9}, "timeout_first_byte", time.Second},
		"nothing after headers": {Timeouts{}, silent(), "timeout_silence", 150 * time.Second},
		"silence in the answer": {Timeouts{Silence: time.Minute}, silent(half), "timeout_silence", time.Minute},
		"comments are life":     {Timeouts{}, slow, "", 200 * time.Second},
		"the whole takes long":  {Timeouts{Total: 110 * time.Second}, slow, "timeout_total", 110 * time.Second},
		"silence after the end": {Timeouts{Silence: time.Minute}, silent(half, stop), "", time.Minute},
		"no limit":              {Timeouts{Silence: -1, Total: time.Hour}, silent(half), "timeout_total", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.limits, c.r, func(t *testing.T, m *Model) {
				begin := time.Now()
				s := collect(t, m, nil)
				if took := time.Since(begin); took < c.after || took > c.after+time.Second {
					t.Errorf("took %v", took)
				}
				switch {
				case c.class == "" && s.err != nil, c.class != "" && (s.err == nil || s.err.Class != c.class || !s.err.Retryable):
					t.Errorf("%+v", s.err)
				}
			})
		})
	}
}

func TestSlowConsumerIsNotSilence(t *testing.T) {
	r := stream(delta(`{"content":"a"}`), delta(`{"content":"b"}`), stop, "[DONE]")
	inBubble(t, Timeouts{Silence: time.Minute}, r, func(t *testing.T, m *Model) {
		for u := range m.Stream(t.Context(), &loop.Request{}) {
			if u.Type == loop.UpdateTextDelta {
				time.Sleep(time.Hour) // passes at once in a bubble
			}
			if u.Type == loop.UpdateError {
				t.Error(u.Message.ErrorMessage)
			}
		}
	})
}

func TestAbortWorksAtEveryMoment(t *testing.T) {
	for name, c := range map[string]struct {
		r    *looptest.Response
		when time.Duration
		text string
	}{
		"before the start":         {stream(), 0, "Request was aborted."},
		"waiting for headers":      {&looptest.Response{HeaderDelayMS: 1e6}, time.Second, "Request was aborted."},
		"waiting for a first byte": {&looptest.Response{Chunks: []looptest.Chunk{{DelayMS: 1e9}}}, time.Second, "Request was aborted"},
		"in the middle": {&looptest.Response{Chunks: []looptest.Chunk{
			{Raw: ptr("data: " + delta(`{"content":"half"}`) + "\n\n")}, {DelayMS: 1e9}}}, time.Second, "Request was aborted"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Timeouts{}, c.r, func(t *testing.T, m *Model) {
				ctx, cancel := context.WithTimeout(t.Context(), c.when)
				defer cancel()
				begin := time.Now()
				var msg *loop.AssistantMessage
				for u, err := range m.Stream(ctx, &loop.Request{}) {
					if msg = u.Message; err != nil {
						t.Fatal(err)
					}
				}
				if msg.StopReason != loop.StopAborted || msg.ErrorMessage != c.text || time.Since(begin) > c.when+100*time.Millisecond {
					t.Errorf("%s %q after %v", msg.StopReason, msg.ErrorMessage, time.Since(begin))
				}
			})
		})
	}
}
