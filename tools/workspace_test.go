package tools

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
)

// TestUnknownToolIsNamedWithTheKnown: every wrong name is told, with what there
// is.
func TestUnknownToolIsNamedWithTheKnown(t *testing.T) {
	w := openTest(t, nil)
	_, err := w.Tools("read", "exec", "Read")
	if !errors.Is(err, ErrUnknownTool) || !strings.Contains(err.Error(), `"exec"`) ||
		!strings.Contains(err.Error(), `"Read"`) || !strings.Contains(err.Error(), "read, write, edit, bash, grep, find, ls") {
		t.Errorf("got %v", err)
	}
	if _, err := Open(w.dir+"/nothing", nil); err == nil {
		t.Error("a folder that is not there was opened")
	}
}

// TestAbsolutePathsByBothNames: a workspace that was given as a link is known by
// its own name too.
func TestAbsolutePathsByBothNames(t *testing.T) {
	dir := t.TempDir()
	link := t.TempDir() + "/link"
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	w := openAt(t, link)
	for _, p := range []string{link + "/f", dir + "/f", "f"} {
		if text, failed := call(t, w, "write", map[string]any{"path": p, "content": "x"}); failed {
			t.Errorf("%s: %s", p, text)
		}
	}
	if text, _ := bash(t, w, "pwd; ls"); text != w.Dir()+"\nf\n" {
		t.Errorf("got %q", text)
	}
	if text, failed := call(t, w, "read", map[string]any{"path": link}); !failed || !strings.HasPrefix(text, "EISDIR") {
		t.Errorf("got %q", text)
	}
	if text, failed := call(t, w, "read", map[string]any{"path": link + "-other/f"}); !failed || text != outsideText {
		t.Errorf("got %q", text)
	}
}

// TestClosedWorkspaceFails: no tool works after Close.
func TestClosedWorkspaceFails(t *testing.T) {
	w := openTest(t, nil)
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	for tool, args := range map[string]map[string]any{
		"read": {"path": "a"}, "write": {"path": "a", "content": ""}, "ls": {}, "bash": {"command": "echo hi"},
		"edit": {"path": "a", "edits": []oneEdit{{"a", "b"}}}, "find": {"pattern": "*"}, "grep": {"pattern": "x"},
	} {
		if text, failed := call(t, w, tool, args); !failed {
			t.Errorf("%s gave %q", tool, text)
		}
	}
}

// TestLaterWorkspaceIsOpenedByItsFirstCall: not before, once only, and not after
// Close; an error is the call's and names no path of the host.
func TestLaterWorkspaceIsOpenedByItsFirstCall(t *testing.T) {
	dir, opened := t.TempDir()+"/made", 0
	open := func() (*Workspace, error) {
		opened++
		return Open(dir, nil)
	}
	w := Later(open)
	if _, err := w.Tools(); err != nil || opened != 0 || w.Dir() != "" {
		t.Fatalf("got %v, opened %d times, in %q", err, opened, w.Dir())
	}
	if text, failed := call(t, w, "ls", map[string]any{}); !failed || strings.Contains(text, dir) || !strings.Contains(text, "ENOENT") {
		t.Errorf("without the folder: %q", text)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if text, failed := call(t, w, "ls", map[string]any{}); failed {
			t.Error(text)
		}
	}
	if err := w.Close(); err != nil || opened != 2 || w.Dir() == "" {
		t.Errorf("got %v, opened %d times, in %q", err, opened, w.Dir())
	}
	never := Later(open)
	if err := never.Close(); err != nil {
		t.Error(err)
	}
	if text, failed := call(t, never, "ls", map[string]any{}); !failed || opened != 2 {
		t.Errorf("after Close: %q, opened %d times", text, opened)
	}
}

// TestWrapperRunsTheShell: the wrapper is put before the shell, and what it
// hides is hidden.
func TestWrapperRunsTheShell(t *testing.T) {
	w := openTest(t, &Options{Wrapper: []string{"env", "WRAPPED=yes"}, CommandPrefix: "greet() { echo hello $1; }"})
	if text, failed := bash(t, w, "greet $WRAPPED; sleep 1000 & true"); failed || text != "hello yes\n" {
		t.Errorf("got %q", text)
	}
	w = openTest(t, &Options{Wrapper: []string{"no-such-wrapper"}})
	if text, failed := bash(t, w, "echo"); !failed || text != "Command wrapper not found: no-such-wrapper" {
		t.Errorf("got %q", text)
	}
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		t.Log("bubblewrap is not here; its example was not tried")
		return
	}
	dir := t.TempDir()
	w, err = Open(dir, &Options{Wrapper: []string{
		bwrap, "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", dir, dir, "--chdir", dir,
		"--unshare-all", "--die-with-parent", "--new-session", "--",
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	mark := marks()
	text, failed := bash(t, w, "ls /; echo x > f; cat f; setsid sleep "+mark+" & true")
	if failed || text != "bin\ndev\nlib\nlib64\nproc\ntmp\nusr\nx\n" {
		t.Errorf("in bubblewrap: %q", text)
	}
	if n := running(t, mark); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// TestFuncRefusesWhatIsNoTool: wrong types are refused when the tool is made,
// and an error is the model's.
func TestFuncRefusesWhatIsNoTool(t *testing.T) {
	if _, err := Func("f", "", func(context.Context, loop.Call, string) (loop.ToolResult, error) { return loop.ToolResult{}, nil }, nil); err == nil {
		t.Error("a string was taken for arguments")
	}
	type bad struct{ C chan int }
	if _, err := Func("f", "", func(context.Context, loop.Call, bad) (loop.ToolResult, error) { return loop.ToolResult{}, nil }, nil); err == nil {
		t.Error("a channel was taken for an argument")
	}
	if _, err := Func[struct{}]("f", "", nil, nil); err == nil {
		t.Error("no function was taken for one")
	}
	boom := errors.New("boom")
	tool, err := Func("f", "", func(_ context.Context, c loop.Call, _ struct{}) (loop.ToolResult, error) {
		return loop.TextResult(c.Key), boom
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := tool.Execute(t.Context(), loop.Call{Key: "k", Args: []byte("{}")}, nil); !errors.Is(err, boom) || r.Content[0].(*loop.Text).Text != "k" {
		t.Errorf("got %v, %v", r, err)
	}
}

// TestRemoveOpensClosedFolders: an ordinary worker gets rid of folders that a
// command closed, and leaves what links lead to.
func TestRemoveOpensClosedFolders(t *testing.T) {
	base := t.TempDir()
	dir, other := base+"/ws", base+"/other"
	for _, d := range []string{dir + "/a/b", other} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{dir + "/a/b/f", other + "/f"} {
		if err := os.WriteFile(f, nil, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(other, dir+"/a/link"); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir + "/a/b", dir + "/a", dir} {
		if err := os.Chmod(d, 0); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		// Root enters anyway; the test of the rule is that of an ordinary user.
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		openFolders(root, maxDepth)
		root.Close()
		if info, err := os.Stat(dir + "/a/b"); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(other + "/f"); err != nil {
		t.Error(err)
	}
	if err := Remove(dir); err != nil {
		t.Errorf("a second time: %v", err)
	}
}
