package tools

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A command does not run as a child of the worker but of a keeper: this same
// binary, started again under the name keeperName. The keeper is the parent of
// every process that the command leaves behind, whatever session or group that
// process moved to, because it is process 1 of a PID namespace or, where the
// kernel allows none, a child subreaper. So it can end them all, and it does so
// at every end: of the shell, of the call, and of the worker, whose death it
// sees by the end of the control pipe.

// Descriptors of the keeper, besides the command's three.
const (
	keeperControl = 3 // its end means: kill everything now
	keeperStatus  = 4 // one line: "exit <wait status>" or "error <text>"
)

const (
	// lingerTime is how long processes that outlive the shell may still write.
	lingerTime = 100 * time.Millisecond
	// termTime is how long they have between SIGTERM and SIGKILL.
	termTime = 200 * time.Millisecond
	// killTime bounds the wait for killed processes; only one that the kernel
	// holds in a system call takes so long.
	killTime = 5 * time.Second
)

// isolation is how commands are kept apart from other processes.
type isolation string

// Isolation says how this host lets commands be kept apart from its other
// processes: "pid" (own PID and mount namespace), "user" (the same, in a user
// namespace) or "reaper" (no namespaces: commands are still ended whole unless
// one kills its own keeper, but Options.Private and Options.NoNetwork are not to
// be had).
func Isolation() string { return string(bestIsolation()) }

const (
	// isolatePID: own PID and mount namespace, with a /proc of its own.
	isolatePID isolation = "pid"
	// isolateUser: the same inside a user namespace, for ordinary users.
	isolateUser isolation = "user"
	// isolateReaper: no namespace; the keeper is a child subreaper.
	isolateReaper isolation = "reaper"
)

func init() {
	if len(os.Args) < 2 || os.Args[0] != keeperName && os.Args[0] != limiterName {
		return
	}
	var how keeping
	err := json.Unmarshal([]byte(os.Args[1]), &how)
	switch {
	case err != nil:
		report("error " + err.Error())
	case os.Args[0] == limiterName:
		runLimited(how.Limits, os.Args[2:])
	default:
		closeOnExec()
		runKeeper(how, os.Args[2:])
	}
	syscall.Exit(0) // not os.Exit, whose hooks may write to the command's output
}

// closeOnExec keeps everything but the three standard descriptors from the
// command: the keeper's own, and those that the worker itself inherited.
func closeOnExec() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	names, _ := os.ReadDir("/proc/self/fd") // kernels before 5.11
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// bestIsolation finds out once what the kernel allows.
var bestIsolation = sync.OnceValue(func() isolation {
	for _, level := range []isolation{isolatePID, isolateUser} {
		if level == isolateUser && os.Geteuid() == 0 {
			continue // one mapped id is not what root's commands expect
		}
		cmd := keeperCommand(keeping{Level: level}, nil)
		if cmd.Run() == nil {
			return level
		}
	}
	// /proc shows the commands this process. At least nobody of the same user
	// may read its memory and environment.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	return isolateReaper
})

// keeperCommand is a keeper that runs argv; without argv it only tries whether
// its isolation works.
func keeperCommand(k keeping, argv []string) *exec.Cmd {
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        append([]string{keeperName, string(mustJSON(k))}, argv...),
		Env:         []string{},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	switch k.Level {
	case isolateUser:
		attr := cmd.SysProcAttr
		attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		// An ordinary user's powers in the namespace would end with the exec of
		// the keeper, which needs them; it drops them before it starts the shell.
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	case isolatePID:
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	}
	if k.Workspace != "" {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWIPC
	}
	if k.NoNetwork {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
	return cmd
}

// keeper runs in the second process.
type keeper struct {
	shell   int
	status  chan syscall.WaitStatus // the shell's
	gone    chan struct{}           // closed when there is no child left
	killNow chan struct{}           // closed when the worker says so, or died
}

func runKeeper(how keeping, argv []string) {
	runtime.LockOSThread()
	// Handlers, not "ignore": that would be inherited.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	if how.Level != isolateReaper {
		if err := how.isolate(); err != nil {
			report("error " + err.Error())
			syscall.Exit(1)
		}
	}
	if len(argv) == 0 {
		return
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		report("error " + err.Error())
		return
	}
	k := &keeper{
		status: make(chan syscall.WaitStatus, 1), gone: make(chan struct{}), killNow: make(chan struct{}),
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		report("error " + err.Error())
		return
	}
	argv = how.limited(argv)
	pid, err := syscall.ForkExec(argv[0], argv[1:], &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		report("error " + err.Error())
		return
	}
	k.shell = pid
	k.watch()
	status, ok := k.wait()
	if ok {
		report("exit " + strconv.Itoa(int(status)))
	}
}

func report(line string) { _, _ = unix.Write(keeperStatus, []byte(line)) }

// isolate arranges this namespace's file system.
func (k keeping) isolate() error {
	if k.NoNetwork {
		_ = loopbackUp() // without it commands cannot talk to themselves, no more
	}
	if err := ownProc(); err != nil || k.Workspace == "" {
		return err
	}
	return hideHost(k)
}

// ownProc shows only this namespace's processes under /proc.
func ownProc() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// watch starts the two goroutines that live as long as the process.
func (k *keeper) watch() {
	var wg sync.WaitGroup // never waited for: the process ends
	wg.Go(func() {
		defer close(k.gone)
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, 0, nil)
			switch {
			case errors.Is(err, syscall.EINTR):
			case err != nil:
				return
			case pid == k.shell:
				k.status <- status
			}
		}
	})
	wg.Go(func() {
		var b [1]byte
		for {
			if _, err := unix.Read(keeperControl, b[:]); !errors.Is(err, unix.EINTR) {
				close(k.killNow)
				return
			}
		}
	})
}

// wait returns the shell's status when nothing that it started is left. Not
// ok: it was ended from outside, by a deadline or an abort; then all is killed
// at once, as pi does, and no trap runs.
func (k *keeper) wait() (status syscall.WaitStatus, ok bool) {
	select {
	case status = <-k.status:
	case <-k.killNow:
		k.killAll()
		return 0, false
	}
	switch {
	case k.within(lingerTime):
	default:
		k.signalAll(unix.SIGTERM)
		if !k.within(termTime) {
			k.killAll()
		}
	}
	return status, true
}

// within waits for the last process to end; false if it is still there or if
// the worker wants no more waiting.
func (k *keeper) within(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-k.gone:
		return true
	case <-k.killNow:
	case <-t.C:
	}
	return false
}

// killAll kills until nothing is left: a process may start others meanwhile.
func (k *keeper) killAll() {
	for end := time.Now().Add(killTime); time.Now().Before(end); {
		k.signalAll(unix.SIGKILL)
		t := time.NewTimer(2 * time.Millisecond)
		select {
		case <-k.gone:
			return
		case <-t.C:
		}
	}
}

// signalAll signals everything below the keeper. A stopped process is woken,
// so that it can act on it.
func (k *keeper) signalAll(sig syscall.Signal) {
	if os.Getpid() == 1 {
		_ = unix.Kill(-1, sig)
		_ = unix.Kill(-1, unix.SIGCONT)
		return
	}
	for _, pid := range descendants(os.Getpid()) {
		_ = unix.Kill(pid, sig)
		_ = unix.Kill(pid, unix.SIGCONT)
	}
}

// descendants lists the processes below pid, by /proc.
func descendants(pid int) []int {
	children := map[int][]int{}
	for _, child := range processes() {
		if parent, ok := parentOf(child); ok {
			children[parent] = append(children[parent], child)
		}
	}
	var found []int
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		found = append(found, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return found
}

// killSession kills what is left of a session whose keeper is gone.
func killSession(session int) {
	for _, pid := range processes() {
		if id, err := unix.Getsid(pid); err == nil && id == session {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// processes lists the numbers under /proc.
func processes() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func parentOf(pid int) (int, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// The name, in parentheses, may hold anything.
	_, rest, ok := strings.Cut(string(stat[max(0, strings.LastIndexByte(string(stat), ')')):]), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 2 || fields[0] == "Z" {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}
