package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// maxDepth is the deepest folder that is saved.
const maxDepth = 256

// stat is what tells that a file is the one that it was.
type stat struct {
	size, mtime, ctime int64
	inode              uint64
}

// File systems count time in steps: a change in the same step as the reading
// may leave no trace. Between two of the kernel's are 10 ms at most; a time of
// change may also be a coarse one that the file system rounds.
const (
	coarseTime = 2 * time.Second
	coarseStep = 20 * time.Millisecond
)

// sureAt says that a file which was read from at on, and has this stat, cannot
// be changed without a trace.
func (s stat) sureAt(at time.Time) bool {
	return s.mtime < at.Add(-coarseTime).UnixNano() && s.ctime < at.Add(-coarseStep).UnixNano()
}

// scanned is an entry without its content.
type scanned struct {
	entry
	stat stat
}

// scanner lists a folder.
type scanner struct {
	t     *Tree
	ctx   context.Context
	root  *os.Root // of the whole
	found []scanned
	bytes int64
	// opened are folders that were closed to their owner, innermost last.
	opened []func()
}

// scan lists the folder in the order of the paths, parents first. It opens no
// file. close puts the folders' permissions back.
func (t *Tree) scan(ctx context.Context, root *os.Root) (s *scanner, err error) {
	s = &scanner{t: t, ctx: ctx, root: root}
	if err := s.dir(root, "", 0); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *scanner) close() {
	for _, shut := range slices.Backward(s.opened) {
		shut()
	}
}

func (s *scanner) dir(dir *os.Root, rel string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("snapshot: folders are nested more than %d deep", maxDepth)
	}
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, base := range names {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if err := s.entry(dir, path.Join(rel, base), base, depth); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) entry(dir *os.Root, p, base string, depth int) error {
	info, err := dir.Lstat(base)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a command that still runs
	}
	if err != nil {
		return err
	}
	if s.t.excluded(p, info.IsDir()) {
		return nil
	}
	e := scanned{entry: entry{Path: name(p), Mode: uint32(info.Mode().Perm())}, stat: statOf(info)}
	switch {
	case info.IsDir():
		e.Kind = kindDir
	case info.Mode().IsRegular():
		e.Size, e.Time = info.Size(), info.ModTime().UnixNano()
		s.bytes += e.Size
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := dir.Readlink(base)
		if err != nil {
			return ignoreGone(err)
		}
		e.Kind, e.Target, e.Mode = kindLink, name(target), 0
	default:
		return nil // nothing that a copy could stand for
	}
	s.found = append(s.found, e)
	if len(s.found) > s.t.opts.MaxFiles || s.bytes > s.t.opts.MaxBytes {
		return &CapError{Files: len(s.found), MaxFiles: s.t.opts.MaxFiles, Bytes: s.bytes, MaxBytes: s.t.opts.MaxBytes}
	}
	if !info.IsDir() {
		return nil
	}
	if perm := info.Mode().Perm(); perm&0o500 != 0o500 && os.Geteuid() != 0 {
		s.open(p, perm)
	}
	sub, err := dir.OpenRoot(base)
	if err != nil {
		return ignoreGone(err)
	}
	defer sub.Close()
	return s.dir(sub, p, depth+1)
}

// open lets the owner into a folder that a command has closed, until the save
// is over.
func (s *scanner) open(p string, perm fs.FileMode) {
	if s.root.Chmod(p, perm|0o500) == nil {
		s.opened = append(s.opened, func() { _ = s.root.Chmod(p, perm) })
	}
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) || strings.Contains(err.Error(), "path escapes") {
		return nil
	}
	return err
}

// openFile opens a regular file for reading, never through a link, and never
// anything else.
func openFile(root *os.Root, p string) (*os.File, fs.FileInfo, error) {
	const flags = os.O_RDONLY | openSafely
	f, err := root.OpenFile(p, flags, 0)
	if errors.Is(err, os.ErrPermission) {
		if before, statErr := root.Lstat(p); statErr == nil && before.Mode().IsRegular() && root.Chmod(p, before.Mode().Perm()|0o400) == nil {
			f, err = root.OpenFile(p, flags, 0)
			_ = root.Chmod(p, before.Mode().Perm())
		}
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("snapshot: %q is no file any more: %w", p, os.ErrNotExist)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}
