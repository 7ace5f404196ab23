//go:build unix

package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/loop/looptest"
)

// process is pi-cli as a process of its own.
type process struct {
	cmd    *exec.Cmd
	out    lockedBuffer
	stderr *bufio.Reader
	errAll strings.Builder
	temp   string // its folder for temporary files
}

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.CommandContext(t.Context(), self, args...), temp: t.TempDir()}
	p.cmd.Env = append(os.Environ(), asCLI+"=1", "TMPDIR="+p.temp, "OPENAI_API_KEY=", "OPENAI_BASE_URL=")
	p.cmd.Stdout = &p.out
	pipe, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stderr = bufio.NewReader(pipe)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// until reads stderr up to a line with the word; false at its end.
func (p *process) until(word string) bool {
	for {
		line, err := p.stderr.ReadString('\n')
		p.errAll.WriteString(line)
		if strings.Contains(line, word) {
			return true
		}
		if err != nil {
			return false
		}
	}
}

// wait reads the rest and gives the exit code.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	if _, err := io.Copy(&p.errAll, p.stderr); err != nil {
		t.Error(err)
	}
	err := p.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

var workerProcess = regexp.MustCompile(`worker-\d is process (\d+)`)

// nothingIsLeft checks that the workers have ended and the folder is empty.
func (p *process) nothingIsLeft(t *testing.T) {
	t.Helper()
	found := workerProcess.FindAllStringSubmatch(p.errAll.String(), -1)
	if len(found) != 2 {
		t.Errorf("%d workers were started: %s", len(found), p.errAll.String())
	}
	for _, m := range found {
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s, and it is still there: %v", m[0], err)
		}
	}
	left, err := os.ReadDir(p.temp)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		t.Errorf("%s is left behind", entry.Name())
	}
}

func TestDemoShowsWhatItPromises(t *testing.T) {
	started := time.Now()
	p := startProcess(t, "demo", "--quick")
	code := p.wait(t)
	out, errAll := p.out.String(), p.errAll.String()
	for _, want := range []string{"demo: ok", "steers delivered", "The file has five lines.\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("stdout is without %q", want)
		}
	}
	for _, want := range []string{"a scripted one", "SIGKILL to worker-", "another worker goes on", "» " + demoSteer, "» " + demoFollowUp} {
		if !strings.Contains(errAll, want) {
			t.Errorf("stderr is without %q", want)
		}
	}
	if code != exitOK {
		t.Errorf("exit code is %d", code)
	}
	if t.Failed() {
		t.Logf("after %s\nstdout:\n%s\nstderr:\n%s", time.Since(started), out, errAll)
	}
	p.nothingIsLeft(t)
}

func TestDemoUsesARealEndpoint(t *testing.T) {
	endpoint := looptest.NewScript()
	defer endpoint.Close()
	endpoint.Otherwise(func(req *looptest.Request) looptest.Answer { return demoReply(req, 10*time.Millisecond) })
	p := startProcess(t, "demo", "--base-url", endpoint.BaseURL(), "--model", "real-1")
	code := p.wait(t)
	if code != exitOK || !strings.Contains(p.out.String(), "with real-1") {
		t.Errorf("exit code is %d\n%s\n%s", code, p.out.String(), p.errAll.String())
	}
	if want := "model: real-1 at " + endpoint.BaseURL(); !strings.Contains(p.errAll.String(), want) {
		t.Errorf("stderr is without %q", want)
	}
	if len(endpoint.Requests()) == 0 {
		t.Error("the endpoint was not asked")
	}
	p.nothingIsLeft(t)
}

func TestDemoInterruptedLeavesNothing(t *testing.T) {
	p := startProcess(t, "demo")
	if !p.until("steered") {
		t.Fatalf("the demo ended: %s", p.errAll.String())
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != exitInterrupted {
		t.Errorf("exit code is %d, want %d: %s", code, exitInterrupted, p.errAll.String())
	}
	if strings.Contains(p.out.String(), "demo: ok") {
		t.Error("an interrupted demo says ok")
	}
	p.nothingIsLeft(t)
}

func TestDemoWorkersEndWithTheDemo(t *testing.T) {
	p := startProcess(t, "demo")
	if !p.until("steered") {
		t.Fatalf("the demo ended: %s", p.errAll.String())
	}
	var pids []int
	for _, m := range workerProcess.FindAllStringSubmatch(p.errAll.String(), -1) {
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	// They notice by the end of their standard input. Nobody here is their
	// parent, so there is nothing to wait on but the process table.
	var wg sync.WaitGroup
	for _, pid := range pids {
		wg.Go(func() {
			deadline := time.After(10 * time.Second)
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for isRunning(pid) {
				select {
				case <-tick.C:
				case <-deadline:
					t.Errorf("worker process %d outlives the demo", pid)
					return
				}
			}
		})
	}
	wg.Wait()
}

// isRunning is false for a process that is gone, or a zombie that its new
// parent has not collected.
func isRunning(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !errors.Is(err, os.ErrNotExist)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestInterruptSignalDetachesTheProcess(t *testing.T) {
	f := newFleet(t)
	p := startProcess(t, "--server", f.Server.ClientURL(), "prompt", "--session", "s", "hi")
	if !p.until("session s · prompt 1") {
		t.Fatalf("the prompt ended: %s", p.errAll.String())
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	code, errAll := p.wait(t), p.errAll.String()
	if code != exitInterrupted || !strings.Contains(errAll, "the prompt runs on") || !strings.Contains(errAll, "pi-cli tail s") {
		t.Errorf("exit code is %d: %s", code, errAll)
	}
	if text, _ := contentOf(f.lastInput(t, "agent.s.prompt").Content); text != "hi" {
		t.Errorf("the prompt is %q", text)
	}
}

func TestInterruptEndsTheReadingOfInput(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "prompt", "-")
	cmd.Env = append(os.Environ(), asCLI+"=1")
	stdin, err := cmd.StdinPipe() // stays open: there is no end to read
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	exit, ok := errors.AsType[*exec.ExitError](cmd.Wait())
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("the command ended with %v, want it ended by SIGINT", exit)
	}
}
