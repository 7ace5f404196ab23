package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// The argv[0] of this binary's further forms, see shell_linux.go.
const (
	keeperName  = "pi-tool-keeper"
	limiterName = "pi-tool-limits"
)

// keeping says how a keeper isolates and limits its command.
type keeping struct {
	Level isolation
	// Workspace is set for private commands, and Home is the worker's then.
	Workspace, Home string
	Hidden          []string
	NoNetwork       bool
	Limits          CommandLimits
}

// keeping is how the workspace's options want commands to be kept.
func (w *Workspace) keeping() (keeping, error) {
	k := keeping{Level: w.isolation(), NoNetwork: w.opt.NoNetwork, Limits: w.opt.Limits.Command}
	if (w.opt.Private || w.opt.NoNetwork) && k.Level == isolateReaper {
		return k, errNoNamespaces
	}
	if w.opt.Private {
		k.Workspace, k.Home, k.Hidden = w.dir, os.Getenv("HOME"), w.opt.Hidden
	}
	return k, nil
}

const (
	// updateEvery is the least time between two updates.
	updateEvery = 100 * time.Millisecond
	// manyUpdates is how many bytes of updates a command may send at that
	// pace; then they come ten times slower.
	manyUpdates = 1 << 20
	// keeperTime is how long the keeper may take to end everything.
	keeperTime = 7 * time.Second
)

// pipes are those between the worker and a keeper.
type pipes struct {
	outR, outW, controlR, controlW, statusR, statusW *os.File
}

func (p *pipes) open() error {
	var errs [3]error
	p.outR, p.outW, errs[0] = os.Pipe()
	p.controlR, p.controlW, errs[1] = os.Pipe()
	p.statusR, p.statusW, errs[2] = os.Pipe()
	if err := errors.Join(errs[:]...); err != nil {
		p.close()
		return startError(err)
	}
	return nil
}

// closeChildEnds leaves the keeper as the only holder of its ends.
func (p *pipes) closeChildEnds() {
	p.outW.Close()
	p.controlR.Close()
	p.statusW.Close()
}

// close closes what is open; closing twice does no harm.
func (p *pipes) close() {
	for _, f := range []*os.File{p.outR, p.outW, p.controlR, p.controlW, p.statusR, p.statusW} {
		if f != nil {
			f.Close()
		}
	}
}

// commandStatus is how a shell ended.
type commandStatus struct {
	exited bool   // by itself, not by the deadline or an abort
	code   int    // exit code
	signal string // name of the signal that killed it, "" if none did
}

// runCommand runs argv (its file first) under a keeper until it and everything
// that it started has ended. The end of ctx kills.
func (w *Workspace) runCommand(ctx context.Context, argv []string, out *output, update updater) (commandStatus, error) {
	var p pipes
	if err := p.open(); err != nil {
		return commandStatus{}, err
	}
	defer p.close()
	env, ownTmp := w.environment()
	if ownTmp {
		_ = w.privateFolder("tmp") // without it the command says so itself
	}
	how, err := w.keeping()
	if err != nil {
		return commandStatus{}, err
	}
	cmd := keeperCommand(how, argv)
	cmd.Env, cmd.Dir = env, w.dir
	cmd.Stdout, cmd.Stderr = p.outW, p.outW
	cmd.ExtraFiles = []*os.File{p.controlR, p.statusW}
	if err := cmd.Start(); err != nil {
		return commandStatus{}, startError(err)
	}
	p.closeChildEnds()

	var readers sync.WaitGroup
	var line []byte
	readers.Go(func() { line, _ = io.ReadAll(io.LimitReader(p.statusR, 4096)) })
	readers.Go(func() { pump(p.outR, out, update) })
	waitKeeper(ctx, cmd, &p)
	if cmd.ProcessState == nil || !cmd.ProcessState.Exited() {
		killSession(cmd.Process.Pid)
	}
	// Nobody is left to write; a process that the kernel will not let go must
	// not hold the call.
	late := time.AfterFunc(time.Second, func() { p.outR.Close(); p.statusR.Close() })
	readers.Wait()
	late.Stop()
	status, err := parseStatus(string(line))
	if err == nil && !status.exited && ctx.Err() == nil {
		err = errors.New("Command ended in an unknown way: its keeper was killed")
	}
	return status, err
}

// waitKeeper waits for the keeper's end, which the end of ctx brings about.
func waitKeeper(ctx context.Context, cmd *exec.Cmd, p *pipes) {
	done := make(chan struct{})
	var waiter sync.WaitGroup
	waiter.Go(func() {
		defer close(done)
		_ = cmd.Wait() // the status comes by its pipe
	})
	select {
	case <-done:
	case <-ctx.Done():
		p.controlW.Close()
		t := time.NewTimer(keeperTime)
		defer t.Stop()
		select {
		case <-done:
		case <-t.C:
			_ = cmd.Process.Kill()
		}
	}
	waiter.Wait()
}

// errNoNamespaces refuses commands that could not be kept as the options ask.
var errNoNamespaces = errors.New("Command could not be started: this worker cannot isolate commands as its configuration asks")

func startError(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return fmt.Errorf("Command could not be started: %s: %s", errnoName(errno), errno.Error())
	}
	return errors.New("Command could not be started")
}

// parseStatus reads what the keeper said; nothing means that it was ended.
func parseStatus(line string) (commandStatus, error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "error":
		return commandStatus{}, errors.New("Command could not be started: " + rest)
	case "exit":
		n, err := strconv.Atoi(rest)
		if err != nil {
			return commandStatus{}, errors.New("Command ended in an unknown way")
		}
		return waitStatus(n), nil
	}
	return commandStatus{}, nil
}

// pump reads a command's output to its end and publishes the new part of it
// from time to time.
func pump(r *os.File, out *output, update updater) {
	u := updates{send: update, out: out}
	buf := make([]byte, 64<<10)
	for {
		if u.pending() {
			_ = r.SetReadDeadline(u.next)
		}
		n, err := r.Read(buf)
		if n > 0 {
			u.add(out.add(buf[:n], false))
		}
		if u.pending() && !time.Now().Before(u.next) {
			u.flush()
			_ = r.SetReadDeadline(time.Time{})
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			u.add(out.add(nil, true))
			u.flush()
			return
		}
	}
}

// updates gathers the part of the output that was not published yet.
type updates struct {
	send updater
	out  *output
	next time.Time // when an update may go out
	part []byte
	sent int
}

func (u *updates) pending() bool { return len(u.part) > 0 }

// add takes new text. What comes too fast to be published is cut at the front.
func (u *updates) add(text []byte) {
	u.part = append(u.part, text...)
	if len(u.part) > 4*maxBytes {
		u.part = append(u.part[:0], u.part[partialLine(u.part):]...)
	}
}

func (u *updates) flush() {
	if len(u.part) == 0 {
		return
	}
	part := u.part[partialLine(u.part):]
	r := loop.TextResult(string(part))
	r.Details = emptyDetails
	if t := u.out.truncate(); t != nil {
		t.Content = ""
		r.Details = mustJSON(bashDetails{t, u.out.filePath, nil})
	}
	u.send(r)
	u.sent += len(part)
	u.part = u.part[:0]
	every := updateEvery
	if u.sent > manyUpdates {
		every *= 10
	}
	u.next = time.Now().Add(every)
}
