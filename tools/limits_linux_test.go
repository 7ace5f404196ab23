package tools

import (
	"os"
	"strings"
	"testing"
)

// TestCommandLimitsHold: each process of a command is under the limits and
// cannot raise them; without limits it has the worker's.
func TestCommandLimitsHold(t *testing.T) {
	levels(t, func(t *testing.T, level isolation) {
		w := openTest(t, &Options{Limits: Limits{Command: CommandLimits{FileBytes: 1 << 20, MemoryBytes: 4 << 30, Processes: 5000}}})
		w.isolated = level
		text, failed := bash(t, w, "ulimit -f -v -u | awk '{print $NF}'; ulimit -S -f 512; echo $?")
		if failed || text != "1024\n4194304\n5000\n0\n" {
			t.Errorf("limits: %q", text)
		}
		text, _ = bash(t, w, "(head -c 2M /dev/zero > f) 2>/dev/null; stat -c %s f")
		if !strings.HasSuffix(text, "1048576\n") {
			t.Errorf("a file of two megabytes: %q", text)
		}
		text, failed = bash(t, w, "exit 7")
		if !failed || text != "(no output)\n\nCommand exited with code 7" {
			t.Errorf("exit code under limits: %q", text)
		}
		none := openTest(t, nil)
		none.isolated = level
		if text, _ := bash(t, none, "ulimit -f"); text == "1024\n" {
			t.Error("limits without being asked for")
		}
	})
}

// TestPrivateCommandSeesNoHiddenFiles: key files named by the configuration are
// empty to private commands, by every name that leads to them.
func TestPrivateCommandSeesNoHiddenFiles(t *testing.T) {
	if bestIsolation() == isolateReaper {
		t.Skip("this kernel lets nothing be hidden")
	}
	dir := visibleFolder(t)
	for _, name := range []string{"key", "open"} {
		if err := os.WriteFile(dir+"/"+name, []byte(name+" content"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"/folder", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/folder/inside", []byte("inside"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("key", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	w := openTest(t, &Options{Private: true, Hidden: []string{dir + "/link", dir + "/folder", dir + "/missing"}})
	text, _ := bash(t, w, "cd "+dir+"; cat key link 2>/dev/null; ls folder; cat open; umount key 2>/dev/null; cat key 2>/dev/null; true")
	if text != "open content" {
		t.Errorf("got %q", text)
	}
}

// visibleFolder makes a folder that a private command sees: not below the
// temporary ones, which are hidden as a whole, even if the sources are there.
func visibleFolder(t *testing.T) string {
	t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, parent := range []string{wd, "/opt", "/srv", "/var/lib"} {
		if parent == "/tmp" || strings.HasPrefix(parent, "/tmp/") || strings.HasPrefix(parent, "/var/tmp/") || strings.HasPrefix(parent, os.TempDir()+"/") {
			continue
		}
		dir, err := os.MkdirTemp(parent, "hidden-test-")
		if err != nil {
			continue // it belongs to somebody else, or is not there
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
	t.Skip("no folder outside the temporary ones can be written to")
	return ""
}

// TestLoopbackWithoutNetwork: a command without a network can still talk to
// itself.
func TestLoopbackWithoutNetwork(t *testing.T) {
	if bestIsolation() == isolateReaper {
		t.Skip("this kernel allows no network namespace")
	}
	w := openTest(t, &Options{NoNetwork: true})
	text, _ := bash(t, w, "(echo > /dev/tcp/127.0.0.1/9) 2>&1 | grep -om1 'refused\\|unreachable' | head -1; cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '")
	if text != "refused\nlo\n" {
		t.Errorf("got %q", text)
	}
}
