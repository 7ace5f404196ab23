package wire_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/internal/wire"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/tools"
	"github.com/pi-worker/pi-worker/worker"
)

// use calls one tool of an agent of the session and gives its text.
func use(t *testing.T, a *wire.Agents, session, tool string, args any) string {
	t.Helper()
	agent, err := a.Agent(t.Context(), worker.AgentRequest{Session: session})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = agent.Close() }()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	for _, tl := range agent.Tools {
		if tl.Spec().Name != tool {
			continue
		}
		r, err := tl.Execute(t.Context(), loop.Call{Args: raw}, nil)
		if err != nil {
			return "error: " + err.Error()
		}
		text := ""
		for _, b := range r.Content {
			switch b := b.(type) {
			case *loop.Text:
				text += b.Text
			default:
				text += "<image>"
			}
		}
		return text
	}
	t.Fatalf("the agent has no tool %s", tool)
	return ""
}

type command struct {
	Command string `json:"command"`
}

// TestSessionsBashSeesNoOtherSession: as configured by default, a command sees
// neither another session's workspace nor the key files of the configuration
// nor a network.
func TestSessionsBashSeesNoOtherSession(t *testing.T) {
	root := t.TempDir()
	secrets, err := os.MkdirTemp(".", "secrets-") // the temporary folder is hidden as a whole
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(secrets) })
	key, err := filepath.Abs(secrets + "/key")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte("sk-of-the-file"), 0o644); err != nil {
		t.Fatal(err)
	}
	a := agents(t, `
worker: {workspace: {mode: dir, dir: `+root+`}}
agents:
  default: {model: m, base_url: "http://127.0.0.1:1/v1", tools: [bash], api_key_file: `+key+`}
`)
	if tools.Isolation() == "reaper" {
		if text := use(t, a, "s1", "bash", command{"echo hi"}); !strings.Contains(text, "cannot isolate") {
			t.Errorf("without namespaces: %q", text)
		}
		return
	}
	if text := use(t, a, "s1", "bash", command{"echo mine > f; cat f"}); text != "mine\n" {
		t.Errorf("its own files: %q", text)
	}
	for _, c := range []string{
		"cat " + root + "/s1/f", "cat ../s1/f", "ls " + root + " | grep s1", "cat /proc/1/cwd/../s1/f", "cat " + key + " | grep sk-",
		"echo > /dev/tcp/1.1.1.1/53",
	} {
		if text := use(t, a, "s2", "bash", command{"(" + c + ") 2>/dev/null || echo nothing"}); text != "nothing\n" {
			t.Errorf("%s: %q", c, text)
		}
	}
	if text := use(t, a, "s2", "bash", command{"(echo x > " + root + "/s1/f) 2>/dev/null; true"}); text != "(no output)" {
		t.Errorf("writing there: %q", text)
	}
	if got, err := os.ReadFile(root + "/s1/f"); err != nil || string(got) != "mine\n" {
		t.Errorf("the other session's file: %q, %v", got, err)
	}
}

// TestBashIsAsConfigured: wrapper with the folder's name, deadline, variables
// and limits come from the profile.
func TestBashIsAsConfigured(t *testing.T) {
	t.Setenv("PASSED_ON", "yes")
	t.Setenv("NOT_PASSED_ON", "secret")
	root := t.TempDir()
	a := agents(t, `
worker: {workspace: {mode: dir, dir: `+root+`}}
agents:
  default:
    model: m
    base_url: "http://127.0.0.1:1/v1"
    tools: [bash]
    bash:
      wrapper: [env, "FOLDER={workspace}"]
      timeout: 1s
      env: [PASSED_ON, FIXED=value, PATH]
      max_file: 1MiB
`)
	text := use(t, a, "s1", "bash", command{`echo "$FOLDER $PASSED_ON $FIXED $NOT_PASSED_ON"; ulimit -f`})
	if want := root + "/s1 yes value \n1024\n"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	if text := use(t, a, "s1", "bash", command{"sleep 30"}); text != "error: Command timed out after 1 seconds" {
		t.Errorf("deadline: %q", text)
	}
}

// TestKeysAreNotPassedToCommands: the environment of commands cannot be
// configured to hold the worker's keys.
func TestKeysAreNotPassedToCommands(t *testing.T) {
	for _, name := range []string{"MY_KEY", "PI_NATS_TOKEN", "NATS_URL"} {
		a := agents(t, `
agents:
  default: {model: m, base_url: "http://127.0.0.1:1/v1", api_key_env: MY_KEY, tools: [bash], bash: {env: [PATH, `+name+`]}}
`)
		t.Setenv("MY_KEY", "sk-of-the-worker")
		if _, err := a.Agent(t.Context(), worker.AgentRequest{Session: "s1"}); !errors.Is(err, wire.ErrKeyInEnv) {
			t.Errorf("%s: %v, want ErrKeyInEnv", name, err)
		}
	}
}

// TestReadKnowsWhatTheModelTakes: a profile whose model takes only text gets a
// note beside the image, which its provider leaves out.
func TestReadKnowsWhatTheModelTakes(t *testing.T) {
	png, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]bool{"[text]": false, "[text, image]": true, "[]": true} {
		root := t.TempDir()
		a := agents(t, `
worker: {workspace: {mode: dir, dir: `+root+`}}
agents:
  default: {model: m, base_url: "http://127.0.0.1:1/v1", tools: [read], input: `+input+`}
`)
		if err := os.MkdirAll(root+"/s1", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+"/s1/a.png", png, 0o644); err != nil {
			t.Fatal(err)
		}
		text := use(t, a, "s1", "read", map[string]string{"path": "a.png"})
		if strings.Contains(text, "does not support images") == want {
			t.Errorf("input %s: %q", input, text)
		}
	}
}

// TestRunWithoutCallsMakesNoFolder: a workspace that does not last is made by
// the first call of a run, and found by those of the next one.
func TestRunWithoutCallsMakesNoFolder(t *testing.T) {
	dir := t.TempDir()
	a := agents(t, "worker: {workspace: {mode: temp, dir: '"+dir+"'}}\n"+
		"agents: {default: {model: m, base_url: 'http://127.0.0.1:1/v1', tools: [read, write]}}")
	made := func() int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	agent, err := a.Agent(t.Context(), worker.AgentRequest{Session: "s1"})
	if err != nil || len(agent.Tools) != 2 || made() != 0 {
		t.Fatalf("got %v, %d tools, %d entries", err, len(agent.Tools), made())
	}
	if err := agent.Close(); err != nil {
		t.Fatal(err)
	}
	use(t, a, "s1", "write", map[string]string{"path": "f", "content": "kept"})
	if text := use(t, a, "s1", "read", map[string]string{"path": "f"}); text != "kept" || made() != 2 {
		t.Errorf("the next run read %q, %d entries", text, made())
	}
}

func TestDiskSaysWhyThereIsNoWorkspace(t *testing.T) {
	dir := t.TempDir()
	file := write(t, "file", nil)
	for _, c := range []struct {
		workspace string
		fit       bool
	}{
		{`{mode: temp}`, true},
		{`{mode: temp, dir: "` + dir + `"}`, true},
		{`{mode: temp, dir: "` + dir + `/gone/made"}`, true},
		{`{mode: snapshot, dir: "` + dir + `/too"}`, true},
		{`{mode: snapshot, dir: "` + file + `"}`, false},
		{`{mode: dir, dir: "` + dir + `/made"}`, true},
		{`{mode: dir, dir: "` + file + `"}`, false},
	} {
		a := agents(t, "worker: {workspace: "+c.workspace+"}\nagents: {default: {model: m, base_url: 'http://127.0.0.1:1/v1'}}")
		if err := a.Disk(); (err == nil) != c.fit {
			t.Errorf("%s: got %v, fit %t", c.workspace, err, c.fit)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".pi-worker-ready-*")); err != nil || left != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
