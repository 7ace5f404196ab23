package wire_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/tools"
	"github.com/pi-worker/pi-worker/tools/natstool"
)

// mcpEnv makes the test binary an MCP server that is away while a file exists.
const mcpEnv = "WIRE_TEST_MCP_AWAY"

func serveMCP(away string) {
	exists := func() bool { _, err := os.Stat(away); return err == nil }
	if exists() {
		os.Exit(1)
	}
	go func() {
		for !exists() {
			time.Sleep(20 * time.Millisecond) // a process of its own, which is to die
		}
		os.Exit(1)
	}()
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add."},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, errors.ErrUnsupported
		})
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
	os.Exit(0)
}

// While a run goes on, its log says which tools of others come and go.
func TestLogTellsWhichToolsComeAndGo(t *testing.T) {
	j := newJournal(t)
	hold := make(chan struct{})
	script := looptest.NewScript(looptest.Reply{Text: "a long answer", Hold: hold})
	defer script.Close()
	away := filepath.Join(t.TempDir(), "away")
	put := func() {
		if err := os.WriteFile(away, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	startWorker(t, j.env, `
nats: {ack_wait: 2s}
mcp:
  sums: {command: "`+os.Args[0]+`", env: ["`+mcpEnv+`=`+away+`"]}
  other: {command: "/does/not/exist"}
agents:
  default: {model: m, base_url: "`+script.BaseURL()+`", mcp_tools: ["sums_*"], remote_tools: [shout]}
`)
	j.prompt("s1")
	seen := 0
	// next waits for one change more than were seen.
	next := func() *loop.ToolsChanged {
		t.Helper()
		n := 0
		evs := j.until("s1", func(ev loop.Event) bool {
			if _, ok := ev.(*loop.ToolsChanged); ok {
				n++
			}
			return n > seen
		})
		seen++
		return evs[len(evs)-1].(*loop.ToolsChanged)
	}
	want := func(what string, got *loop.ToolsChanged, source string, added, removed []string) {
		t.Helper()
		if got.Source != source || !slices.Equal(got.Added, added) || !slices.Equal(got.Removed, removed) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	want("missing at the beginning", next(), "remote", nil, []string{"shout"})
	tool, err := tools.Func("shout", "Shout.", func(context.Context, loop.Call, struct{}) (loop.ToolResult, error) {
		return loop.ToolResult{}, nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	service, err := natstool.Serve(j.env.NC, natstool.Config{Name: "shouting"}, tool)
	if err != nil {
		t.Fatal(err)
	}
	want("a service came", next(), "remote", []string{"shout"}, nil)
	put()
	want("the server died", next(), "mcp:sums", nil, []string{"sums_add"})
	if err := os.Remove(away); err != nil {
		t.Fatal(err)
	}
	want("it is back", next(), "mcp:sums", []string{"sums_add"}, nil)
	if err := service.Stop(); err != nil {
		t.Fatal(err)
	}
	want("the service went", next(), "remote", nil, []string{"shout"})
	close(hold)
	_, evs := j.settled("s1", 1)
	if last := evs[len(evs)-1].EventType(); last != "agent_settled" {
		t.Errorf("the prompt's last event is %s", last)
	}
}
