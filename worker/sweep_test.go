package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// Workers delete the blobs of a log that retention has taken, by themselves.
func TestWorkersSweepBlobs(t *testing.T) {
	inBubble(t, []looptest.Answer{looptest.Text("ok")}, func(b *bench) {
		b.start("w1", nil)
		b.start("w2", nil)
		b.say("s1", subjects.KindPrompt, strings.Repeat("large ", 400<<10))
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		b.inboxEmpty("s1")
		store, err := b.env.JS.ObjectStore(b.Context(), subjects.Names{}.BlobBucket())
		if err != nil {
			b.Fatal(err)
		}
		blobs := func() int {
			list, err := store.List(b.Context())
			if err != nil && err != jetstream.ErrNoObjectsFound {
				b.Fatal(err)
			}
			return len(list)
		}
		time.Sleep(4 * time.Hour) // of the bubble, which costs nothing
		if n := blobs(); n != 1 {
			b.Errorf("%d blobs while the record is there, want 1", n)
		}
		stream, err := b.env.JS.Stream(b.Context(), subjects.Names{}.EventsStream())
		if err == nil {
			err = stream.Purge(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		time.Sleep(4 * time.Hour) // of the bubble, which costs nothing
		if n := blobs(); n != 0 {
			b.Errorf("%d blobs are left of a log that is gone", n)
		}
	})
}
