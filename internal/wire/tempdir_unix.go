//go:build unix

package wire

import (
	"errors"
	"os"
	"syscall"
)

// lockFile opens and locks a file, without waiting. The lock ends with the file
// and with the process.
func lockFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// isOwn says that path is of the type, no link, and belongs to this user; what
// does not exist is nobody's and so is as good.
func isOwn(path string, typ os.FileMode) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().Type() == typ && int(stat.Uid) == os.Getuid()
}
