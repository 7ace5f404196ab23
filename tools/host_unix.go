//go:build unix

package tools

import (
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Flags for opening what may turn out to be something else than it was: a pipe
// must not block, a terminal must not become ours, a link must not be followed.
const (
	openNonblock  = unix.O_NONBLOCK
	openNoTTY     = unix.O_NOCTTY
	openNoFollow  = unix.O_NOFOLLOW
	openDirectory = unix.O_DIRECTORY
)

// errnoName is the name that C and Node.js give to an error, such as ENOENT.
func errnoName(errno syscall.Errno) string { return unix.ErrnoName(errno) }

// waitStatus reads a wait status as the kernel encodes it.
func waitStatus(n int) commandStatus {
	status := syscall.WaitStatus(n)
	if status.Signaled() {
		return commandStatus{exited: true, signal: unix.SignalName(status.Signal())}
	}
	return commandStatus{exited: true, code: status.ExitStatus()}
}

// keepOwner gives a new file the owner of the one that it will replace, as far
// as the worker may.
func keepOwner(f *os.File, old fs.FileInfo) {
	if st, ok := old.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(st.Uid), int(st.Gid))
	}
}

// withoutRoot is the same directory as a file that does not know its root. One
// that does examines every entry when it is listed, which takes most of a
// walk's time; this one asks only where the file system gives no types, by a
// name that leads to the open directory and nowhere else.
func withoutRoot(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	open := "/dev/fd/"
	if runtime.GOOS == "linux" {
		open = "/proc/self/fd/"
	}
	return os.NewFile(uintptr(fd), open+strconv.Itoa(fd)), nil
}
