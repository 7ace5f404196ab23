package wire_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/subjects"
	"github.com/pi-worker/pi-worker/tools/snapshot"
)

// The workspace of the figures: 2,000 files of 25 KiB in 100 folders, 50 MB.
const (
	benchFiles = 2000
	benchSize  = 25 << 10
)

func benchTree(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	data := make([]byte, benchSize)
	for i := range benchFiles {
		_, _ = rand.Read(data)
		p := filepath.Join(dir, fmt.Sprintf("d%d/f%d", i%100, i))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(p, data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

func benchObjects(b *testing.B) func(n int) *session.Objects {
	b.Helper()
	e := natstest.Start(b, nil)
	if err := subjects.Ensure(b.Context(), e.JS, subjects.Names{}, nil); err != nil {
		b.Fatal(err)
	}
	store, err := session.Open(b.Context(), e.NC, subjects.Names{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	return func(n int) *session.Objects {
		objects, err := store.Objects(fmt.Sprint("s", n), "files")
		if err != nil {
			b.Fatal(err)
		}
		return objects
	}
}

func benchNew(b *testing.B, dir string, objects *session.Objects) *snapshot.Tree {
	b.Helper()
	tree, err := snapshot.New(dir, objects, snapshot.Options{})
	if err != nil {
		b.Fatal(err)
	}
	tree.Begin("1-a")
	return tree
}

func benchSave(b *testing.B, tree *snapshot.Tree) string {
	b.Helper()
	s, err := tree.Save(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if s == nil {
		return ""
	}
	return s.Manifest
}

// BenchmarkSnapshot is the work of a worker on a workspace of 2,000 files and
// 50 MB. "one by one" is what an object for each file would cost.
func BenchmarkSnapshot(b *testing.B) {
	dir := benchTree(b)
	session := benchObjects(b)
	b.Run("first save", func(b *testing.B) {
		for range b.N {
			benchSave(b, benchNew(b, dir, session(0)))
			b.StopTimer()
			if err := sweepAll(b.Context(), session(0)); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	kept := benchNew(b, dir, session(1))
	manifest := benchSave(b, kept)
	b.Run("no change", func(b *testing.B) {
		tree := benchRestored(b, session(1), manifest)
		for b.Loop() {
			if name := benchSave(b, tree); name != "" {
				b.Fatal("saved again")
			}
		}
	})
	b.Run("one changed file", func(b *testing.B) {
		tree := benchRestored(b, session(1), manifest)
		tree.Begin("2-b")
		b.ResetTimer()
		for i := range b.N {
			if err := os.WriteFile(dirOf[tree]+"/d1/f1", fmt.Append(nil, i), 0o644); err != nil {
				b.Fatal(err)
			}
			benchSave(b, tree)
		}
	})
	b.Run("restore whole", func(b *testing.B) {
		for b.Loop() {
			benchRestored(b, session(1), manifest)
		}
	})
	rounds := 0
	b.Run("one by one, save", func(b *testing.B) {
		data := make([]byte, benchSize)
		for range b.N {
			rounds++
			for f := range benchFiles {
				if err := session(2).Put(b.Context(), fmt.Sprint(rounds, ".", f), bytes.NewReader(data)); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("one by one, restore", func(b *testing.B) {
		if rounds == 0 {
			b.Skip("it reads what the save has stored")
		}
		for b.Loop() {
			for f := range benchFiles {
				in, err := session(2).Get(b.Context(), fmt.Sprint(rounds, ".", f))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, in); err != nil {
					b.Fatal(err)
				}
				in.Close()
			}
		}
	})
}

var dirOf = map[*snapshot.Tree]string{}

func benchRestored(b *testing.B, objects *session.Objects, manifest string) *snapshot.Tree {
	b.Helper()
	dir := b.TempDir()
	tree := benchNew(b, dir, objects)
	dirOf[tree] = dir
	if err := tree.Restore(b.Context(), manifest); err != nil {
		b.Fatal(err)
	}
	return tree
}

func sweepAll(ctx context.Context, objects *session.Objects) error {
	for i := 1; ; i++ {
		found, err := objects.Delete(ctx, fmt.Sprint("1-a.", i))
		if err != nil || !found {
			return err
		}
	}
}
