package wire

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pi-worker/pi-worker/tools"
)

// A workspace that does not outlive its ownership is a folder
// pi-worker-<session>-<random>, and beside it a file <folder>.lock, which its
// worker holds locked while it lives. What lies there unlocked was left behind by
// a worker that was killed. A folder without the file is nobody's to remove.
const (
	tempPrefix = "pi-worker-"
	lockSuffix = ".lock"
)

// locks are those of one worker's workspaces, by folder. The zero value has none.
type locks struct {
	mu    sync.Mutex
	files map[string]*os.File
}

func (l *locks) add(dir string, f *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files == nil {
		l.files = map[string]*os.File{}
	}
	l.files[dir] = f
}

// take gives a folder's lock away, nil if there is none.
func (l *locks) take(dir string) *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.files[dir]
	delete(l.files, dir)
	return f
}

// makeTemp makes a workspace in root, "" the system's temporary folder.
func (a *Agents) makeTemp(root, session string) (string, error) {
	if err := a.makeParent(); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(root, tempPrefix+session+"-")
	if err != nil {
		return "", err
	}
	lock, err := lockFile(dir+lockSuffix, os.O_CREATE|os.O_EXCL)
	if err != nil {
		// A sweep that saw the file before it was locked removes both.
		return "", errors.Join(fmt.Errorf("locking workspace %s: %w", dir, err), os.RemoveAll(dir))
	}
	a.locks.add(dir, lock)
	return dir, nil
}

// unlock gives a workspace's lock up: either the folder is gone, or it stays for
// a person.
func (a *Agents) unlock(dir string) {
	lock := a.locks.take(dir)
	if lock == nil {
		return
	}
	if err := errors.Join(os.Remove(dir+lockSuffix), lock.Close()); err != nil {
		a.log.Warn("removing a workspace's lock", "dir", dir, "error", err)
	}
}

// sweepTemp removes the workspaces that killed workers of this user left in
// root.
func (a *Agents) sweepTemp(root string) {
	if root == "" {
		root = os.TempDir()
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return // the first workspace will say so
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), lockSuffix)
		if !ok || !strings.HasPrefix(name, tempPrefix) {
			continue
		}
		dir := filepath.Join(root, name)
		if !isOwn(dir+lockSuffix, 0) || !isOwn(dir, os.ModeDir) {
			continue
		}
		lock, err := lockFile(dir+lockSuffix, 0)
		if err != nil {
			continue // its worker lives
		}
		err = errors.Join(tools.Remove(dir), os.Remove(dir+lockSuffix), lock.Close())
		if err != nil {
			a.log.Warn("removing the workspace of a worker that is gone", "dir", dir, "error", err)
			continue
		}
		a.log.Info("removed the workspace of a worker that is gone", "dir", dir)
	}
}
