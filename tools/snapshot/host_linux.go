package snapshot

import (
	"io/fs"
	"syscall"
)

// openSafely opens what may turn out to be something else than it was: no link
// is followed, no pipe blocks, no terminal becomes ours.
const openSafely = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_NOCTTY

func statOf(info fs.FileInfo) stat {
	s := stat{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode, s.ctime = sys.Ino, sys.Ctim.Nano()
	}
	return s
}
