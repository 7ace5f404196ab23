package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// A stranger deletes a stream that nobody can rebuild. The worker says which,
// makes an empty one, and goes on: with new sessions, and with those that it
// had, whose cursors and tails are of the stream that is gone.
func TestWorkerGoesOnAfterInboxOrLogsAreDeleted(t *testing.T) {
	names := subjects.Names{}
	for _, stream := range []string{names.InboxStream(), names.EventsStream(), names.DLQStream()} {
		t.Run(stream, func(t *testing.T) {
			inBubble(t, nil, func(b *bench) {
				b.script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("ok") })
				w := b.start("w1", nil)
				for _, id := range []string{"a", "b", "c"} {
					b.sayAs("old", subjects.KindPrompt, id, "before")
				}
				b.settle("old", 3)
				b.inboxEmpty("old")
				b.ready(w, true)
				began := time.Now()
				if err := b.env.JS.DeleteStream(b.Context(), stream); err != nil {
					b.Fatal(err)
				}
				if why := b.ready(w, false); !strings.Contains(why.Error(), stream) {
					b.Errorf("not ready because %q, which does not name %s", why, stream)
				}
				b.ready(w, true)
				b.sayAs("new", subjects.KindPrompt, "n", "hi")
				b.wantOutcomes(b.settle("new", 1), loop.OutcomeCompleted)
				if d := time.Since(began); d > recoveryTime {
					b.Errorf("a new session was done %v after the deletion", d)
				}
				b.sayAs("old", subjects.KindPrompt, "d", "after")
				b.settled("old", "d")
				b.inboxEmpty("old")
				b.inboxEmpty("new")
			})
		})
	}
}

// What workers tell each other is said again, into a bucket that is made again:
// without it no limit of a tree and no rest of a key would reach another worker.
func TestDeletedBucketOfTheFleetIsMadeAgain(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		bucket := "KV_" + subjects.Names{}.FleetBucket()
		w := b.start("w1", nil)
		b.ready(w, true)
		if err := b.env.JS.DeleteStream(b.Context(), bucket); err != nil {
			b.Fatal(err)
		}
		if why := b.ready(w, false); !strings.Contains(why.Error(), bucket) {
			b.Errorf("not ready because %q, which does not name %s", why, bucket)
		}
		b.ready(w, true)
		if err := b.store.PutPause(b.Context(), "key", time.Minute); err != nil {
			b.Error(err)
		}
	})
}
