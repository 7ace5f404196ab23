package wire_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// buildStranger gives an MCP server that was not written here: the SDK's own
// example.
func buildStranger(t *testing.T) (program string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a program")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("go is not installed")
	}
	program = filepath.Join(t.TempDir(), "everything")
	out, err := exec.Command(goTool, "build", "-o", program, "github.com/modelcontextprotocol/go-sdk/examples/server/everything").CombinedOutput()
	if err != nil {
		t.Fatalf("building the stranger's server: %v\n%s", err, out)
	}
	return program
}

// One session uses a stranger's MCP server over stdio, a remote tool in another
// process, and a built-in one.
func TestOneSessionUsesAStrangersMCPServerAndARemoteTool(t *testing.T) {
	program := buildStranger(t)
	j := newJournal(t)
	startRemote(t, j.env.Server.ClientURL())
	script := looptest.NewScript(looptest.Calls(
		looptest.Call{Name: "ls", Args: `{}`}, looptest.Call{Name: "shout", Args: `{"text":"hi"}`},
		looptest.Call{Name: "any_greet", Args: `{"name":"Ada"}`},
	), looptest.Text("done"))
	defer script.Close()
	startWorker(t, j.env, `
worker: {workspace: {mode: temp}}
nats: {ack_wait: 2s}
mcp: {any: {command: "`+program+`"}}
agents:
  default: {model: m, base_url: "`+script.BaseURL()+`", tools: [ls], mcp_tools: ["any_*"], remote_tools: [shout]}
`)
	results := run(t, j.env, "s1")
	if results["shout"] != "HI s1/1/0/1" || !strings.Contains(results["any_greet"], "Ada") || results["ls"] == "" {
		t.Errorf("results %q", results)
	}
}

func careful(base string) string {
	return `
worker: {workspace: {mode: temp}}
nats: {ack_wait: 2s}
agents:
  default:
    model: m
    base_url: "` + base + `"
    tools: [bash]
    bash: {private: false, network: true}
    approval: {ask: [bash], policy: wait}
`
}

// A worker's process asks and is killed. The answer is given while nobody is
// there, or when the next worker has the run; the call is run once.
func TestApprovalIsAnsweredAfterTheWorkersProcessWasKilled(t *testing.T) {
	for name, early := range map[string]bool{"while nobody is there": true, "after the takeover": false} {
		t.Run(name, func(t *testing.T) {
			j := newJournal(t)
			script := looptest.NewScript(looptest.Calls(looptest.Call{ID: "call_1", Name: "bash", Args: `{"command":"echo ran"}`}), looptest.Text("done"))
			defer script.Close()
			kill := startProcess(t, j.env.Server.ClientURL(), careful(script.BaseURL()))
			j.prompt("s1")
			j.until("s1", func(ev loop.Event) bool { return ev.EventType() == "approval_requested" })
			kill()
			if early {
				j.approve("s1", "call_1")
			}
			startWorker(t, j.env, careful(script.BaseURL()))
			if !early {
				j.until("s1", func(ev loop.Event) bool { return ev.EventType() == "run_resumed" })
				j.approve("s1", "call_1")
			}
			got, evs := j.settled("s1", 1)
			if got != "ran\n" {
				t.Errorf("the result is %q", got)
			}
			count := map[string]int{}
			for _, ev := range evs {
				count[ev.EventType()]++
				if a, ok := ev.(*loop.ApprovalAnswered); ok && (a.Answer != loop.Approved || a.By != "ada") {
					t.Errorf("answered %s by %q", a.Answer, a.By)
				}
			}
			for _, once := range []string{"approval_requested", "approval_answered", "tool_execution_end"} {
				if count[once] != 1 {
					t.Errorf("%d %s, want 1", count[once], once)
				}
			}
			if count["run_resumed"] == 0 {
				t.Error("no worker went on with the run")
			}
		})
	}
}

func (j *journal) approve(id, call string) {
	j.Helper()
	_, err := j.store.Publish(j.Context(), id, subjects.KindApprove, &session.Input{
		Approve: session.ApproveOptions{Call: call, Approve: true, By: "ada"},
	})
	if err != nil {
		j.Fatal(err)
	}
}
