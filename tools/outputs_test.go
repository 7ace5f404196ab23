package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
)

// shelf is a store of outputs in memory.
type shelf struct {
	mu   sync.Mutex
	kept map[string][]byte
	err  error
}

func (s *shelf) Put(_ context.Context, name string, content io.ReadSeeker) (StoredOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := io.ReadAll(content)
	if s.kept == nil {
		s.kept = map[string][]byte{}
	}
	s.kept[name] = b
	return StoredOutput{"s/output/" + name, int64(len(b))}, errors.Join(err, s.err)
}

func (s *shelf) Get(_ context.Context, name string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.kept[name]; ok {
		return io.NopCloser(bytes.NewReader(b)), nil
	}
	return nil, ErrNoOutput
}

// runBash runs a command as the call web/17/0/2.
func runBash(t *testing.T, w *Workspace, command string) (res loop.ToolResult, d bashDetails) {
	t.Helper()
	list, err := w.Tools("bash")
	if err != nil {
		t.Fatal(err)
	}
	ctx := loop.WithCallKey(t.Context(), "web/17/0/2")
	res, err = list[0].Execute(ctx, loop.Call{Args: mustJSON(map[string]string{"command": command})}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.Details != nil {
		if err := json.Unmarshal(res.Details, &d); err != nil {
			t.Fatal(err)
		}
	}
	return res, d
}

// A long output is in the store, by its call, whether or not the command failed,
// and read pages it in a workspace that never had it.
func TestLongOutputIsReadFromTheStore(t *testing.T) {
	s := &shelf{}
	here, there := openTest(t, &Options{Outputs: s}), openTest(t, &Options{Outputs: s})
	for command, failed := range map[string]bool{"seq 30000": false, "seq 30000; exit 3": true} {
		res, d := runBash(t, here, command)
		if res.IsError != failed || d.Output == nil || d.Output.Size != int64(len(numbers(1, 30000))) {
			t.Fatalf("%s: error %v, details %s", command, res.IsError, res.Details)
		}
		if !strings.HasPrefix(d.FullOutputPath, ".pi-worker/output/bash-17.0.2-") || d.Output.Blob != "s/output/"+d.FullOutputPath[len(outputDir):] {
			t.Errorf("file %s, blob %s", d.FullOutputPath, d.Output.Blob)
		}
		text := res.Content[0].(*loop.Text).Text
		if strings.Contains(text, "exited with code 3") != failed || !strings.Contains(text, "30000\n") {
			t.Errorf("%s: the model reads …%s", command, text[len(text)-200:])
		}
		for range 2 { // the second time it is a file
			text, isError := call(t, there, "read", map[string]any{"path": d.FullOutputPath, "offset": 17000, "limit": 2})
			if isError || !strings.HasPrefix(text, "17000\n17001\n") {
				t.Errorf("%s: read elsewhere: %q", command, text)
			}
		}
	}
	if res, d := runBash(t, here, "echo short"); d.Output != nil || res.Details != nil {
		t.Errorf("a short output has details %s", res.Details)
	}
}

// What the store has deleted, and what it never had, is said so.
func TestReadOfAnOutputThatIsGoneSaysSo(t *testing.T) {
	s := &shelf{}
	w := openTest(t, &Options{Outputs: s})
	_, d := runBash(t, w, "seq 3000")
	clear(s.kept)
	if text, failed := call(t, w, "read", map[string]any{"path": d.FullOutputPath, "limit": 1}); failed {
		t.Errorf("the file is still here: %q", text)
	}
	if err := os.RemoveAll(w.Dir() + "/" + outputDir); err != nil {
		t.Fatal(err)
	}
	text, failed := call(t, w, "read", map[string]any{"path": d.FullOutputPath})
	if !failed || !strings.Contains(text, "not kept any more") {
		t.Errorf("read: %q", text)
	}
	for _, path := range []string{".pi-worker/output/../output/x.log", ".pi-worker/output/bash-a/b.log", "bash-1.log"} {
		if text, failed := call(t, w, "read", map[string]any{"path": path}); !failed || strings.Contains(text, "any more") {
			t.Errorf("%s: %q", path, text)
		}
	}
}

// An aborted call's output is stored as well: the end of its context does not
// count.
func TestOutputOfAnAbortedCallIsStored(t *testing.T) {
	s := &shelf{}
	w := openTest(t, &Options{Outputs: s})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	text, failed := callContext(ctx, t, w, "bash", bashCall{Command: "seq 3000; sleep 600"}, func(r loop.ToolResult) {
		if strings.Contains(string(r.Details), "fullOutputPath") {
			cancel()
		}
	})
	if !failed || !strings.Contains(text, "Command aborted") || len(s.kept) != 1 {
		t.Errorf("%d outputs are stored of a call that ended …%s", len(s.kept), text[max(0, len(text)-100):])
	}
}

// A store that fails costs the reference, not the result.
func TestResultSurvivesAStoreThatFails(t *testing.T) {
	w := openTest(t, &Options{Outputs: &shelf{err: errors.New("no space")}})
	res, d := runBash(t, w, "seq 3000")
	if res.IsError || d.Output != nil || d.FullOutputPath == "" {
		t.Errorf("details %s", res.Details)
	}
}

// Where the command has put a pipe in the place of its output, nothing waits for
// it.
func TestOnlyARegularFileIsStored(t *testing.T) {
	s := &shelf{}
	w := openTest(t, &Options{Outputs: s})
	_, d := runBash(t, w, `seq 3000; until f=$(ls .pi-worker/output/bash-* 2>/dev/null); do sleep 0.1; done; rm $f; mkfifo $f`)
	if d.Output != nil || len(s.kept) > 0 {
		t.Errorf("stored: %+v", d.Output)
	}
}

func TestCallNameOfAKey(t *testing.T) {
	for key, want := range map[string]string{
		"s/17/0/2": "17.0.2-", "": "", "s": "", "s/../x": "", "s/1/a": "", "s/" + strings.Repeat("1", 65): "",
	} {
		if got := callName(key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}
