package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// planted are secrets, each given to the worker in another way.
var planted = map[string]string{
	"key by variable":    "pl4nted-key-of-variable",
	"key by file":        "pl4nted-key-of-file",
	"NATS password":      "pl4nted-nats-password",
	"header":             "pl4nted-header",
	"collector's header": "pl4nted-collector",
	`key with a "quote"`: `pl4nted-"quoted"-key`,
}

// haul is everything that a worker gave out, by where it was found.
type haul struct {
	mu   sync.Mutex // guards seen
	seen map[string][]byte
}

func (h *haul) add(where string, b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[where] = append(append(h.seen[where], b...), '\n')
}

func (h *haul) has(where, text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Contains(h.seen[where], []byte(text))
}

// search looks for every planted secret, as text and as JSON has it.
func (h *haul) search(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for where, b := range h.seen {
		for what, value := range planted {
			for _, form := range []string{value, strings.ReplaceAll(value, `"`, `\"`), strings.ReplaceAll(value, `"`, `\\\"`)} {
				if i := bytes.Index(b, []byte(form)); i >= 0 {
					t.Errorf("the %s is in %s: …%s…", what, where, b[max(0, i-200):min(len(b), i+100)])
					break
				}
			}
		}
	}
}

// Nothing that a worker gives out has a secret: events, dead letters, blobs,
// presence, log, metrics, traces, requests to the model, its commands' output.
func TestPlantedSecretsAreNowhere(t *testing.T) {
	plain(t)
	h := &haul{seen: map[string][]byte{}}
	url := bare(t, &server.Options{JetStream: true, StoreDir: t.TempDir(), Username: "joe", Password: planted["NATS password"]})
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		h.add("traces", b)
	}))
	defer collector.Close()
	script := looptest.NewScript()
	defer func() { _ = script.Close() }()
	dir := t.TempDir()
	keyFile, config := filepath.Join(dir, "key"), filepath.Join(dir, "pi-worker.yaml")
	write(t, keyFile, planted["key by file"]+"\n")
	write(t, config, fmt.Sprintf(`
nats: {url: %q, user: joe}
http: {listen: "127.0.0.1:0", debug_listen: "127.0.0.1:0"}
log: {level: debug, format: json}
trace: {content: true}
defaults:
  base_url: %s
  headers: {X-Team: %s}
  tools: [bash, read]
  bash: {private: false, network: true}
  retry: {base_delay: 1ms}
  limits: {turns: 8}
agents:
  default: {api_key_env: MY_MODEL_KEY}
  filed: {api_key_file: %s}
  quoted: {api_key_env: MY_QUOTED_KEY}
`, url, script.BaseURL(), planted["header"], keyFile))
	script.Otherwise(func(r *looptest.Request) looptest.Answer { return leaky(r, keyFile, config) })
	script.OnRequest(func(r *looptest.Request) { h.add("requests to the model", r.Body) })

	env := append(os.Environ(), asWorker+"=1", "PI_CONFIG="+config,
		"MY_MODEL_KEY="+planted["key by variable"], "MY_QUOTED_KEY="+planted[`key with a "quote"`],
		"PI_NATS_PASSWORD="+planted["NATS password"],
		"OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20"+planted["collector's header"],
	)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"config"}, {"config", "--json"}, {"tools"}, {"--no-such-flag"}} {
		cmd := exec.CommandContext(t.Context(), self, args...)
		cmd.Env = env
		out, _ := cmd.CombinedOutput() // some of them fail, and say why
		h.add("pi-worker "+strings.Join(args, " "), out)
	}
	var log screen
	cmd := exec.CommandContext(t.Context(), self, "run")
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	eventually(t, func() bool { return strings.Contains(log.String(), "worker ready") }, log.String)

	nc, err := nats.Connect(url, nats.UserInfo("joe", planted["NATS password"]))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	store, err := session.Open(t.Context(), nc, subjects.Names{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for id, agent := range map[string]string{"s1": "default", "s2": "filed", "s3": "quoted", "s4": "nobody"} {
		text := "hello " + id
		if id == "s2" {
			text += strings.Repeat(" large", 300_000) // travels as a blob
		}
		in := &session.Input{Message: loop.NewUserText(text), Options: session.InputOptions{Agent: agent}}
		if _, err := store.Publish(t.Context(), id, subjects.KindPrompt, in); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"s1", "s2", "s3", "s4"} {
		untilSettled(t, store, id, &log)
	}
	for _, m := range []struct{ what, path string }{
		{"http.listen", "/metrics"}, {"http.listen", "/readyz"}, {"http.debug_listen", "/debug/pprof/goroutine?debug=2"}, {"http.debug_listen", "/log/level"},
	} {
		_, text := ask(t, "GET", "http://"+addressIn(t, log.String(), m.what)+m.path, "")
		h.add(m.path, []byte(text))
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended = true
	if err := cmd.Wait(); err != nil {
		t.Errorf("the worker ended with %v:\n%s", err, log.String())
	}
	h.add("log", []byte(log.String()))
	emptyStreams(t, nc, h)

	// What was to leak was there, and something stands in its place.
	for _, want := range []struct{ where, text string }{
		{"stream AGENT_EVENTS", "[secret]"}, {"stream AGENT_EVENTS", "X-Team: [secret]"}, {"stream AGENT_EVENTS", "bad key"},
		{"stream AGENT_DLQ", "hello s4"}, {"stream OBJ_AGENT_BLOBS", "large large"}, {"stream KV_AGENT_SESSIONS", "s1"},
		{"requests to the model", "X-Team: [secret]"}, {"log", "model request failed"}, {"log", "[secret]"}, {"traces", "[secret]"}, {"log", `"trace":"`},
		{"traces", "execute_tool bash"}, {"traces", "hello s1"}, {"/metrics", "pi_worker_tool_errors_total"}, {"pi-worker config", "nats.password"},
	} {
		if !h.has(want.where, want.text) {
			t.Errorf("%s lacks %q", want.where, want.text)
		}
	}
	h.search(t)
}

// leaky is a model that makes the worker say all that it knows, at an endpoint
// that repeats the request's headers in its errors.
func leaky(r *looptest.Request, keyFile, config string) looptest.Answer {
	echo := fmt.Sprintf("bad key %s for %s", r.Header.Get("Authorization"), r.Header.Get("X-Team"))
	bash := func(command string) looptest.Answer {
		return looptest.Calls(looptest.Call{ID: fmt.Sprint("c", r.ToolResults()), Name: "bash", Args: fmt.Sprintf(`{"command":%q}`, command)})
	}
	switch {
	case r.Number == 1:
		return looptest.Reply{Status: http.StatusInternalServerError, Text: echo}
	case r.ToolResults() == 0:
		return bash("env; cat /proc/[0-9]*/environ | tr '\\000' '\\n'; cat " + keyFile + " " + config)
	case r.ToolResults() == 1:
		return bash("k=$(cat " + keyFile + "); printf %s \"${k%-file}\"; sleep 0.5; printf %s -file; echo; exit 3")
	}
	return looptest.Reply{Status: http.StatusUnauthorized, Text: echo}
}

func untilSettled(t *testing.T, store *session.Store, id string, log *screen) {
	t.Helper()
	for rec, err := range store.Tail(t.Context(), id, session.From{Start: true, Wait: true}) {
		if err != nil {
			t.Fatalf("%s: %v\n%s", id, err, log)
		}
		for _, ev := range rec.Events {
			if _, ok := ev.(*loop.AgentSettled); ok {
				return
			}
		}
	}
}

// addressIn finds where the worker listens, in a log of JSON.
func addressIn(t *testing.T, log, what string) string {
	t.Helper()
	_, rest, ok := strings.Cut(log, `"for":"`+what+`","address":"`)
	addr, _, ok2 := strings.Cut(rest, `"`)
	if !ok || !ok2 {
		t.Fatalf("the log has no address of %s:\n%s", what, log)
	}
	return addr
}

// emptyStreams takes every message of every stream. The inbox is the senders'.
func emptyStreams(t *testing.T, nc *nats.Conn, h *haul) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	streams := js.ListStreams(t.Context())
	for info := range streams.Info() {
		stream, err := js.Stream(t.Context(), info.Config.Name)
		if err != nil {
			t.Fatal(err)
		}
		for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; seq++ { // 0 and 0 before the first message
			m, err := stream.GetMsg(t.Context(), seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // deleted
			}
			if err != nil {
				t.Fatal(err)
			}
			h.add("stream "+info.Config.Name, m.Data)
			h.add("stream "+info.Config.Name, fmt.Append(nil, m.Header))
		}
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
