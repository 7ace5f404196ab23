package session_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/natsd"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/subjects"
)

// cutReader ends with an error.
type cutReader struct{ io.ReadSeeker }

var errCut = errors.New("the file is gone")

func (r cutReader) Read(p []byte) (int, error) {
	n, err := r.ReadSeeker.Read(p)
	if err == io.EOF {
		err = errCut
	}
	return n, err
}

func TestObjectsComeBackWholeAndGoWithoutATrace(t *testing.T) {
	b := newBench(t, natstest.Start(t, &natsd.Config{MaxPayload: 32 << 10}), nil)
	objects, err := b.store.Objects("s", "files")
	b.must(err)
	content := strings.Repeat("0123456789", 20_000) // several chunks
	b.must(objects.Put(t.Context(), "1-a.1", strings.NewReader(content)))
	b.must(objects.Put(t.Context(), "1-a.2", strings.NewReader("")))
	for name, want := range map[string]string{"1-a.1": content, "1-a.2": ""} {
		in, err := objects.Get(t.Context(), name)
		b.must(err)
		got, err := io.ReadAll(in)
		b.must(err)
		b.must(in.Close())
		if string(got) != want {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(want))
		}
	}
	// The object store's own client reads it as well.
	bucket, err := b.env.JS.ObjectStore(t.Context(), subjects.Names{}.BlobBucket())
	b.must(err)
	if got, err := bucket.GetString(t.Context(), objects.FullName("1-a.1")); err != nil || got != content {
		t.Errorf("the library reads %d bytes: %v", len(got), err)
	}
	if err := objects.Put(t.Context(), "1-a.3", cutReader{strings.NewReader(content)}); !errors.Is(err, errCut) {
		t.Errorf("a reader that broke: %v", err)
	}
	if _, err := objects.Get(t.Context(), "1-a.3"); !errors.Is(err, jetstream.ErrObjectNotFound) {
		t.Errorf("half an object: %v", err)
	}
	for name, want := range map[string]bool{"1-a.1": true, "1-a.2": true, "1-a.3": false} {
		for _, want := range []bool{want, false} {
			if found, err := objects.Delete(t.Context(), name); found != want || err != nil {
				t.Errorf("deleting %s: %v, %v", name, found, err)
			}
		}
	}
	stream, err := b.env.JS.Stream(t.Context(), "OBJ_"+subjects.Names{}.BlobBucket())
	b.must(err)
	if n := stream.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d messages are left", n)
	}
	if _, err := b.store.Objects("a.b", "files"); !errors.Is(err, subjects.ErrSession) {
		t.Errorf("a session of two tokens: %v", err)
	}
}
