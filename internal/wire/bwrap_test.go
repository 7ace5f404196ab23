package wire_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestBubblewrapContainsCommands runs commands through the wrapper that the
// README shows. It is skipped only where bwrap is not installed, or this host
// lets it make no namespaces.
func TestBubblewrapContainsCommands(t *testing.T) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("bwrap is not installed")
	}
	if out, err := exec.Command("bwrap", "--ro-bind", "/", "/", "--unshare-all", "true").CombinedOutput(); err != nil {
		t.Skipf("bwrap cannot make namespaces here: %v: %s", err, out)
	}
	root := t.TempDir()
	a := agents(t, `
worker: {workspace: {mode: dir, dir: `+root+`}}
agents:
  default:
    model: m
    base_url: "http://127.0.0.1:1/v1"
    tools: [bash, read]
    bash:
      timeout: 60s
`+readmeWrapper(t))
	if text := use(t, a, "s1", "bash", command{"echo mine > f; pwd; cat f; echo $$"}); !strings.HasPrefix(text, root+"/s1\nmine\n") {
		t.Errorf("its own files: %q", text)
	}
	if text := use(t, a, "s1", "read", map[string]string{"path": "f"}); text != "mine\n" {
		t.Errorf("the file afterwards: %q", text)
	}
	for _, c := range []string{
		"cat " + root + "/s1/f", "ls " + root + " | grep s1", "cat /etc/passwd", "ls /root", "ls /proc | grep -x " + pid(),
		"echo > /dev/tcp/1.1.1.1/53", "touch /usr/x",
	} {
		if text := use(t, a, "s2", "bash", command{"(" + c + ") 2>/dev/null || echo nothing"}); text != "nothing\n" {
			t.Errorf("%s: %q", c, text)
		}
	}
	left := fmt.Sprint("sleep 3600.", os.Getpid())
	// What it leaves behind ends with it, as without a wrapper.
	if text := use(t, a, "s1", "bash", command{"setsid " + left + " & echo started"}); text != "started\n" {
		t.Errorf("a background child: %q", text)
	}
	if out, err := exec.Command("pgrep", "-f", "^"+left+"$").Output(); err == nil {
		t.Errorf("processes are left: %s", out)
	}
	if text := use(t, a, "s1", "bash", command{"exit 3"}); !strings.Contains(text, "exited with code 3") {
		t.Errorf("the exit code: %q", text)
	}
}

func pid() string {
	link, err := os.Readlink("/proc/self")
	if err != nil {
		return "0"
	}
	return link
}

// readmeWrapper is the wrapper of the README, indented for a profile.
func readmeWrapper(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(data), "```yaml\nbash:\n")
	text, _, ended := strings.Cut(text, "```")
	if !ok || !ended || !strings.Contains(text, "bwrap") {
		t.Fatal("README.md has no wrapper with bwrap")
	}
	return "    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}
