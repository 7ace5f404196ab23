package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// openTest opens a workspace of its own for a test.
func openTest(t testing.TB, opt *Options) *Workspace {
	t.Helper()
	w, err := Open(t.TempDir(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// call runs a tool and gives its text; an error is text too.
func call(t testing.TB, w *Workspace, name string, args any) (text string, failed bool) {
	t.Helper()
	return callContext(t.Context(), t, w, name, args, nil)
}

func callContext(ctx context.Context, t testing.TB, w *Workspace, name string, args any, update func(loop.ToolResult)) (string, bool) {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.tool(name).Execute(ctx, loop.Call{ID: "c", Name: name, Args: raw}, update)
	if err != nil {
		return err.Error(), true
	}
	var b strings.Builder
	for _, block := range r.Content {
		if text, ok := block.(*loop.Text); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String(), r.IsError
}

func bash(t testing.TB, w *Workspace, command string) (string, bool) {
	t.Helper()
	return call(t, w, "bash", bashCall{Command: command})
}

type bashCall struct {
	Command string  `json:"command"`
	Timeout float64 `json:"timeout,omitempty"`
}

// levels runs a test under every isolation that this host has.
func levels(t *testing.T, f func(t *testing.T, level isolation)) {
	found := []isolation{isolateReaper}
	if best := bestIsolation(); best != isolateReaper {
		found = append(found, best)
	}
	for _, level := range found {
		t.Run(string(level), func(t *testing.T) { f(t, level) })
	}
}

// running counts the processes whose command line holds mark.
func running(t testing.TB, mark string) int {
	t.Helper()
	n := 0
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		line, _ := os.ReadFile(f)
		if bytes.Contains(line, []byte(mark)) && !bytes.HasPrefix(line, []byte(keeperName)) {
			n++
		}
	}
	return n
}

// marks are numbers for sleep by which a test knows its own processes.
var marks = func() func() string {
	var mu sync.Mutex
	n := 100000 + os.Getpid()*100
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		n++
		return strconv.Itoa(n)
	}
}()

// TestBackgroundChildDoesNotHoldBash: a child that keeps the pipe does not keep
// the call.
func TestBackgroundChildDoesNotHoldBash(t *testing.T) {
	levels(t, func(t *testing.T, level isolation) {
		w := openTest(t, nil)
		w.isolated = level
		for _, command := range []string{
			"sleep %s & echo ok",
			"setsid sleep %s & echo ok",
			"nohup setsid sleep %s & disown; echo ok",
			"(setsid sh -c 'sleep %s' &); echo ok",
			"trap '' TERM; (trap '' TERM; sleep %s; sleep %[1]s) & echo ok",
		} {
			quick(t, 2*time.Second, func() string {
				mark := marks()
				text, failed := bash(t, w, fmt.Sprintf(command, mark))
				if failed || text != "ok\n" {
					t.Errorf("%q: %q", command, text)
				}
				if n := running(t, mark); n != 0 {
					t.Errorf("%q: %d processes are left", command, n)
				}
				return command
			})
		}
	})
}

// quick wants f, which says what it did, to be over within the limit. Other
// work can hold this machine up, so the best of five counts.
func quick(t *testing.T, limit time.Duration, f func() string) {
	t.Helper()
	var what string
	var took time.Duration
	for range 5 {
		start := time.Now()
		what = f()
		if took = time.Since(start); took <= limit {
			return
		}
	}
	t.Errorf("%q: took %v, five times over %v", what, took, limit)
}

// TestNoProcessSurvives: whatever a command starts is gone at every end.
func TestNoProcessSurvives(t *testing.T) {
	const starters = `sleep %[1]s &
setsid sleep %[1]s &
(setsid sh -c 'trap "" TERM HUP INT; while :; do sleep %[1]s; done' >/dev/null 2>&1 </dev/null &)
setsid sh -c 'setsid sh -c "setsid sleep %[1]s & exec sleep %[1]s" & exit' &
(sleep %[1]s & kill -STOP $!) &
`
	ends := map[string]func(t *testing.T, w *Workspace, script string){
		"normal end": func(t *testing.T, w *Workspace, script string) { bash(t, w, script+"echo ok") },
		"failure":    func(t *testing.T, w *Workspace, script string) { bash(t, w, script+"exit 3") },
		"shell killed": func(t *testing.T, w *Workspace, script string) {
			bash(t, w, script+"kill -KILL $$")
		},
		"deadline": func(t *testing.T, w *Workspace, script string) {
			text, failed := call(t, w, "bash", bashCall{script + "sleep 60", 0.5})
			if !failed || !strings.Contains(text, "timed out after 0.5 seconds") {
				t.Errorf("got %q", text)
			}
		},
		"abort": func(t *testing.T, w *Workspace, script string) {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			text, failed := callContext(ctx, t, w, "bash", bashCall{Command: script + "sleep 60"}, nil)
			if !failed || !strings.Contains(text, "aborted") {
				t.Errorf("got %q", text)
			}
		},
	}
	levels(t, func(t *testing.T, level isolation) {
		w := openTest(t, nil)
		w.isolated = level
		for name, end := range ends {
			t.Run(name, func(t *testing.T) {
				mark := marks()
				end(t, w, fmt.Sprintf(starters, mark))
				if n := running(t, mark); n != 0 {
					t.Errorf("%d processes are left", n)
				}
			})
		}
	})
}

// TestNoProcessSurvivesTheWorker: a worker that is killed leaves nothing.
func TestNoProcessSurvivesTheWorker(t *testing.T) {
	levels(t, func(t *testing.T, level isolation) {
		mark, dir := marks(), t.TempDir()
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestWorkerToKill$")
		cmd.Env = append(os.Environ(), "TOOLS_WORKER_DIR="+dir, "TOOLS_WORKER_MARK="+mark, "TOOLS_WORKER_LEVEL="+string(level))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the command to run", func() bool { return running(t, mark) >= 2 })
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		waitFor(t, "the command to end", func() bool { return running(t, mark) == 0 })
	})
}

// TestWorkerToKill is the process that TestNoProcessSurvivesTheWorker kills.
func TestWorkerToKill(t *testing.T) {
	dir := os.Getenv("TOOLS_WORKER_DIR")
	if dir == "" {
		return
	}
	w, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.isolated = isolation(os.Getenv("TOOLS_WORKER_LEVEL"))
	mark := os.Getenv("TOOLS_WORKER_MARK")
	bash(t, w, "setsid sleep "+mark+" & sleep "+mark)
}

// waitFor polls for something that another process does.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatal("waited too long for " + what)
		}
		runtime.Gosched()
	}
}

// TestDeadlineHoldsWhateverHoldsThePipe: the deadline ends the call, whoever
// has the pipe and ignores signals.
func TestDeadlineHoldsWhateverHoldsThePipe(t *testing.T) {
	levels(t, func(t *testing.T, level isolation) {
		w := openTest(t, nil)
		w.isolated = level
		for _, command := range []string{
			"echo out; setsid sh -c 'trap \"\" TERM INT HUP; sleep 50; sleep 50' & sleep 60",
			"echo out; trap '' TERM; while :; do :; done",
			"echo out; cat /dev/zero > /dev/null",
			"echo out; kill -STOP $$",
		} {
			quick(t, 2*time.Second, func() string {
				text, failed := call(t, w, "bash", bashCall{command, 0.3})
				if !failed || text != "out\n\n\nCommand timed out after 0.3 seconds" {
					t.Errorf("%q: %q", command, text)
				}
				return command
			})
		}
	})
	t.Run("maximum", func(t *testing.T) {
		w := openTest(t, &Options{BashMaxTimeout: 300 * time.Millisecond})
		for _, asked := range []float64{0, 5, 1e300} {
			text, _ := call(t, w, "bash", bashCall{"sleep 20", asked})
			if text != "Command timed out after 0.3 seconds" {
				t.Errorf("timeout %v: %q", asked, text)
			}
		}
	})
}

// TestHugeOutputBoundedMemory: two gigabytes of output cost this process and
// the command's keeper little.
func TestHugeOutputBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 2 GB")
	}
	w := openTest(t, nil)
	var earlier syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &earlier); err != nil {
		t.Fatal(err)
	}
	before := peakMemory(t)
	text, failed := bash(t, w, "yes | head -c 2G")
	grown := peakMemory(t) - before
	t.Logf("the peak of memory grew by %d KB", grown)
	if failed || !strings.Contains(text, "Output of 2048.0MB, the first 64.0MB of it: .pi-worker/output/bash-") || len(text) > 52<<10 {
		t.Errorf("failed=%v, %d bytes, ends in %q", failed, len(text), text[max(0, len(text)-200):])
	}
	if grown > 50<<10 {
		t.Errorf("the peak of memory grew by %d KB", grown)
	}
	var children syscall.Rusage
	// A child begins with its parent's peak, and other tests have had children.
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children); err != nil || children.Maxrss > max(50<<10, earlier.Maxrss, peakMemory(t)) {
		t.Errorf("a keeper or command had %d KB, %v", children.Maxrss, err)
	}
	t.Logf("the largest child had %d KB", children.Maxrss)
	if text, failed := call(t, w, "read", map[string]any{"path": outputFile.FindString(text), "offset": 1000, "limit": 2}); failed || !strings.HasPrefix(text, "y\ny\n") {
		t.Errorf("the whole output cannot be paged: %.200q", text)
	}
}

// peakMemory is the process's largest resident size so far, in KB.
func peakMemory(t *testing.T) int64 {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return r.Maxrss
}

// TestEnvironmentIsAllowListed: a command gets the listed variables, no other
// descriptor than the three, and cannot read the worker's environment.
func TestEnvironmentIsAllowListed(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-secret-of-the-worker")
	t.Setenv("BASH_ENV", "/nowhere")
	t.Setenv("ALLOWED_ONE", "allowed")
	held, err := os.Open("/dev/null") // a descriptor that must not be inherited
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	w := openTest(t, &Options{Env: []string{"PATH", "ALLOWED_ONE", "FIXED=value", "NOT_THERE"}})
	text, failed := bash(t, w, "env | cut -d= -f1 | sort | tr '\\n' ' '; echo $ALLOWED_ONE $FIXED; ls /proc/self/fd | tr '\\n' ' '")
	if want := "ALLOWED_ONE FIXED HOME PATH PWD SHLVL TMPDIR _ allowed value\n0 1 2 3 "; failed || text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	if best := bestIsolation(); best == isolateReaper && os.Geteuid() == 0 {
		t.Log("as root without namespaces /proc cannot be kept from commands")
		return
	}
	text, _ = bash(t, w, "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c secret-of-the; cat /proc/"+strconv.Itoa(os.Getpid())+"/environ | grep -c secret-of-the")
	if strings.Contains(text, "secret-of-the-worker") || !strings.HasPrefix(text, "0\n") {
		t.Errorf("the worker's environment is readable: %q", text)
	}
}

// TestPrivateCommandSeesOnlyItsWorkspace: neither the neighbours nor the home
// nor the devices, and it cannot undo that.
func TestPrivateCommandSeesOnlyItsWorkspace(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"mine", "theirs"} {
		if err := os.Mkdir(dir+"/"+name, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/"+name+"/f", []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w, err := Open(dir+"/mine", &Options{Private: true, NoNetwork: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if bestIsolation() == isolateReaper {
		if text, failed := bash(t, w, "echo hi"); !failed || text != errNoNamespaces.Error() {
			t.Errorf("without namespaces: %q", text)
		}
		return
	}
	for command, want := range map[string]string{
		"cat f; echo new > g; cat g":             "minenew\n",
		"ls ..":                                  "mine\n",
		"cat ../theirs/f 2>/dev/null || echo no": "no\n",
		"umount -l .. 2>/dev/null; ls ..":        "mine\n",
		"touch /etc/x 2>/dev/null || echo no":    "no\n",
		"mount -o remount,rw / 2>/dev/null; touch /etc/x 2>/dev/null || echo no": "no\n",
		"mknod /tmp/sda b 8 0 2>/dev/null || echo no":                            "no\n",
		"ls /dev | tr '\\n' ' '; echo > /dev/null":                               "fd full null random shm stderr stdin stdout tty urandom zero ",
		"ls -A /tmp; echo x > /tmp/x && cat /tmp/x":                              "x\n",
		"(echo > /dev/tcp/127.0.0.1/22) 2>/dev/null || echo no":                  "no\n",
		"set -- /proc/[0-9]*; echo $#":                                           "2\n",
	} {
		text, _ := bash(t, w, command)
		if strings.HasPrefix(command, "ls -A /tmp") {
			text = text[max(0, len(text)-2):]
		}
		if text != want {
			t.Errorf("%s: got %q, want %q", command, text, want)
		}
	}
	if got, err := os.ReadFile(dir + "/mine/g"); err != nil || string(got) != "new\n" {
		t.Errorf("what it wrote: %q, %v", got, err)
	}
}

// TestBashUpdatesAreTheNewPartOnly: together they are the output, and their
// number is bounded.
func TestBashUpdatesAreTheNewPartOnly(t *testing.T) {
	w := openTest(t, nil)
	var got strings.Builder
	n := 0
	text, failed := callContext(t.Context(), t, w, "bash", bashCall{Command: "for i in $(seq 60); do echo $i; sleep 0.01; done"},
		func(r loop.ToolResult) {
			n++
			for _, b := range r.Content {
				got.WriteString(b.(*loop.Text).Text)
			}
		})
	if failed || got.String() != text || text != numbers(1, 60) {
		t.Errorf("updates %q, text %q", got.String(), text)
	}
	if n < 3 || n > 40 {
		t.Errorf("%d updates", n)
	}
}

// TestManyCommandsAtOnce: calls side by side do not end each other's processes.
func TestManyCommandsAtOnce(t *testing.T) {
	levels(t, func(t *testing.T, level isolation) {
		w := openTest(t, nil)
		w.isolated = level
		mark := marks()
		var calls sync.WaitGroup
		for i := range 24 {
			calls.Go(func() {
				command := fmt.Sprintf("setsid sleep %s & echo %d; sleep 0.%d; echo %d", mark, i, i%4, i)
				if text, failed := bash(t, w, command); failed || text != fmt.Sprintf("%d\n%d\n", i, i) {
					t.Errorf("%d: %q", i, text)
				}
			})
		}
		calls.Wait()
		if n := running(t, mark); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

func BenchmarkBash(b *testing.B) {
	w := openTest(b, nil)
	for b.Loop() {
		if text, failed := bash(b, w, "echo hi"); failed || text != "hi\n" {
			b.Fatal(text)
		}
	}
}
