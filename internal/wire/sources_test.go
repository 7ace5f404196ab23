package wire_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/internal/wire"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
	"github.com/pi-worker/pi-worker/tools"
	"github.com/pi-worker/pi-worker/tools/natstool"
	"github.com/pi-worker/pi-worker/worker"
)

// remoteEnv makes the test binary a service that offers a tool at this NATS.
const remoteEnv = "WIRE_TEST_REMOTE_TOOL"

func serveRemote(url string) {
	nc, err := nats.Connect(url)
	if err != nil {
		panic(err)
	}
	tool, err := tools.Func("shout", "Shout a text.", func(_ context.Context, call loop.Call, in struct {
		Text string `json:"text"`
	}) (loop.ToolResult, error) {
		return loop.TextResult(strings.ToUpper(in.Text) + " " + call.Key), nil
	}, nil)
	if err != nil {
		panic(err)
	}
	if _, err := natstool.Serve(nc, natstool.Config{Name: "shouting"}, tool); err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	select {}
}

// startRemote runs the service in a process of its own.
func startRemote(t *testing.T, url string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), remoteEnv+"="+url), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if n, err := out.Read(make([]byte, 6)); n != 6 || err != nil {
		t.Fatal("the service is not ready", err)
	}
}

// startMCP is an MCP server over HTTP.
func startMCP(t *testing.T) (url string) {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add."},
		func(_ context.Context, _ *mcp.CallToolRequest, in struct {
			A int `json:"a"`
			B int `json:"b"`
		}) (*mcp.CallToolResult, map[string]int, error) {
			return nil, map[string]int{"sum": in.A + in.B}, nil
		})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(web.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return web.URL
}

func outsideConfig(base, mcpURL string) string {
	return `
worker: {workspace: {mode: temp}}
nats: {ack_wait: 2s}
mcp:
  sums: {url: "` + mcpURL + `", headers: {X-Token: secret-header}, timeout: 10s}
agents:
  default:
    model: m
    base_url: "` + base + `"
    tools: [ls]
    mcp_tools: ["sums_*"]
    remote_tools: [shout, "none_*"]
    approval: {ask: ["ls(never)"], policy: deny_after, after: 10m}
`
}

func TestOneSessionUsesBuiltInRemoteAndMCPTools(t *testing.T) {
	e := natstest.Start(t, nil)
	startRemote(t, e.Server.ClientURL())
	script := looptest.NewScript(looptest.Calls(
		looptest.Call{Name: "ls", Args: `{}`}, looptest.Call{Name: "shout", Args: `{"text":"hi"}`},
		looptest.Call{Name: "sums_add", Args: `{"a":2,"b":3}`},
	), looptest.Text("done"))
	defer script.Close()
	cfg := load(t, outsideConfig(script.BaseURL(), startMCP(t)))
	if err := subjects.Ensure(t.Context(), e.JS, subjects.Names{}, wire.EnsureOptions(cfg)); err != nil {
		t.Fatal(err)
	}
	a := wire.NewAgents(cfg, slog.New(slog.DiscardHandler))
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := a.Start(t.Context(), e.NC); err != nil {
		t.Fatal(err)
	}
	wantList(t, a)
	w, err := worker.New(t.Context(), a.Worker(e.NC, ""))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	results := run(t, e, "s1")
	if results["shout"] != "HI s1/1/0/1" || results["sums_add"] != `{"sum":5}` || results["ls"] == "" {
		t.Errorf("results %q", results)
	}
}

// run prompts a session and gives its tool results by tool.
func run(t *testing.T, e *natstest.Env, id string) map[string]string {
	t.Helper()
	store, err := session.Open(t.Context(), e.NC, subjects.Names{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Publish(t.Context(), id, subjects.KindPrompt, &session.Input{Message: loop.NewUserText("go")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results := map[string]string{}
	for rec, err := range store.Tail(ctx, id, session.From{Start: true, Wait: true}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range rec.Events {
			switch ev := ev.(type) {
			case *loop.ToolExecutionEnd:
				for _, b := range ev.Result.Content {
					if text, ok := b.(*loop.Text); ok {
						results[ev.ToolName] += text.Text
					}
				}
			case *loop.AgentSettled:
				return results
			}
		}
	}
	return results
}

func wantList(t *testing.T, a *wire.Agents) {
	t.Helper()
	list, missing, err := a.Tools("")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, info := range list {
		got = append(got, info.Spec.Name+" from "+info.Origin)
		if !json.Valid(info.Spec.Parameters) {
			t.Errorf("%s has no schema", info.Spec.Name)
		}
	}
	want := []string{"ls from built in", "sums_add from MCP server sums", "shout from NATS service shouting 0.0.1 on tools.shout"}
	if !slices.Equal(got, want) || !slices.Equal(missing, []string{"none_*"}) {
		t.Errorf("tools %q, missing %q", got, missing)
	}
	if !slices.Equal(list[0].Asks, []string{"ls(never)"}) {
		t.Errorf("ls asks %q", list[0].Asks)
	}
}

func TestPromptNarrowsToolsOfOthers(t *testing.T) {
	p, err := load(t, outsideConfig("http://127.0.0.1:1/v1", "http://127.0.0.1:1")).Profile("")
	if err != nil {
		t.Fatal(err)
	}
	if p.Approval.Policy != "deny_after" || p.Approval.After != 10*time.Minute {
		t.Errorf("approval %+v", p.Approval)
	}
	narrow := func(tools ...string) error {
		_, err := p.Narrow(configNarrowing(tools))
		return err
	}
	if err := narrow("ls", "sums_add", "shout"); err != nil {
		t.Error(err)
	}
	if err := narrow("bash"); err == nil {
		t.Error("a tool that the profile has not was allowed")
	}
	q, err := p.Narrow(configNarrowing([]string{"sums_add"}))
	if err != nil || len(q.Tools) != 0 || len(q.Outside.Remote) != 0 || !slices.Equal(q.Outside.MCP, []string{"sums_add"}) {
		t.Errorf("narrowed to %q %+v: %v", q.Tools, q.Outside, err)
	}
}

func configNarrowing(tools []string) config.Narrowing { return config.Narrowing{Tools: tools} }
