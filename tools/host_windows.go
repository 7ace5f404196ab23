package tools

import (
	"io/fs"
	"os"
	"syscall"
)

// Windows has no such flags: what is no regular file is refused by its mode.
const (
	openNonblock  = 0
	openNoTTY     = 0
	openNoFollow  = 0
	openDirectory = 0
)

// errnoName is the name that Node.js gives to the errors that people meet; any
// other is EIO, as its text says more.
func errnoName(errno syscall.Errno) string {
	switch errno {
	case syscall.ERROR_FILE_NOT_FOUND, syscall.ERROR_PATH_NOT_FOUND:
		return "ENOENT"
	case syscall.ERROR_ACCESS_DENIED:
		return "EPERM"
	case syscall.ERROR_FILE_EXISTS, syscall.ERROR_ALREADY_EXISTS:
		return "EEXIST"
	case syscall.ERROR_DIR_NOT_EMPTY:
		return "ENOTEMPTY"
	}
	return "EIO"
}

// waitStatus is never asked: no command starts outside Linux.
func waitStatus(n int) commandStatus { return commandStatus{exited: true, code: n} }

// keepOwner does nothing: a new file belongs to the worker's user.
func keepOwner(*os.File, fs.FileInfo) {}

// withoutRoot lists through the root: there is no second handle to be had.
func withoutRoot(f *os.File) (*os.File, error) { return f, nil }
