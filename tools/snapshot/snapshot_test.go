//go:build linux

package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store that may break.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	puts    []string
	fail    func(name string) error // nil: never
}

func newMemory() *memory { return &memory{objects: map[string][]byte{}} }

var errBroken = errors.New("the store is broken")

func (m *memory) Put(_ context.Context, name string, r io.ReadSeeker) error {
	data, err := io.ReadAll(r)
	if err == nil {
		_, err = r.Seek(0, io.SeekStart)
	}
	if err == nil { // as after a lost connection
		data, err = io.ReadAll(r)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		if err := m.fail(name); err != nil {
			return err
		}
	}
	if _, twice := m.objects[name]; twice {
		return fmt.Errorf("%s is put twice", name)
	}
	m.objects[name] = data
	m.puts = append(m.puts, name)
	return nil
}

func (m *memory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.objects[name]
	if !ok {
		return nil, fmt.Errorf("no object %s", name)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (m *memory) Delete(_ context.Context, name string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.objects[name]
	delete(m.objects, name)
	return ok, nil
}

func (m *memory) names() []string { return slices.Sorted(maps.Keys(m.objects)) }

func newTree(t testing.TB, store Store, opts Options, epoch string) *Tree {
	t.Helper()
	dir, err := os.MkdirTemp("", "snapshot-test-")
	must(t, err)
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(p, 0o700)
			}
			return nil
		})
		os.RemoveAll(dir)
	})
	tree, err := New(dir, store, opts)
	must(t, err)
	tree.Begin(epoch)
	return tree
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, dir, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, path), []byte(content), 0o644))
}

func save(t testing.TB, tree *Tree) *Saved {
	t.Helper()
	s, err := tree.Save(t.Context())
	must(t, err)
	return s
}

// restored is a tree of another machine.
func restored(t testing.TB, store Store, manifest string) *Tree {
	t.Helper()
	tree := newTree(t, store, Options{}, "2-b")
	must(t, tree.Restore(t.Context(), manifest))
	return tree
}

// listing says all of a folder that a snapshot keeps.
func listing(t testing.TB, dir string) (out []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := strings.TrimPrefix(p, dir+"/") + " " + info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x %q", info.ModTime().UnixNano(), len(data), data[:min(len(data), 40)])
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		out = append(out, line)
		return nil
	}))
	return out
}

func wantSame(t testing.TB, got, want string) {
	t.Helper()
	if a, b := listing(t, got), listing(t, want); !slices.Equal(a, b) {
		t.Errorf("restored\n%s\nwant\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
}

func TestAnotherMachineHasTheSameFiles(t *testing.T) {
	store := newMemory()
	a := newTree(t, store, Options{}, "1-a")
	write(t, a.dir, "src/main.go", "package main")
	write(t, a.dir, "same/content", "package main")
	write(t, a.dir, "run.sh", "#!/bin/sh\n")
	write(t, a.dir, "no\nUTF-8 \xff", "odd")
	write(t, a.dir, "dot./x", "x")
	write(t, a.dir, "empty-file", "")
	write(t, a.dir, "large", strings.Repeat("0123456789abcdef", packSize/16+1))
	must(t, os.Chmod(a.dir+"/run.sh", 0o755))
	must(t, os.Mkdir(a.dir+"/empty", 0o750))
	write(t, a.dir, "closed/secret", "s")
	must(t, os.Chmod(a.dir+"/closed/secret", 0o400))
	must(t, os.Chmod(a.dir+"/closed", 0o500))
	must(t, os.Symlink("run.sh", a.dir+"/link"))
	must(t, os.Symlink("/etc/passwd", a.dir+"/outside"))
	must(t, os.Symlink("nowhere \xfe", a.dir+"/dangling"))
	must(t, os.Chtimes(a.dir+"/run.sh", time.Unix(1, 7), time.Unix(1, 7)))
	must(t, syscall.Mkfifo(a.dir+"/pipe", 0o600))
	s := save(t, a)
	if s.Files != 11 || s.Stored >= s.Bytes {
		t.Errorf("saved %+v, want 11 files, one content of two once", s)
	}
	must(t, os.Remove(a.dir+"/pipe")) // not kept, and not opened
	b := restored(t, store, s.Manifest)
	wantSame(t, b.dir, a.dir)
	if again := save(t, b); again != nil {
		t.Errorf("nothing has changed, and %+v was saved", again)
	}

	// Deletions and a file in the place of a folder are changes too.
	must(t, os.RemoveAll(b.dir+"/src"))
	must(t, os.Remove(b.dir+"/empty"))
	write(t, b.dir, "empty", "a file now")
	must(t, os.Chmod(b.dir+"/run.sh", 0o644))
	s = save(t, b)
	if s == nil || s.Stored != int64(len("a file now")) {
		t.Errorf("saved %+v, want the one new content", s)
	}
	wantSame(t, restored(t, store, s.Manifest).dir, b.dir)
}

func TestTurnWithoutChangeReadsNoFile(t *testing.T) {
	store := newMemory()
	a := newTree(t, store, Options{}, "1-a")
	old := time.Now().Add(-time.Hour)
	for i := range 50 {
		p := fmt.Sprint("d/", i)
		write(t, a.dir, p, p)
		must(t, os.Chtimes(filepath.Join(a.dir, p), old, old))
	}
	s := save(t, a)
	b := restored(t, store, s.Manifest)
	puts := len(store.puts)
	if again := save(t, b); again != nil || len(store.puts) != puts {
		t.Errorf("saved %+v, %d objects", again, len(store.puts)-puts)
	}
	// The name of the file is all that is left to be seen: a stat that is the
	// same, with another content, shows that nothing is read.
	for p, e := range b.stats {
		if !e.sure {
			t.Errorf("%s is read again by each save", p)
		}
	}
}

// A change within the same step of the clock, of the same length, is found.
func TestChangeInTheSameMomentIsFound(t *testing.T) {
	store := newMemory()
	a := newTree(t, store, Options{}, "1-a")
	write(t, a.dir, "f", "one")
	info, err := os.Stat(a.dir + "/f")
	must(t, err)
	save(t, a)
	write(t, a.dir, "f", "two")
	must(t, os.Chtimes(a.dir+"/f", info.ModTime(), info.ModTime()))
	s := save(t, a)
	if s == nil {
		t.Fatal("the change was not found")
	}
	wantSame(t, restored(t, store, s.Manifest).dir, a.dir)
}

func TestExcludedIsNotSavedAndStaysWhereItIs(t *testing.T) {
	store := newMemory()
	a := newTree(t, store, Options{Always: ".pi-worker", Exclude: []string{"node_modules/", "*.log", "/build/out*"}}, "1-a")
	for _, p := range []string{
		".pi-worker/tmp/x", "a/node_modules/m", "a/x.log", "build/output", "build/kept", "sub/build/output",
		"sub/.pi-worker/kept", "node_modules2", "f",
	} {
		write(t, a.dir, p, p)
	}
	s := save(t, a)
	b := restored(t, store, s.Manifest)
	var got []string
	for _, line := range listing(t, b.dir) {
		if strings.Contains(line, " -rw") {
			got = append(got, strings.Fields(line)[0])
		}
	}
	want := []string{"build/kept", "f", "node_modules2", "sub/.pi-worker/kept", "sub/build/output"}
	if !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
	for _, bad := range []string{"", "/", "[", "a[/b"} {
		if err := CheckPatterns([]string{bad}); !errors.Is(err, ErrOptions) {
			t.Errorf("pattern %q: %v, want ErrOptions", bad, err)
		}
	}
}

func TestOverTheCapNothingIsStoredAndNothingLost(t *testing.T) {
	for _, opts := range []Options{{MaxFiles: 3}, {MaxBytes: 10}} {
		store := newMemory()
		a := newTree(t, store, opts, "1-a")
		write(t, a.dir, "a", "12345")
		s := save(t, a)
		before := store.names()
		write(t, a.dir, "b", "12345")
		write(t, a.dir, "c", "1")
		write(t, a.dir, "d", "1")
		_, err := a.Save(t.Context())
		over, ok := errors.AsType[*CapError](err)
		if !ok || over.Files > over.MaxFiles == (over.Bytes > over.MaxBytes) {
			t.Fatalf("got %v, want a CapError of one limit", err)
		}
		if got := store.names(); !slices.Equal(got, before) {
			t.Errorf("%q were stored", got)
		}
		wantSame(t, restored(t, store, s.Manifest).dir, restored(t, store, s.Manifest).dir)
		must(t, os.Remove(a.dir+"/c"))
		must(t, os.Remove(a.dir+"/d"))
		if again := save(t, a); again == nil {
			t.Error("below the limits again, and nothing was saved")
		}
	}
}

// Whatever object breaks, the snapshot before is whole, the next save is, and
// no object stays for ever.
func TestHalfWrittenSnapshotIsNeverRestored(t *testing.T) {
	for broken := range 3 {
		store := newMemory()
		a := newTree(t, store, Options{}, "1-a")
		write(t, a.dir, "f", "first")
		first := save(t, a)
		before := restored(t, store, first.Manifest)
		write(t, a.dir, "f", "second")
		write(t, a.dir, "large", strings.Repeat("x", packSize+1))
		n := 0
		store.fail = func(string) error {
			if n++; n > broken {
				return errBroken
			}
			return nil
		}
		if _, err := a.Save(t.Context()); !errors.Is(err, errBroken) {
			t.Fatalf("object %d: %v, want errBroken", broken, err)
		}
		store.fail = nil
		wantSame(t, restored(t, store, first.Manifest).dir, before.dir)

		// The same worker goes on, or another one begins where the log ends.
		other := restored(t, store, first.Manifest)
		must(t, other.SweepAfter(t.Context(), "1-a"))
		must(t, other.Sweep(t.Context()))
		if got := store.names(); len(got) != 2 {
			t.Errorf("object %d: %q are left, want a pack and a manifest", broken, got)
		}
		s := save(t, a)
		wantSame(t, restored(t, store, s.Manifest).dir, a.dir)
	}
}

func TestSweepLeavesTheLastSnapshotOnly(t *testing.T) {
	store := newMemory()
	a := newTree(t, store, Options{}, "1-a")
	rng := rand.New(rand.NewPCG(1, 2))
	var last *Saved
	for i := range 120 {
		for range 3 {
			data := make([]byte, 1000)
			for j := range data {
				data[j] = byte(rng.Uint32())
			}
			write(t, a.dir, fmt.Sprint("f", rng.IntN(40)), string(data))
		}
		write(t, a.dir, "steady", "always the same")
		last = save(t, a)
		if i%7 == 0 {
			must(t, a.Sweep(t.Context()))
		}
	}
	must(t, a.Sweep(t.Context()))
	b := restored(t, store, last.Manifest)
	wantSame(t, b.dir, a.dir)
	if n := len(store.names()); n > manyPacks+2 {
		t.Errorf("%d objects, want no more than %d", n, manyPacks+2)
	}
	var live, all int64
	for _, blob := range b.last.Blobs {
		live += blob.Size
	}
	for _, p := range b.last.Packs {
		all += p.Size
	}
	if all > 3*live {
		t.Errorf("%d bytes are stored for %d", all, live)
	}
}

func TestOldSnapshotIsRenewed(t *testing.T) {
	store := newMemory()
	a := newTree(t, store, Options{RenewAfter: time.Hour}, "1-a")
	write(t, a.dir, "f", "x")
	first := save(t, a)
	if s := save(t, a); s != nil {
		t.Errorf("saved %+v without a change", s)
	}
	a.last.Made -= 3601
	s := save(t, a)
	if s == nil || s.Stored != 1 {
		t.Fatalf("saved %+v, want all of it anew", s)
	}
	must(t, a.Sweep(t.Context()))
	if _, err := store.Get(t.Context(), first.Manifest); err == nil {
		t.Error("the first manifest is still there")
	}
	wantSame(t, restored(t, store, s.Manifest).dir, a.dir)
}

func TestManifestThatLeadsOutsideIsRefused(t *testing.T) {
	good := pack{Name: "1-a.1", Size: 1}
	for what, m := range map[string]*manifest{
		"version":         {Version: 2},
		"dot-dot":         {Version: 1, Entries: []entry{{Path: "../x"}}},
		"absolute":        {Version: 1, Entries: []entry{{Path: "/x"}}},
		"through a link":  {Version: 1, Entries: []entry{{Path: "l", Kind: kindLink, Target: "/tmp"}, {Path: "l/x"}}},
		"no folder":       {Version: 1, Entries: []entry{{Path: "d/x"}}},
		"twice":           {Version: 1, Entries: []entry{{Path: "x"}, {Path: "x"}}},
		"kind":            {Version: 1, Entries: []entry{{Path: "x", Kind: "device"}}},
		"no content":      {Version: 1, Entries: []entry{{Path: "x", Size: 1, Sum: "00"}}},
		"outside of pack": {Version: 1, Packs: []pack{good}, Blobs: []blob{{Sum: "00", Offset: 1, Size: 1}}},
		"no pack":         {Version: 1, Blobs: []blob{{Sum: "00", Size: 1}}},
	} {
		store := newMemory()
		data, err := m.encode()
		must(t, err)
		store.objects["1-a.2"] = data
		b := newTree(t, store, Options{}, "2-b")
		if err := b.Restore(t.Context(), "1-a.2"); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: %v, want ErrManifest", what, err)
		}
		if got := listing(t, b.dir); len(got) > 0 {
			t.Errorf("%s: %q were made", what, got)
		}
	}
}

func TestContentThatDiffersIsRefused(t *testing.T) {
	store := newMemory()
	a := newTree(t, store, Options{}, "1-a")
	write(t, a.dir, "f", "content")
	s := save(t, a)
	for i, object := range store.names() {
		kept := store.objects[object]
		for at := range kept {
			store.objects[object] = slices.Clone(kept)
			store.objects[object][at] ^= 1
			b := newTree(t, store, Options{}, fmt.Sprint("2-", i, at))
			if err := b.Restore(t.Context(), s.Manifest); err == nil {
				// The header of gzip has bytes that mean nothing.
				wantSame(t, b.dir, a.dir)
			}
		}
		store.objects[object] = kept
	}
}

// Whatever is done to a folder, and whoever goes on with it.
func TestAnyChangesRestoreTheSame(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		store := newMemory()
		tree := newTree(t, store, Options{}, "1-a")
		path := rapid.SampledFrom([]string{"a", "b", "d/a", "d/b", "d/e/f", "g"})
		for i := range rapid.IntRange(1, 8).Draw(r, "saves") {
			for range rapid.IntRange(0, 4).Draw(r, "changes") {
				p := filepath.Join(tree.dir, path.Draw(r, "path"))
				switch rapid.IntRange(0, 4).Draw(r, "change") {
				case 0:
					os.RemoveAll(p)
				case 1:
					os.MkdirAll(p, 0o755)
				case 2:
					os.Remove(p)
					os.Symlink(rapid.SampledFrom([]string{"a", "../..", "d"}).Draw(r, "target"), p)
				default:
					os.MkdirAll(filepath.Dir(p), 0o755)
					os.WriteFile(p, rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(r, "content"), 0o644)
				}
			}
			s := save(t, tree)
			if s == nil {
				continue
			}
			if rapid.Bool().Draw(r, "sweep") {
				must(t, tree.Sweep(t.Context()))
			}
			if rapid.Bool().Draw(r, "move") {
				next := newTree(t, store, Options{}, fmt.Sprint(i+2, "-x"))
				must(t, next.Restore(t.Context(), s.Manifest))
				wantSame(t, next.dir, tree.dir)
				tree = next
			}
		}
	})
}
