package session_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/natsd"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/subjects"
)

func TestRemoveLeavesNothingOfOneSession(t *testing.T) {
	b := newBench(t, natstest.Start(t, &natsd.Config{MaxPayload: 32 << 10}), nil)
	fill := func(id string) *session.Log {
		b.publish(id, subjects.KindPrompt, strings.Repeat("x", 100<<10))
		in, err := b.store.NextInput(t.Context(), id, "", 0)
		b.must(err)
		b.must(b.store.DeadLetter(t.Context(), in, "poison", 5, "last"))
		b.must(b.store.PutSummary(t.Context(), &session.Summary{Session: id}))
		l := b.open(id, "w")
		b.append(l, waiting(1), user(strings.Repeat("y", 100<<10)))
		return l
	}
	gone, kept := fill("s"), fill("s2")
	b.must(b.store.Remove(t.Context(), "s"))
	b.must(b.store.Remove(t.Context(), "s"))
	for _, err := range b.store.Read(t.Context(), "s", session.From{}) {
		if !errors.Is(err, session.ErrUnknownSession) {
			t.Errorf("reading what was removed: %v, want ErrUnknownSession", err)
		}
	}
	b.must(gone.Append(t.Context(), waiting(2)))
	if err := gone.Close(t.Context()); !errors.Is(err, session.ErrFenced) {
		t.Errorf("its owner: %v, want ErrFenced", err)
	}
	b.append(kept, waiting(2))
	b.close(kept)
	if n := len(b.records("s2", session.From{})); n < 3 {
		t.Errorf("the other session has %d records, want its own", n)
	}
	blobs, err := b.env.JS.ObjectStore(t.Context(), subjects.Names{}.BlobBucket())
	b.must(err)
	list, err := blobs.List(t.Context())
	b.must(err)
	if len(list) != 3 {
		t.Errorf("%d blobs are left, want the other session's input, dead letter and message", len(list))
	}
	for name := range b.env.JS.StreamNames(t.Context()).Name() {
		s, err := b.env.JS.Stream(t.Context(), name)
		b.must(err)
		info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		b.must(err)
		for subject := range info.State.Subjects {
			if strings.Contains(subject+".", ".s.") && !strings.HasPrefix(subject, "$KV") {
				t.Errorf("%s still has %s", name, subject)
			}
		}
	}
}
