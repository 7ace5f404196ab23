package tools

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const outsideSecret = "secret-from-outside"

// escapeRoom is a workspace with ways out of it, beside a folder with a secret.
type escapeRoom struct {
	w       *Workspace
	dir     string // of the workspace
	outside string
	before  map[string]string
}

func newEscapeRoom(t *testing.T) *escapeRoom {
	t.Helper()
	base := t.TempDir()
	r := &escapeRoom{dir: base + "/ws", outside: base + "/outside"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(r.dir+"/sub/deep", 0o755))
	must(os.MkdirAll(r.outside+"/d", 0o755))
	must(os.WriteFile(r.outside+"/s.txt", []byte(outsideSecret+"\n"), 0o644))
	must(os.WriteFile(r.dir+"/a.txt", []byte("inside\n"), 0o644))
	for name, target := range map[string]string{
		"abs-file": r.outside + "/s.txt", "rel-file": "../outside/s.txt", "abs-dir": r.outside, "rel-dir": "../outside",
		"dangling": r.outside + "/made.txt", "up": "..", "sub/up": "../..", "sub/deep/chain": "../../rel-dir",
		"twice": "rel-file", "self": "self", "proc": "/proc/self", "root": "/", "abs-inside": r.dir + "/a.txt",
		"dev": "/dev/zero", "in-and-out": "sub/../../outside/s.txt",
	} {
		must(os.Symlink(target, r.dir+"/"+name))
	}
	must(syscall.Mkfifo(r.dir+"/pipe", 0o666))
	l, err := net.Listen("unix", r.dir+"/socket")
	must(err)
	t.Cleanup(func() { l.Close() })
	r.w, err = Open(r.dir, nil)
	must(err)
	t.Cleanup(func() { r.w.Close() })
	r.before = r.outsideFiles(t)
	return r
}

func (r *escapeRoom) outsideFiles(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(r.outside, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		found[p] = "dir"
		if !d.IsDir() {
			b, err := os.ReadFile(p)
			found[p] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// check holds one answer to what must be true of all of them.
func (r *escapeRoom) check(t *testing.T, what, text string, failed bool, start time.Time) {
	t.Helper()
	if !failed {
		t.Errorf("%s succeeded: %.200q", what, text)
	}
	if strings.Contains(text, outsideSecret) {
		t.Errorf("%s shows the secret", what)
	}
	if strings.Contains(text, r.outside) || strings.Contains(text, r.dir) {
		t.Errorf("%s shows a host path: %q", what, text)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("%s took %v", what, took)
	}
}

// TestEscapeSuite: no tool reads, lists, searches or writes outside the
// workspace, and none opens a device, a pipe or a socket.
func TestEscapeSuite(t *testing.T) {
	r := newEscapeRoom(t)
	files := []string{
		r.outside + "/s.txt", "/etc/passwd", "/proc/self/environ", "/proc/self/root" + r.outside + "/s.txt", "/dev/zero", "/dev/stdin",
		"../outside/s.txt", "sub/../../outside/s.txt", "./../outside/s.txt", "@../outside/s.txt", "@" + r.outside + "/s.txt",
		r.dir + "/../outside/s.txt", "~/x", "~", "@~/x",
		"abs-file", "rel-file", "abs-dir/s.txt", "rel-dir/s.txt", "sub/deep/chain/s.txt", "twice", "self", "self/x", "up/outside/s.txt",
		"sub/up/outside/s.txt", "proc/environ", "root/etc/passwd", "dev", "in-and-out", "pipe", "socket", "abs-inside",
		"a.txt\x00/../../outside/s.txt", "dangling", "rel-dir/new.txt", "rel-dir/new/dir/x.txt", "up/x.txt",
	}
	for _, file := range files {
		for tool, args := range map[string]map[string]any{
			"read":  {},
			"write": {"content": "written"},
			"edit":  {"edits": []oneEdit{{outsideSecret, "changed"}}},
			"grep":  {"pattern": "secret"},
		} {
			args["path"] = file
			start := time.Now()
			text, failed := call(t, r.w, tool, args)
			r.check(t, fmt.Sprintf("%s %q", tool, file), text, failed, start)
		}
	}
	for _, dir := range []string{
		r.outside, "..", "../outside", "/", "/proc/self", "~", "abs-dir", "rel-dir", "sub/deep/chain", "up", "sub/up", "root", "proc", "self", "pipe", "socket",
	} {
		for tool, args := range map[string]map[string]any{
			"ls": {}, "find": {"pattern": "*"}, "grep": {"pattern": "secret"},
		} {
			args["path"] = dir
			start := time.Now()
			text, failed := call(t, r.w, tool, args)
			r.check(t, fmt.Sprintf("%s in %q", tool, dir), text, failed, start)
		}
	}
	d := &comparer{}
	equal(d, "files outside", r.outsideFiles(t), r.before)
	for _, diff := range d.diffs {
		t.Error(diff)
	}
}

// TestSearchesPassLinksAndPipesBy: a search of the whole workspace meets all of
// them and follows none.
func TestSearchesPassLinksAndPipesBy(t *testing.T) {
	r := newEscapeRoom(t)
	if text, failed := call(t, r.w, "grep", map[string]any{"pattern": "secret|inside"}); failed || text != "a.txt:1: inside" {
		t.Errorf("grep: %q", text)
	}
	text, failed := call(t, r.w, "find", map[string]any{"pattern": "*.txt"})
	if failed || text != "a.txt" {
		t.Errorf("find: %q", text)
	}
	if text, failed := call(t, r.w, "ls", map[string]any{}); failed || !strings.Contains(text, "\nrel-dir\n") {
		t.Errorf("ls marks a link to outside as a directory: %q", text)
	}
}

// TestLinkSwappedInMidCall: a directory that turns into a link to outside while
// the tools work leads nowhere.
func TestLinkSwappedInMidCall(t *testing.T) {
	r := newEscapeRoom(t)
	target := r.dir + "/swap"
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				_ = os.RemoveAll(target)
				return
			default:
			}
			_ = os.MkdirAll(target, 0o755)
			_ = os.WriteFile(target+"/s.txt", []byte("harmless\n"), 0o644)
			_ = os.RemoveAll(target)
			_ = os.Symlink(r.outside, target)
			_ = os.Remove(target)
		}
	})
	for range 400 {
		for tool, args := range map[string]map[string]any{
			"read":  {"path": "swap/s.txt"},
			"write": {"path": "swap/s.txt", "content": "written\n"},
			"edit":  {"path": "swap/s.txt", "edits": []oneEdit{{"s", "S"}}},
			"ls":    {"path": "swap"},
			"grep":  {"path": "swap", "pattern": "secret"},
			"find":  {"path": "swap", "pattern": "*"},
		} {
			text, _ := call(t, r.w, tool, args)
			if strings.Contains(text, outsideSecret) || tool == "ls" && strings.Contains(text, "d/") {
				t.Fatalf("%s saw outside: %q", tool, text)
			}
		}
	}
	close(stop)
	swapper.Wait()
	d := &comparer{}
	equal(d, "files outside", r.outsideFiles(t), r.before)
	for _, diff := range d.diffs {
		t.Error(diff)
	}
}

// TestWriteIsAtomic: a reader finds the old or the new content, and an abort
// leaves the old one and no other file.
func TestWriteIsAtomic(t *testing.T) {
	w := openTest(t, nil)
	contents := [2]string{strings.Repeat("a", 1<<20), strings.Repeat("b", 1<<20)}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	call(t, w, "write", map[string]any{"path": "f", "content": contents[0]})
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				call(t, w, "write", map[string]any{"path": "f", "content": contents[i%2]})
			}
		}
	})
	for range 100 {
		b, err := os.ReadFile(w.dir + "/f")
		if err != nil || string(b) != contents[0] && string(b) != contents[1] {
			t.Errorf("a torn file of %d bytes, %v", len(b), err)
		}
	}
	close(stop)
	writer.Wait()
	names, err := filepath.Glob(w.dir + "/.*")
	if err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}
