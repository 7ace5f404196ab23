package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"time"
)

const (
	// packSize is how much content goes into one object, in bytes; a larger
	// file is an object of its own.
	packSize = 4 << 20
	// smallPack and manyPacks: when there are more than manyPacks, the small
	// ones are put together.
	smallPack = packSize / 4
	manyPacks = 48
)

// Save stores what the folder has, unless nothing has changed since the last
// Save or Restore: then it is nil. Files that change meanwhile are stored as
// they are found; the next Save finds them changed. The error is a [CapError]
// if the folder is over a limit. After an error the last snapshot stays what
// it was, and another Save may be tried.
func (t *Tree) Save(ctx context.Context) (*Saved, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return nil, fmt.Errorf("snapshot: opening the folder: %w", err)
	}
	defer root.Close()
	scan, err := t.scan(ctx, root)
	if err != nil {
		return nil, plain("listing the folder", err)
	}
	defer scan.close()
	s := newSaving(t, ctx, root)
	entries, err := s.contents(scan.found)
	if err == nil && (s.renew || !t.same(entries)) {
		return s.finish(entries)
	}
	if err == nil {
		t.stats = s.stats
	}
	return nil, s.failed(err)
}

// plain keeps CapError as it is.
func plain(doing string, err error) error {
	if _, ok := errors.AsType[*CapError](err); ok {
		return err
	}
	return fmt.Errorf("snapshot: %s: %w", doing, err)
}

func (t *Tree) same(entries []entry) bool {
	if t.last == nil {
		return len(entries) == 0
	}
	return slices.Equal(entries, t.last.Entries)
}

// saving is one Save.
type saving struct {
	t     *Tree
	ctx   context.Context
	root  *os.Root
	began time.Time
	renew bool // nothing that is stored counts

	known  map[string]blob // what is stored, by sum; Pack is in packs
	packs  []pack
	filled bytes.Buffer // the next pack
	inPack []blob       // its contents
	put    []string     // objects that were stored
	stored int64
	stats  map[string]examined
}

func newSaving(t *Tree, ctx context.Context, root *os.Root) *saving {
	s := &saving{t: t, ctx: ctx, root: root, began: time.Now(), known: map[string]blob{}, stats: map[string]examined{}}
	s.renew = t.last != nil && t.opts.RenewAfter > 0 && time.Since(time.Unix(t.last.Made, 0)) > t.opts.RenewAfter
	if t.last != nil && !s.renew {
		s.packs = slices.Clone(t.last.Packs)
		for _, b := range t.last.Blobs {
			s.known[b.Sum] = b
		}
	}
	return s
}

// contents reads what may have changed, and stores what is new of it.
func (s *saving) contents(found []scanned) ([]entry, error) {
	entries := make([]entry, 0, len(found))
	for _, f := range found {
		if f.Kind == kindFile {
			ok, err := s.content(&f.entry, f.stat)
			if err != nil {
				return nil, err
			}
			if !ok {
				continue
			}
		}
		entries = append(entries, f.entry)
	}
	return entries, nil
}

// content fills an entry's sum; false if the file is gone.
func (s *saving) content(e *entry, now stat) (ok bool, err error) {
	if s.ctx.Err() != nil {
		return false, context.Cause(s.ctx)
	}
	p := string(e.Path)
	before, seen := s.t.stats[p]
	if seen && before.sure && before.stat == now {
		if _, stored := s.known[before.sum]; stored || e.Size == 0 {
			e.Sum, s.stats[p] = before.sum, before
			return true, nil
		}
	}
	return s.read(e)
}

// read stores a file's content, unless that is stored.
func (s *saving) read(e *entry) (ok bool, err error) {
	at := time.Now()
	f, info, err := openFile(s.root, string(e.Path))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("snapshot: reading %q: %w", e.Path, err)
	}
	defer f.Close()
	if info.Size() > packSize {
		e.Sum, e.Size, err = s.large(f)
	} else {
		e.Sum, e.Size, err = s.small(f)
	}
	if err != nil {
		return false, fmt.Errorf("snapshot: storing %q: %w", e.Path, err)
	}
	after, err := f.Stat()
	if err != nil {
		return false, err
	}
	st := statOf(info)
	e.Time, e.Mode = st.mtime, uint32(info.Mode().Perm())
	if st == statOf(after) && st.size == e.Size {
		s.stats[string(e.Path)] = examined{stat: st, sum: e.Sum, sure: st.sureAt(at)}
	}
	return true, nil
}

// small puts a content into the next pack. What grows over a pack's size
// meanwhile is cut there, and is found changed by the next Save.
func (s *saving) small(f *os.File) (sum string, size int64, err error) {
	data, err := io.ReadAll(io.LimitReader(f, packSize))
	if err != nil {
		return "", 0, err
	}
	digest := sha256.Sum256(data)
	sum, size = hex.EncodeToString(digest[:]), int64(len(data))
	if _, stored := s.known[sum]; stored || size == 0 {
		return sum, size, nil
	}
	if s.filled.Len()+len(data) > packSize {
		if err := s.flush(); err != nil {
			return "", 0, err
		}
	}
	b := blob{Sum: sum, Pack: len(s.packs), Offset: int64(s.filled.Len()), Size: size}
	s.filled.Write(data)
	s.inPack = append(s.inPack, b)
	s.known[sum] = b // nothing else becomes a pack before this one
	s.stored += size
	return sum, size, nil
}

// flush stores the pack.
func (s *saving) flush() error {
	if len(s.inPack) == 0 {
		return nil
	}
	if err := s.object(bytes.NewReader(s.filled.Bytes()), int64(s.filled.Len())); err != nil {
		return err
	}
	s.filled.Reset()
	s.inPack = s.inPack[:0]
	return nil
}

func (s *saving) object(r io.ReadSeeker, size int64) error {
	object := s.t.nextName()
	s.put = append(s.put, object)
	if err := s.t.store.Put(s.ctx, object, r); err != nil {
		return err
	}
	s.packs = append(s.packs, pack{Name: object, Size: size})
	return nil
}

// large stores a content as an object of its own.
func (s *saving) large(f *os.File) (sum string, size int64, err error) {
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", 0, err
	}
	sum = hex.EncodeToString(h.Sum(nil))
	if b, stored := s.known[sum]; stored {
		return sum, b.Size, nil
	}
	if err := s.flush(); err != nil { // its blobs have the next pack's number
		return "", 0, err
	}
	// It may have changed: what counts is what was stored.
	r := &hashed{f: f}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return "", 0, err
	}
	if err := s.object(r, 0); err != nil {
		return "", 0, err
	}
	last := &s.packs[len(s.packs)-1]
	sum, last.Size = hex.EncodeToString(r.sum.Sum(nil)), r.size
	s.known[sum] = blob{Sum: sum, Pack: len(s.packs) - 1, Size: r.size}
	s.stored += r.size
	return sum, r.size, nil
}

// hashed is a file whose bytes are summed while they are read.
type hashed struct {
	f    *os.File
	sum  hash.Hash
	size int64
}

func (r *hashed) Read(p []byte) (int, error) {
	n, err := r.f.Read(p)
	r.sum.Write(p[:n])
	r.size += int64(n)
	return n, err
}

// Seek is for going back to the beginning only.
func (r *hashed) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekStart {
		return 0, errors.ErrUnsupported
	}
	r.sum, r.size = sha256.New(), 0
	return r.f.Seek(0, io.SeekStart)
}

// failed keeps what was stored for nothing for the next sweep.
func (s *saving) failed(err error) error {
	if len(s.put) > 0 {
		s.t.lost = append(s.t.lost, s.put...)
	}
	return err
}

// finish stores the manifest.
func (s *saving) finish(entries []entry) (*Saved, error) {
	t := s.t
	entries, err := s.repack(entries)
	if err == nil {
		err = s.flush()
	}
	if err != nil {
		return nil, s.failed(err)
	}
	m := s.manifest(entries)
	data, err := m.encode()
	if err != nil {
		return nil, s.failed(fmt.Errorf("snapshot: encoding the manifest: %w", err))
	}
	object := t.nextName()
	s.put = append(s.put, object)
	if err := t.store.Put(s.ctx, object, bytes.NewReader(data)); err != nil {
		return nil, s.failed(fmt.Errorf("snapshot: storing the manifest: %w", err))
	}
	t.last, t.lastName, t.stats, t.lost = m, object, s.stats, nil
	saved := &Saved{Manifest: object, Stored: s.stored}
	for _, e := range entries {
		if e.Kind != kindDir {
			saved.Files++
			saved.Bytes += e.Size
		}
	}
	return saved, nil
}

// repack stores the contents anew of packs that are mostly of no use any more,
// and of small ones if there are many.
func (s *saving) repack(entries []entry) ([]entry, error) {
	if err := s.flush(); err != nil {
		return nil, err
	}
	live := make([]int64, len(s.packs))
	for _, b := range s.needed(entries) {
		live[b.Pack] += b.Size
	}
	drop := map[int]bool{}
	for i, p := range s.packs {
		wasted := live[i] > 0 && live[i] < p.Size/2
		drop[i] = wasted || len(s.packs) > manyPacks && p.Size < smallPack
	}
	again := map[string]bool{}
	for sum, b := range s.known {
		if drop[b.Pack] {
			delete(s.known, sum)
			again[sum] = true
		}
	}
	out := entries[:0:0]
	for _, e := range entries {
		if e.Kind == kindFile && again[e.Sum] {
			if _, ok := s.known[e.Sum]; !ok {
				ok, err := s.read(&e)
				if err != nil {
					return nil, err
				}
				if !ok {
					continue
				}
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// needed are the stored contents of the entries, each once.
func (s *saving) needed(entries []entry) []blob {
	var out []blob
	seen := map[string]bool{}
	for _, e := range entries {
		if b, ok := s.known[e.Sum]; ok && e.Kind == kindFile && !seen[e.Sum] {
			seen[e.Sum] = true
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b blob) int {
		if a.Pack != b.Pack {
			return a.Pack - b.Pack
		}
		return int(a.Offset - b.Offset)
	})
	return out
}

// manifest lists the entries, and the packs that they need.
func (s *saving) manifest(entries []entry) *manifest {
	m := &manifest{Version: version, Entries: entries, Blobs: s.needed(entries)}
	m.Made = s.began.Unix()
	if s.t.last != nil && !s.renew {
		m.Made = s.t.last.Made
	}
	index := map[int]int{}
	for i, b := range m.Blobs {
		at, ok := index[b.Pack]
		if !ok {
			at = len(m.Packs)
			index[b.Pack] = at
			m.Packs = append(m.Packs, s.packs[b.Pack])
		}
		m.Blobs[i].Pack = at
	}
	m.Old = s.t.superfluous(m, s.put)
	return m
}

// superfluous are the objects that m has no use for: those of the snapshot
// before, and of saves that failed.
func (t *Tree) superfluous(m *manifest, put []string) (out []string) {
	use := map[string]bool{}
	for _, p := range m.Packs {
		use[p.Name] = true
	}
	old := slices.Concat(t.lost, put)
	if t.last != nil {
		old = append(slices.Concat(old, t.last.Old), t.lastName)
		for _, p := range t.last.Packs {
			old = append(old, p.Name)
		}
	}
	slices.Sort(old)
	for _, object := range slices.Compact(old) {
		if !use[object] {
			out = append(out, object)
		}
	}
	return out
}
