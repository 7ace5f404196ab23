package tools

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
	"unicode/utf16"

	"github.com/pi-worker/pi-worker/loop"
)

// maxLinks is how many links a path may lead through.
const maxLinks = 40

type writeArgs struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

func (w *Workspace) write(ctx context.Context, args json.RawMessage, _ updater) (loop.ToolResult, error) {
	in, err := unmarshalArgs[writeArgs](args)
	if err != nil {
		return loop.ToolResult{}, err
	}
	if int64(len(in.Content)) > w.opt.Limits.WriteBytes {
		return loop.ToolResult{}, fmt.Errorf("The content has %s, over the limit of %s",
			formatSize(len(in.Content)), formatSize(int(w.opt.Limits.WriteBytes)))
	}
	rel, err := w.resolve(in.Path, false)
	if p, ok := errors.AsType[*pathError](err); ok && p.code == "ENOTDIR" {
		p.code = "EISDIR" // what the system says to a new file whose name ends in a slash
	}
	if err != nil {
		return loop.ToolResult{}, err
	}
	w.writing.Lock()
	defer w.writing.Unlock()
	if err := w.replace(ctx, rel, []byte(in.Content)); err != nil {
		return loop.ToolResult{}, err
	}
	// pi's count: UTF-16 units, whatever it calls them.
	units := len(utf16.Encode([]rune(in.Content)))
	return loop.TextResult(fmt.Sprintf("Successfully wrote %d bytes to %s", units, in.Path)), nil
}

// replace gives a file its whole content at once: whoever reads it finds the
// old or the new one. Links are followed, the mode is kept, missing parents are
// made. The caller holds w.writing.
func (w *Workspace) replace(ctx context.Context, rel string, content []byte) error {
	rel, err := w.target(rel)
	if err != nil {
		return hostError(err, rel)
	}
	dir := path.Dir(rel)
	if err := w.makeParents(dir); err != nil {
		return err
	}
	old, err := w.root.Lstat(rel)
	switch {
	case errors.Is(err, os.ErrNotExist):
		old = nil
	case err != nil:
		return hostError(err, rel)
	default:
		if err := w.mayOverwrite(old, rel); err != nil {
			return err
		}
	}
	temp, err := w.writeTemp(ctx, dir, content, old)
	if err != nil {
		return hostError(err, rel)
	}
	if err := w.root.Rename(temp, rel); err != nil {
		_ = w.root.Remove(temp)
		return hostError(err, rel)
	}
	return nil
}

// mayOverwrite asks what opening the file for writing would have answered.
func (w *Workspace) mayOverwrite(old fs.FileInfo, rel string) error {
	if err := mustBeRegular(old, rel); err != nil {
		return err
	}
	f, err := w.root.OpenFile(rel, os.O_WRONLY|openNonblock|openNoTTY, 0)
	if err != nil {
		return hostError(err, rel)
	}
	return hostError(f.Close(), rel)
}

func (w *Workspace) makeParents(dir string) error {
	if info, err := w.root.Stat(dir); err == nil && !info.IsDir() {
		return fileError("EEXIST", "the parent is a file", dir)
	}
	return hostError(w.root.MkdirAll(dir, 0o777), dir)
}

// writeTemp writes a file beside the one that it will replace.
func (w *Workspace) writeTemp(ctx context.Context, dir string, content []byte, old fs.FileInfo) (name string, err error) {
	var id [8]byte
	rand.Read(id[:])
	name = path.Join(dir, ".pi-"+hex.EncodeToString(id[:])+".tmp")
	f, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			_ = w.root.Remove(name)
		}
	}()
	if old != nil {
		keepOwner(f, old)
		if err := f.Chmod(old.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)); err != nil {
			return "", err
		}
	}
	for len(content) > 0 {
		if err := aborted(ctx); err != nil {
			return "", err
		}
		n := min(len(content), 1<<20)
		if _, err := f.Write(content[:n]); err != nil {
			return "", err
		}
		content = content[n:]
	}
	return name, aborted(ctx)
}

// target follows the links of a path to the file that they mean, which need
// not exist. What it returns has no links unless somebody swaps them in, and
// then the root still holds.
func (w *Workspace) target(rel string) (string, error) {
	links := 0
	done := "."
	for todo := rel; todo != ""; {
		var part string
		part, todo = cutPath(todo)
		switch part {
		case "", ".":
			continue
		case "..":
			if done == "." {
				return rel, errOutside
			}
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		info, err := w.root.Lstat(next)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			done = next // what is wrong with it will be said when it is used
			continue
		}
		if links++; links > maxLinks {
			return rel, syscall.ELOOP
		}
		to, err := w.root.Readlink(next)
		if err != nil {
			return rel, err
		}
		if path.IsAbs(to) {
			return rel, errOutside
		}
		todo = to + "/" + todo
	}
	return done, nil
}

func cutPath(p string) (first, rest string) {
	for i := range len(p) {
		if p[i] == '/' {
			return p[:i], p[i+1:]
		}
	}
	return p, ""
}
