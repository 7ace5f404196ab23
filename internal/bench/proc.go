package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"time"
)

// roleEnv makes this binary a child; configEnv has its configuration.
const (
	roleEnv   = "BENCH_ROLE"
	configEnv = "BENCH_CONFIG"
)

// stats is what a child says of itself.
type stats struct {
	CPU      time.Duration // of the process since its start
	RSS      int64         // bytes
	Heap     int64         // bytes in use and stacks, after a collection if one was asked for
	Out      uint64        // bytes sent to the broker
	OutMsgs  uint64
	Busy     time.Duration // of the model: time spent writing answers
	Answers  int           // of the model
	Duration time.Duration // of a bare run
	Events   int           // of a bare run
}

// child is one process of a run. It answers one line on its standard output
// for each line on its standard input, and ends with its standard input.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	mu    sync.Mutex // one question at a time
	out   *bufio.Reader
	hello string
}

// spawn runs this binary once more, in a role, and waits for its first line.
func spawn(role string, config any, env ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	c := &child{name: role, cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), append(env, roleEnv+"="+role, configEnv+"="+string(b))...)
	c.cmd.Stderr = os.Stderr
	// Ctrl-C is the parent's alone.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", role, err)
	}
	if c.hello, err = c.line(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *child) line() (string, error) {
	s, err := c.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s ended: %w", c.name, err)
	}
	return strings.TrimSpace(s), nil
}

// ask sends one command: "stats", "gc" (collect first), or what the role knows.
func (c *child) ask(command string) (stats, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := io.WriteString(c.stdin, command+"\n"); err != nil {
		return stats{}, fmt.Errorf("asking %s: %w", c.name, err)
	}
	s, err := c.line()
	if err != nil {
		return stats{}, err
	}
	var st stats
	if err := json.Unmarshal([]byte(s), &st); err != nil {
		return stats{}, fmt.Errorf("%s answers %q: %w", c.name, s, err)
	}
	return st, nil
}

// close lets the child end, and waits.
func (c *child) close() error {
	if c == nil {
		return nil
	}
	c.stdin.Close()
	late := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, c.out)
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// serveRole is the child's side: hello, then an answer for each line, until
// standard input ends. Then the parent is gone, however it went.
func serveRole(hello string, answer func(command string, st *stats) error) error {
	signal.Ignore(os.Interrupt)
	fmt.Println(hello)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() == "gc" {
			runtime.GC()
			debug.FreeOSMemory()
		}
		var st stats
		if err := answer(in.Text(), &st); err != nil {
			return err
		}
		measure(&st)
		b, err := json.Marshal(st)
		if err != nil {
			return err
		}
		fmt.Println(string(b))
	}
	return in.Err()
}

func measure(st *stats) {
	st.CPU = cpuTime()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	st.Heap = int64(m.HeapAlloc + m.StackInuse)
	if b, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(b)) {
			var kib int64
			if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
				st.RSS = kib << 10
			}
		}
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// profile writes a CPU profile of a child into the folder, if there is one.
func profile(folder, name string) (stop func(), err error) {
	if folder == "" {
		return func() {}, nil
	}
	f, err := os.Create(filepath.Join(folder, name+".pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
