package tools

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
)

// maxDepth ends the descent into directories.
const maxDepth = 256

// walked is one entry that a walk met.
type walked struct {
	path string // relative to the workspace
	name string
	mode fs.FileMode // type bits
	root *os.Root    // the directory that it is in; open only during the visit
}

// walker goes through a directory in the order of the names. Links are not
// followed, .git and the tools' own folder are left out, and so is what the
// ignore files exclude.
type walker struct {
	ctx context.Context
	// keep may bring back an ignored entry or leave out another; nil: neither.
	keep  func(p string, isDir, ignored bool) bool
	visit func(walked) error

	mu         sync.Mutex
	unreadable []string // what could not be listed or read; guarded by mu
}

// errEnough ends a walk that has what it needs.
var errEnough = errors.New("enough")

// run walks the directory rel, whose root is dir.
func (k *walker) run(w *Workspace, dir *os.Root, rel string) error {
	err := k.walk(dir, clearDot(rel), w.ignoresAbove(rel), 0)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func clearDot(rel string) string {
	if rel == "." {
		return ""
	}
	return rel
}

// ignoresAbove reads the ignore files from the workspace down to the parent of
// rel.
func (w *Workspace) ignoresAbove(rel string) *ignoreSet {
	var set *ignoreSet
	if rel == "." {
		return nil
	}
	dir := "."
	for part := range strings.SplitSeq(rel, "/") {
		root, err := w.root.OpenRoot(dir)
		if err != nil {
			return set
		}
		set = ignoresIn(root, clearDot(dir), nil, set)
		root.Close()
		dir = path.Join(dir, part)
	}
	return set
}

func (k *walker) walk(dir *os.Root, rel string, ignores *ignoreSet, depth int) error {
	entries, err := readDir(dir)
	if err != nil {
		k.noteUnreadable(rel)
	}
	names := map[string]bool{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			names[e.Name()] = true
		}
	}
	ignores = ignoresIn(dir, rel, names, ignores)
	for _, e := range entries {
		if k.ctx.Err() != nil {
			return context.Cause(k.ctx)
		}
		if err := k.entry(dir, rel, e, ignores, depth); err != nil {
			return err
		}
	}
	return nil
}

func (k *walker) entry(dir *os.Root, rel string, e fs.DirEntry, ignores *ignoreSet, depth int) error {
	name := e.Name()
	p := path.Join(rel, name)
	if name == ".git" || p == privateDir {
		return nil
	}
	ok := !ignores.ignores(p, e.IsDir())
	if k.keep != nil {
		ok = k.keep(p, e.IsDir(), !ok)
	}
	if !ok {
		return nil
	}
	if err := k.visit(walked{p, name, e.Type(), dir}); err != nil {
		return err
	}
	if !e.IsDir() || depth >= maxDepth {
		return nil
	}
	sub, err := dir.OpenRoot(name)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			k.noteUnreadable(p)
		}
		return nil
	}
	defer sub.Close()
	return k.walk(sub, p, ignores, depth+1)
}

// readDir lists a directory in the order of the names.
func readDir(dir *os.Root) ([]fs.DirEntry, error) {
	f, err := dir.OpenFile(".", os.O_RDONLY|openDirectory|openNonblock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	plain, err := withoutRoot(f)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	entries, err := plain.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

func (k *walker) noteUnreadable(p string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unreadable = append(k.unreadable, p)
}
