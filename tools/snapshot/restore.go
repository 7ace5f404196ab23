package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// ErrContent says that a stored content is not the one that its manifest names.
var ErrContent = errors.New("snapshot: content differs from its sum")

// Restore makes the files of a manifest in the folder, which must be empty. An
// error leaves it with a part of them: remove it and begin again.
func (t *Tree) Restore(ctx context.Context, object string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, err := t.fetch(ctx, object)
	if err != nil {
		return fmt.Errorf("snapshot: reading manifest %s: %w", object, err)
	}
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return fmt.Errorf("snapshot: opening the folder: %w", err)
	}
	defer root.Close()
	r := &restoring{t: t, ctx: ctx, root: root, files: map[string][]*entry{}, stats: map[string]examined{}}
	if err := r.all(m); err != nil {
		return err
	}
	t.last, t.lastName, t.stats, t.lost = m, object, r.stats, nil
	return nil
}

func (t *Tree) fetch(ctx context.Context, object string) (*manifest, error) {
	in, err := t.store.Get(ctx, object)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return decode(in)
}

// restoring is one Restore.
type restoring struct {
	t     *Tree
	ctx   context.Context
	root  *os.Root
	files map[string][]*entry // by sum
	stats map[string]examined
}

func (r *restoring) all(m *manifest) error {
	for i := range m.Entries {
		if err := r.begin(&m.Entries[i]); err != nil {
			return fmt.Errorf("snapshot: restoring %q: %w", m.Entries[i].Path, err)
		}
	}
	for i := range m.Packs {
		if err := r.pack(m, i); err != nil {
			return fmt.Errorf("snapshot: restoring from %s: %w", m.Packs[i].Name, err)
		}
	}
	// Last, and from the inside: a folder may be closed to its owner.
	for _, e := range slices.Backward(m.Entries) {
		if e.Kind == kindDir {
			if err := r.root.Chmod(string(e.Path), fs.FileMode(e.Mode)); err != nil {
				return fmt.Errorf("snapshot: restoring %q: %w", e.Path, err)
			}
		}
	}
	return nil
}

// begin makes all but the contents.
func (r *restoring) begin(e *entry) error {
	switch p := string(e.Path); e.Kind {
	case kindDir:
		return r.root.Mkdir(p, 0o700)
	case kindLink:
		return r.root.Symlink(string(e.Target), p)
	}
	if e.Size == 0 {
		return r.write(e, bytes.NewReader(nil))
	}
	r.files[e.Sum] = append(r.files[e.Sum], e)
	return nil
}

// pack writes the files whose contents are in the i-th pack.
func (r *restoring) pack(m *manifest, i int) error {
	in, err := r.t.store.Get(r.ctx, m.Packs[i].Name)
	if err != nil {
		return err
	}
	defer in.Close()
	at := int64(0)
	for _, b := range m.Blobs {
		if b.Pack != i {
			continue
		}
		if b.Offset < at {
			return fmt.Errorf("%w: contents overlap", ErrManifest)
		}
		if _, err := io.CopyN(io.Discard, in, b.Offset-at); err != nil {
			return err
		}
		if err := r.content(b, in); err != nil {
			return err
		}
		at = b.Offset + b.Size
	}
	// The object's own check comes at its end.
	_, err = io.Copy(io.Discard, in)
	return err
}

// content writes one content to all files that have it.
func (r *restoring) content(b blob, in io.Reader) error {
	to := r.files[b.Sum]
	sum := sha256.New()
	from := io.TeeReader(io.LimitReader(in, b.Size), sum)
	if len(to) == 0 {
		_, err := io.Copy(io.Discard, from)
		return err
	}
	if err := r.write(to[0], from); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != b.Sum {
		return fmt.Errorf("%w: %q", ErrContent, to[0].Path)
	}
	for _, e := range to[1:] {
		if err := r.copy(to[0], e); err != nil {
			return err
		}
	}
	return nil
}

func (r *restoring) copy(from, to *entry) error {
	f, _, err := openFile(r.root, string(from.Path))
	if err != nil {
		return err
	}
	defer f.Close()
	return r.write(to, f)
}

// write makes a file as it was.
func (r *restoring) write(e *entry, content io.Reader) error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	p := string(e.Path)
	f, err := r.root.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL|openSafely, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, content)
	if err == nil && n != e.Size {
		err = fmt.Errorf("%w: %q has %d bytes, not %d", ErrContent, e.Path, n, e.Size)
	}
	if err == nil {
		err = f.Chmod(fs.FileMode(e.Mode))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		changed := time.Unix(0, e.Time)
		err = r.root.Chtimes(p, changed, changed)
	}
	if err != nil {
		return err
	}
	info, err := r.root.Lstat(p)
	if err == nil {
		// Nobody else is here yet, and whoever comes gives it a later time.
		r.stats[p] = examined{stat: statOf(info), sum: e.Sum, sure: true}
	}
	return err
}
