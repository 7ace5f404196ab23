package wire_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/wire"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/worker"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(remoteEnv); url != "" {
		serveRemote(url)
	}
	if away := os.Getenv(mcpEnv); away != "" {
		serveMCP(away)
	}
	if os.Getenv(workerEnv) != "" {
		serveWorker()
	}
	goleak.VerifyTestMain(m)
}

// load reads a configuration that is nobody's but the test's.
func load(t *testing.T, yaml string) *config.Config {
	t.Helper()
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "PI_") || strings.HasPrefix(name, "OPENAI_") {
			t.Setenv(name, "")
		}
	}
	path := filepath.Join(t.TempDir(), "pi-worker.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PI_CONFIG", path)
	cfg, err := config.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func agents(t *testing.T, yaml string) *wire.Agents {
	t.Helper()
	a := wire.NewAgents(load(t, yaml), slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

const twoAgents = `
worker: {workspace: {mode: temp}}
agents:
  default: {model: m, base_url: "http://127.0.0.1:1/v1"}
  coder:
    model: big
    models: [small]
    base_url: "http://127.0.0.1:1/v1"
    tools: [read, ls]
    limits: {turns: 10, wall_time: 1m}
    max_reasoning: low
`

func TestPromptGetsNoMoreThanItsProfile(t *testing.T) {
	a := agents(t, twoAgents)
	for _, c := range []struct {
		name string
		req  worker.AgentRequest
		want error
	}{
		{"unknown agent", worker.AgentRequest{Name: "nobody"}, worker.ErrUnknownAgent},
		{"unknown model", worker.AgentRequest{Name: "coder", Model: "huge"}, worker.ErrNotAllowed},
		{"more reasoning", worker.AgentRequest{Name: "coder", ThinkingLevel: "high"}, worker.ErrNotAllowed},
		{"another tool", worker.AgentRequest{Name: "coder", Extra: extra(t, `{"tools":["bash"]}`)}, worker.ErrNotAllowed},
		{"broken options", worker.AgentRequest{Extra: extra(t, `{"tools":7}`)}, worker.ErrNotAllowed},
		{"less than no limit", worker.AgentRequest{Extra: extra(t, `{"limits":{"cost":-0.2}}`)}, worker.ErrNotAllowed},
		{"less than no time", worker.AgentRequest{Extra: extra(t, `{"limits":{"wallTime":"-1s"}}`)}, worker.ErrNotAllowed},
		{"fewer than no tokens", worker.AgentRequest{Extra: extra(t, `{"maxTokens":-1}`)}, worker.ErrNotAllowed},
		{"broken time", worker.AgentRequest{Extra: extra(t, `{"limits":{"wallTime":"soon"}}`)}, worker.ErrNotAllowed},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.req.Session = "s1"
			if _, err := a.Agent(t.Context(), c.req); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func extra(t *testing.T, s string) (m map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPromptNarrowsItsProfile(t *testing.T) {
	a := agents(t, twoAgents)
	agent, err := a.Agent(t.Context(), worker.AgentRequest{
		Session: "s1", Name: "coder", Model: "small",
		Extra: extra(t, `{"tools":["ls"],"limits":{"turns":99,"toolCalls":3,"wallTime":"10s","treeTokens":500,"treeCost":0.5}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = agent.Close() }()
	if agent.Name != "coder" || agent.Model.Info().ID != "small" || len(agent.Tools) != 1 || agent.Tools[0].Spec().Name != "ls" {
		t.Errorf("got agent %s, model %s, %d tools", agent.Name, agent.Model.Info().ID, len(agent.Tools))
	}
	l := agent.Limits
	if l.Turns != 10 || l.ToolCalls != 3 || l.WallTime != 10*time.Second || l.TreeTokens != 500 || l.TreeCost != 0.5 {
		t.Errorf("limits %+v: want the stricter of both", l)
	}
}

func TestTemporaryWorkspaceLivesAsLongAsTheClaim(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	a := agents(t, twoAgents)
	cfg := a.Worker(nil, "")
	folders := func() (names []string) {
		entries, err := os.ReadDir(tmp)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), "pi-worker-s1-") {
				names = append(names, e.Name())
			}
		}
		return names
	}
	for range 2 {
		agent, err := a.Agent(t.Context(), worker.AgentRequest{Session: "s1", Name: "coder"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := agent.Tools[0].Execute(t.Context(), loop.Call{Args: []byte(`{"path": "none"}`)}, nil); err == nil {
			t.Error("a file that is not there was read")
		}
		if err := agent.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(folders()); n != 1 {
		t.Fatalf("%d folders after two runs of one claim, want the same one", n)
	}
	cfg.Left("s1")
	if f := folders(); f != nil {
		t.Errorf("%q stayed after the claim", f)
	}
}

func TestSecretsOfTheConfigurationAreMasked(t *testing.T) {
	t.Setenv("MY_KEY", "")
	a := agents(t, `
nats: {token: broker-token}
agents:
  default: {model: m, base_url: "http://127.0.0.1:1/v1", api_key_env: MY_KEY, headers: {X-Org: header-secret}}
`)
	t.Setenv("MY_KEY", "model-key")
	got := a.Worker(nil, "").Secrets
	for _, want := range []string{"broker-token", "header-secret", "model-key"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s would not be masked", want)
		}
	}
}

func TestConnectSaysWhatIsWrong(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	if _, err := wire.Connect(config.NATS{URL: "nats://127.0.0.1:1"}, "test", log); !errors.Is(err, wire.ErrUnreachable) {
		t.Errorf("got %v, want ErrUnreachable", err)
	}
	if _, err := wire.Connect(config.NATS{URL: "nats://127.0.0.1:1", NKey: "/no/such/file"}, "test", log); !errors.Is(err, wire.ErrCredentials) {
		t.Errorf("got %v, want ErrCredentials", err)
	}
	e := natstest.Start(t, nil)
	nc, err := wire.Connect(config.NATS{URL: config.URL(e.Server.ClientURL())}, "test", log)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

// TestReasoningIsAPropertyOfTheModel: a model that can reason is known as one
// also where it shall not, so that it is told; its limits reach the provider.
func TestReasoningIsAPropertyOfTheModel(t *testing.T) {
	a := agents(t, `
agents:
  default: {model: plain-model, base_url: "http://127.0.0.1:1/v1"}
  known: {model: openai/gpt-5-mini, base_url: "http://127.0.0.1:1/v1", max_tokens: 512, input: [text]}
  chat: {model: gpt-5-chat, base_url: "http://127.0.0.1:1/v1"}
  asked: {model: mystery, base_url: "http://127.0.0.1:1/v1", reasoning: low}
  told: {model: mystery, base_url: "http://127.0.0.1:1/v1", reasoning_model: true, compaction: false, context_window: 9000}
  denied: {model: gpt-5-mini, base_url: "http://127.0.0.1:1/v1", reasoning_model: false}
`)
	for name, want := range map[string]bool{"default": false, "known": true, "chat": false, "asked": true, "told": true, "denied": false} {
		agent, err := a.Agent(t.Context(), worker.AgentRequest{Session: "s", Name: name})
		if err != nil {
			t.Fatal(err)
		}
		info := agent.Model.Info()
		if info.Reasoning != want {
			t.Errorf("%s: reasoning %v, want %v", name, info.Reasoning, want)
		}
		if name == "known" && (info.MaxTokens != 512 || !slices.Equal(info.Input, []string{"text"}) || agent.Options.Reasoning != "") {
			t.Errorf("known: %+v, level %q", info, agent.Options.Reasoning)
		}
		if on := agent.Compaction != nil; on != (name != "told") {
			t.Errorf("%s: compaction %v", name, on)
		}
		if err := agent.Close(); err != nil {
			t.Error(err)
		}
	}
}
