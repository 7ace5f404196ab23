package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// lines checks that each wanted text is in doctor's output.
func (r result) lines(t *testing.T, code int, wants ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code is %d, want %d", r.code, code)
	}
	text := strings.Join(strings.Fields(r.out), " ")
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not said", want)
		}
	}
	if t.Failed() {
		t.Logf("stdout:\n%s\nstderr:\n%s", r.out, r.err)
	}
}

func TestDoctorOfAGoodBroker(t *testing.T) {
	f := newFleet(t).startWorker(t)
	r := f.cli(t, "doctor")
	r.lines(t, exitOK,
		"ok broker nats://127.0.0.1", "ok version", "ok max_payload 1.0 MiB", "ok JetStream 7 streams",
		"ok stream AGENT_EVENTS: 0 messages", "ok clock", "AGENT_BELL/workers: 0 sessions waiting, 0 in progress",
		"ok permission may ask", "ok permission may work", "note disk")
	if strings.Contains(r.out, "FAIL") || strings.Contains(r.out, "readers") {
		t.Errorf("a good broker fails:\n%s", r.out)
	}
	// Nothing of it was stored.
	for _, name := range []string{"AGENT_INBOX", "AGENT_EVENTS", "AGENT_DLQ", "AGENT_BELL"} {
		s, err := f.JS.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.CachedInfo().State.LastSeq; n != 0 {
			t.Errorf("doctor left %d messages in %s", n, name)
		}
	}
}

func TestDoctorOfBadBrokers(t *testing.T) {
	locked := startServer(t, &server.Options{Username: "me", Password: "secret"})
	bare := startServer(t, &server.Options{})
	empty := startServer(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
	tests := []struct {
		name, url string
		wants     []string
	}{
		{"nobody there", "nats://127.0.0.1:1", []string{"FAIL broker no NATS answers", "→ start the broker, or name another with --server"}},
		{"wrong credentials", locked, []string{"FAIL broker", "refuses these credentials", "→ give --creds, --nkey"}},
		{"no JetStream", bare, []string{"ok broker", "FAIL JetStream not enabled", "→ start nats-server with -js"}},
		{"no streams", empty, []string{"ok JetStream", "FAIL streams missing: AGENT_INBOX", "→ a worker creates them"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := invoke(t, invocation{args: []string{"--server", tt.url, "doctor"}})
			r.lines(t, exitError, tt.wants...)
			if !strings.Contains(r.err, "1 check failed") {
				t.Errorf("stderr is %q", r.err)
			}
		})
	}
}

func TestDoctorFindsAChangedStreamAndAMissingConsumer(t *testing.T) {
	f := newFleet(t)
	s, err := f.JS.Stream(t.Context(), subjects.Names{}.BellStream())
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Discard, cfg.DiscardNewPerSubject = jetstream.DiscardOld, false
	if _, err := f.JS.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := f.JS.DeleteConsumer(t.Context(), subjects.Names{}.InboxStream(), subjects.ConsumerRinger); err != nil {
		t.Fatal(err)
	}
	f.cli(t, "doctor").lines(t, exitError,
		"FAIL streams stream AGENT_BELL exists with discard", "FAIL consumer AGENT_INBOX/ringer", "no worker asks for more")
}

func TestDoctorNeverShowsPasswords(t *testing.T) {
	r := invoke(t, invocation{args: []string{"--server", "nats://me:planted-secret@127.0.0.1:1", "doctor"}})
	if strings.Contains(r.out+r.err, "planted-secret") {
		t.Errorf("the password is shown: %s%s", r.out, r.err)
	}
}

// sse is a raw stream.
func sse(lines ...string) *looptest.Response {
	raw := "data: " + strings.Join(lines, "\n\ndata: ") + "\n\n"
	return &looptest.Response{
		Headers: map[string]string{"Content-Type": "text/event-stream"}, Chunks: []looptest.Chunk{{Raw: &raw}},
	}
}

func doctorOf(t *testing.T, answer looptest.AnswerFunc) result {
	t.Helper()
	script := looptest.NewScript()
	script.Otherwise(answer)
	t.Cleanup(func() { script.Close() })
	return invoke(t, invocation{args: []string{"doctor", "--no-nats", "--base-url", script.BaseURL(), "--model", "m"}})
}

func TestDoctorOfAPlainEndpoint(t *testing.T) {
	doctorOf(t, func(r *looptest.Request) looptest.Answer {
		body := string(r.Body)
		switch {
		case strings.Contains(body, "no-such-model"):
			return looptest.Reply{Status: 404, Text: "no such model"}
		case strings.Contains(body, `"tools"`):
			return looptest.Calls(looptest.Call{Name: "weather"}, looptest.Call{Name: "population"})
		case strings.Contains(body, "stream_options"):
			return looptest.Reply{Text: "hi", Usage: &looptest.Usage{Input: 1, Output: 1}}
		}
		return looptest.Text("hi")
	}).lines(t, exitOK, "ok endpoint", "profile generic", "ok stream text, finish_reason stop, [DONE]", "ok usage once",
		"ok roles system and developer", "ok limit max_completion_tokens", "ok tools 2 calls in one answer", "ok errors 404 with a message")
}

// A server that refuses what is new, joins calls, and counts in every chunk.
func TestDoctorOfAnOldEndpoint(t *testing.T) {
	call := `{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"%s","function":{"name":"%s","arguments":"{}"}}]}}]}`
	doctorOf(t, func(r *looptest.Request) looptest.Answer {
		body := string(r.Body)
		switch {
		case strings.Contains(body, "stream_options"):
			return sse(`{"error":null,"usage":{"total_tokens":1},"choices":[{"delta":{"content":"h"}}]}`,
				`{"error":null,"usage":{"total_tokens":2},"choices":[{"delta":{"content":"i"},"finish_reason":"stop"}]}`, "[DONE]")
		case strings.Contains(body, "developer"), strings.Contains(body, "max_completion_tokens"):
			return looptest.Reply{Status: 400, Text: "unknown value"}
		case strings.Contains(body, `"tools"`):
			return sse(fmt.Sprintf(call, "a", "weather"), fmt.Sprintf(call, "b", "population"), "[DONE]")
		}
		return sse(`{"error":null,"choices":[{"delta":{"reasoning_content":"hm","content":"hi"}}]}`)
	}).lines(t, exitOK, "note stream ends without finish_reason and [DONE]", "compat.no_terminal: true", `"error": null`,
		"comes in reasoning_content", "note usage in 2 chunks", "note roles developer is refused", "supports_developer_role: false",
		"ok limit max_tokens is taken", "note tools two calls share one index", "note errors any model name is taken")
}

// A gateway that gathers the answer and reports errors inside a 200.
func TestDoctorOfABrokenGateway(t *testing.T) {
	doctorOf(t, func(r *looptest.Request) looptest.Answer {
		switch body := string(r.Body); {
		case strings.Contains(body, "stream_options"):
			return looptest.Reply{Status: 400, Text: "stream_options?"}
		case strings.Contains(body, "no-such-model"):
			return sse(`{"error":{"message":"no such model"}}`, "[DONE]")
		case strings.Contains(body, `"tools"`):
			return looptest.Reply{Status: 400, Text: "no tools here"}
		}
		return &looptest.Response{Status: 200, Headers: map[string]string{"Content-Type": "application/json"}, Body: []byte(`{"choices":[]}`)}
	}).lines(t, exitError, "FAIL stream the answer is application/json", "supports_usage_in_streaming: false",
		"FAIL tools refused: 400 no tools here", "note errors come inside a 200")
}

func TestDoctorOfAnEndpointThatIsNotThere(t *testing.T) {
	invoke(t, invocation{args: []string{"doctor", "--no-nats", "--base-url", "http://127.0.0.1:1/v1"}}).
		lines(t, exitError, "FAIL endpoint http://127.0.0.1:1/v1", "→ is the URL right")
	doctorOf(t, func(*looptest.Request) looptest.Answer { return looptest.Reply{Status: 401, Text: "no"} }).
		lines(t, exitError, "refuses the key: 401", "--api-key-env")
}
