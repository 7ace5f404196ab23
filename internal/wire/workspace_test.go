package wire_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/internal/wire"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
	"github.com/pi-worker/pi-worker/worker"
)

// workerEnv makes the test binary a worker, configured by PI_CONFIG.
const workerEnv = "WIRE_TEST_WORKER"

// serveWorker is that worker's process; it ends by being killed.
func serveWorker() {
	cfg, err := config.Load(nil)
	if err != nil {
		panic(err)
	}
	nc, err := wire.Connect(cfg.NATS, "worker", slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	a := wire.NewAgents(cfg, slog.New(slog.DiscardHandler))
	if err := a.Start(ctx, nc); err != nil {
		panic(err)
	}
	w, err := worker.New(ctx, a.Worker(nc, ""))
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	panic(w.Run(ctx))
}

// startProcess runs a worker in a process of its own, and gives what kills it.
func startProcess(t *testing.T, url, yaml string) (kill func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pi-worker.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"=yes", "PI_CONFIG="+path, "PI_NATS_URL="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	if n, err := out.Read(make([]byte, 6)); n != 6 || err != nil {
		t.Fatal("the worker is not ready", err)
	}
	return kill
}

// startWorker runs a worker in this process until the test ends or stop.
func startWorker(t *testing.T, e *natstest.Env, yaml string) (stop func()) {
	t.Helper()
	a := wire.NewAgents(load(t, yaml), slog.New(slog.DiscardHandler))
	if err := a.Start(t.Context(), e.NC); err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(t.Context(), a.Worker(e.NC, ""))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func snapshotConfig(base, dir, more string) string {
	return `
worker: {grace: 60s, workspace: {mode: snapshot, dir: "` + dir + `", exclude: ["cache/"]` + more + `}}
nats: {ack_wait: 2s}
agents:
  default:
    model: m
    base_url: "` + base + `"
    tools: [bash, read]
    bash: {private: false, network: true}
`
}

// journal follows sessions of one broker.
type journal struct {
	*testing.T
	env   *natstest.Env
	store *session.Store
}

func newJournal(t *testing.T) *journal {
	t.Helper()
	e := natstest.Start(t, nil)
	if err := subjects.Ensure(t.Context(), e.JS, subjects.Names{}, &subjects.EnsureOptions{AckWait: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	store, err := session.Open(t.Context(), e.NC, subjects.Names{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &journal{t, e, store}
}

func (j *journal) prompt(id string) {
	j.Helper()
	if _, err := j.store.Publish(j.Context(), id, subjects.KindPrompt, &session.Input{Message: loop.NewUserText("go")}); err != nil {
		j.Fatal(err)
	}
}

// until gives the session's events up to the one that is waited for.
func (j *journal) until(id string, last func(loop.Event) bool) (evs []loop.Event) {
	j.Helper()
	ctx, cancel := context.WithTimeout(j.Context(), 2*time.Minute)
	defer cancel()
	for rec, err := range j.store.Tail(ctx, id, session.From{Start: true, Wait: true}) {
		if err != nil {
			j.Fatal(err)
		}
		for _, ev := range rec.Events {
			if evs = append(evs, ev); last(ev) {
				return evs
			}
		}
	}
	j.Fatal("the log ended")
	return nil
}

func halfAnswered(ev loop.Event) bool {
	u, ok := ev.(*loop.MessageUpdate)
	return ok && u.Update.Type == loop.UpdateTextDelta
}

// settled waits for the n-th end of a prompt and gives the last tool result.
func (j *journal) settled(id string, n int) (lastResult string, evs []loop.Event) {
	j.Helper()
	evs = j.until(id, func(ev loop.Event) bool {
		if s, ok := ev.(*loop.AgentSettled); ok {
			if n--; s.Outcome != loop.OutcomeCompleted {
				j.Errorf("outcome %s: %s", s.Outcome, s.ErrorMessage)
			}
		}
		return n == 0
	})
	for _, ev := range evs {
		if end, ok := ev.(*loop.ToolExecutionEnd); ok {
			lastResult = ""
			for _, b := range end.Result.Content {
				if text, ok := b.(*loop.Text); ok {
					lastResult += text.Text
				}
			}
		}
	}
	return lastResult, evs
}

// objects are the session's, by name.
func (j *journal) objects(id string) (out []string) {
	j.Helper()
	store, err := j.env.JS.ObjectStore(j.Context(), subjects.Names{}.BlobBucket())
	if err != nil {
		j.Fatal(err)
	}
	list, err := store.List(j.Context())
	if err != nil {
		return nil
	}
	for _, info := range list {
		if strings.HasPrefix(info.Name, id+"/") {
			out = append(out, info.Name)
		}
	}
	return out
}

func bash(command string) looptest.Answer {
	return looptest.Calls(looptest.Call{Name: "bash", Args: `{"command":` + quote(command) + `}`})
}

const showAll = `find . -path ./.pi-worker -prune -o -printf '%p %y %m %l\n' | LC_ALL=C sort; cat d/f`

// A worker's process is killed in the middle of a run. Another one, with
// another disk, goes on with the same files.
func TestSnapshotSurvivesTheWorkersProcess(t *testing.T) {
	j := newJournal(t)
	hold := make(chan struct{})
	script := looptest.NewScript(
		bash(`mkdir -p d/empty cache; echo one >d/f; chmod 755 d/f; ln -s /etc/passwd out; ln -s d/f in; echo x >gone; echo y >cache/y`),
		bash(`rm gone; echo two >>d/f; `+showAll),
		looptest.Reply{Text: "half", Hold: hold},
		bash(showAll), looptest.Text("done"),
		bash("cat d/f"), looptest.Text("done"),
	)
	defer script.Close()
	kill := startProcess(t, j.env.Server.ClientURL(), snapshotConfig(script.BaseURL(), t.TempDir(), ""))
	j.prompt("s1")
	before := j.until("s1", halfAnswered)
	kill()
	close(hold)
	// What a killed worker stores and nobody names is neither used nor kept.
	orphan, err := j.store.Objects("s1", "files")
	if err == nil {
		var last *loop.WorkspaceSaved
		for _, ev := range before {
			if s, ok := ev.(*loop.WorkspaceSaved); ok {
				last = s
			}
		}
		name := orphan.ShortName(last.Manifest)
		err = orphan.Put(t.Context(), name[:strings.LastIndexByte(name, '.')]+".5", strings.NewReader("half a pack"))
	}
	if err != nil {
		t.Fatal(err)
	}

	stop := startWorker(t, j.env, snapshotConfig(script.BaseURL(), t.TempDir(), ""))
	got, evs := j.settled("s1", 1)
	want := strings.Join([]string{
		". d 700 ", "./d d 755 ", "./d/empty d 755 ", "./d/f f 755 ", "./in l 777 d/f", "./out l 777 /etc/passwd", "one", "two", "",
	}, "\n")
	if got != want {
		t.Errorf("the other worker sees\n%s\nwant\n%s", got, want)
	}
	saves := 0
	for _, ev := range evs {
		if ev.EventType() == "workspace_saved" {
			saves++
		}
	}
	if saves != 2 {
		t.Errorf("%d snapshots, want one for each call that changed something", saves)
	}
	stop() // sweeps
	// Of five objects the second manifest and the one pack that it needs are left.
	if left := j.objects("s1"); len(left) != 2 {
		t.Errorf("%q are left, want the last manifest and its pack", left)
	}
	j.prompt("s1")
	startWorker(t, j.env, snapshotConfig(script.BaseURL(), t.TempDir(), ""))
	if got, _ := j.settled("s1", 2); got != "one\ntwo\n" {
		t.Errorf("a third worker reads %q", got)
	}
}

// Two sessions with the same files have nothing in common; to remove one takes
// all of it and nothing of the other.
func TestSnapshotsOfSessionsShareNothing(t *testing.T) {
	j := newJournal(t)
	script := looptest.NewScript(
		bash("echo same >f"), looptest.Text("done"), bash("ls; echo same >f"), looptest.Text("done"),
		bash("cat f"), looptest.Text("done"),
	)
	defer script.Close()
	startWorker(t, j.env, snapshotConfig(script.BaseURL(), t.TempDir(), ""))
	j.prompt("s1")
	j.settled("s1", 1)
	j.prompt("s2")
	if got, _ := j.settled("s2", 1); got != "(no output)" {
		t.Errorf("the second session sees %q", got)
	}
	if a, b := j.objects("s1"), j.objects("s2"); len(a) != 2 || len(b) != 2 {
		t.Errorf("objects %q and %q, want a pack and a manifest each", a, b)
	}
	if err := j.store.Remove(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	if left := j.objects("s1"); len(left) > 0 {
		t.Errorf("%q are left of a removed session", left)
	}
	j.prompt("s2")
	if got, _ := j.settled("s2", 2); got != "same\n" {
		t.Errorf("the other session reads %q", got)
	}
}

// Over the cap the model and the log are told, and the files stay where they
// are.
func TestWorkspaceOverTheCapIsToldAndKept(t *testing.T) {
	j := newJournal(t)
	script := looptest.NewScript(
		bash("echo 1 >a"), bash("touch b c d"), looptest.Text("done"),
		bash("ls; rm b c d"), looptest.Text("done"),
	)
	defer script.Close()
	dir := t.TempDir()
	startWorker(t, j.env, snapshotConfig(script.BaseURL(), dir, ", max_files: 3"))
	j.prompt("s1")
	got, evs := j.settled("s1", 1)
	if !strings.Contains(got, "could not be saved") || !strings.Contains(got, "limit of 3 files") {
		t.Errorf("the model reads %q", got)
	}
	told := 0
	for _, ev := range evs {
		if u, ok := ev.(*loop.WorkspaceUnsaved); ok && strings.Contains(u.ErrorMessage, "limit of 3 files") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d events say so", told)
	}
	j.prompt("s1")
	if got, _ := j.settled("s1", 2); got != "a\nb\nc\nd\n" {
		t.Errorf("later it is told %q, and has lost files or is still over the cap", got)
	}
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}
