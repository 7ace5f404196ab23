package session_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/natsd"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

var smallPayload = &natsd.Config{MaxPayload: 64 << 10}

// large is a text that travels as a blob.
func large() string { return strings.Repeat("large ", 20<<10) }

func (b *bench) blobs() int {
	b.Helper()
	store, err := b.env.JS.ObjectStore(b.Context(), subjects.Names{}.BlobBucket())
	b.must(err)
	list, err := store.List(b.Context())
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return 0
	}
	b.must(err)
	return len(list)
}

// Each blob goes when what refers to it has gone, and not before.
func TestBlobsGoWithWhatRefersToThem(t *testing.T) {
	natstest.InBubble(t, smallPayload, func(t *testing.T, e *natstest.Env) {
		b := newBench(t, e, nil)
		sweep := func(when string, want int) {
			t.Helper()
			_, err := b.store.Sweep(t.Context(), 0)
			b.must(err)
			if n := b.blobs(); n != want {
				t.Errorf("%s: %d blobs, want %d", when, n, want)
			}
		}
		sweep("nothing there", 0)
		l := b.open("s", "w")
		b.append(l, &loop.MessageStart{Message: loop.NewUserText("")}, user(large())) // 1
		b.append(l, &loop.ToolExecutionUpdate{ToolCallID: "c", ToolName: "t", PartialResult: loop.TextResult(large())})
		b.publish("s", subjects.KindPrompt, large()) // 3
		in, err := b.store.NextInput(t.Context(), "s", "", 0)
		b.must(err)
		b.must(b.store.DeadLetter(t.Context(), in, "malformed", 0, "")) // 4
		sweep("fresh ones", 4)
		time.Sleep(150 * time.Minute)
		sweep("the update's record has expired", 3)
		b.must(b.store.DeleteInput(t.Context(), in))
		sweep("the input is deleted with its blob", 2)

		time.Sleep(3 * time.Hour)
		b.append(l, &loop.AgentSettled{}, &loop.MessageStart{Message: loop.NewUserText("")})
		b.append(l, user(large()))
		time.Sleep(2 * time.Hour)
		sweep("the log has the first still", 3)
		recs := b.records("s", session.From{})
		stream, err := e.JS.Stream(t.Context(), subjects.Names{}.EventsStream())
		b.must(err)
		b.must(stream.Purge(t.Context(), jetstream.WithPurgeSequence(recs[len(recs)-1].StreamSeq)))
		sweep("the log's head is gone", 2)
		for _, rec := range b.records("s", session.From{}) {
			if rec.Gap == nil && len(rec.Events) != 1 {
				t.Errorf("record %d has %d events", rec.Seq, len(rec.Events))
			}
		}
		b.close(l)
		b.must(stream.Purge(t.Context()))
		sweep("the log is gone", 1)

		time.Sleep(10 * time.Hour)
		sweep("the dead letter is kept", 1)
		dlq, err := e.JS.Stream(t.Context(), subjects.Names{}.DLQStream())
		b.must(err)
		b.must(dlq.Purge(t.Context()))
		sweep("nothing is left", 0)
		e.NC.Close()
	})
}

// However many workers there are, one of them sweeps.
func TestOneSweepAtATime(t *testing.T) {
	natstest.InBubble(t, smallPayload, func(t *testing.T, e *natstest.Env) {
		b := newBench(t, e, nil)
		for range 3 {
			for range 4 {
				b.publish("gone", subjects.KindPrompt, large())
			}
			inbox, err := e.JS.Stream(t.Context(), subjects.Names{}.InboxStream())
			b.must(err)
			b.must(inbox.Purge(t.Context()))
			time.Sleep(2 * time.Hour)
			var wg sync.WaitGroup
			var sweeps, deleted atomic.Int64
			for range 5 {
				wg.Go(func() {
					n, err := b.store.Sweep(t.Context(), time.Hour)
					if err != nil {
						t.Error(err)
					}
					if n > 0 {
						sweeps.Add(1)
					}
					deleted.Add(int64(n))
				})
			}
			wg.Wait()
			if sweeps.Load() != 1 || deleted.Load() != 4 {
				t.Errorf("%d sweeps deleted %d blobs, want one and 4", sweeps.Load(), deleted.Load())
			}
		}
		e.NC.Close()
	})
}

// Files of a session are not older than its log by their own time, but by that
// of the calls that made them. Outputs of commands go with their calls.
func TestObjectsUnderAHeadingStayWithTheirLog(t *testing.T) {
	natstest.InBubble(t, smallPayload, func(t *testing.T, e *natstest.Env) {
		b := newBench(t, e, nil)
		objects, err := b.store.Objects("s", "files")
		b.must(err)
		b.must(objects.Put(t.Context(), "1-a.1", strings.NewReader("content")))
		before, err := b.store.Objects("s", session.HeadingOutput)
		b.must(err)
		b.must(before.Put(t.Context(), "of a call whose record is gone", strings.NewReader("content")))
		time.Sleep(3 * time.Hour)
		l := b.open("s", "w")
		b.append(l, user("all that retention has left"))
		b.close(l)
		time.Sleep(3 * time.Hour)
		outputs, err := b.store.Objects("s", session.HeadingOutput)
		b.must(err)
		b.must(outputs.Put(t.Context(), "of a call whose record is there", strings.NewReader("content")))
		time.Sleep(2 * time.Hour)
		_, err = b.store.Sweep(t.Context(), 0)
		b.must(err)
		list, err := outputs.List(t.Context())
		b.must(err)
		if len(list) != 1 || list[0].Size != 7 {
			t.Errorf("outputs %v, want the newer one", list)
		}
		if n := b.blobs(); n != 2 {
			t.Errorf("%d objects while there is a log, want 2", n)
		}
		stream, err := e.JS.Stream(t.Context(), subjects.Names{}.EventsStream())
		b.must(err)
		b.must(stream.Purge(t.Context()))
		_, err = b.store.Sweep(t.Context(), 0)
		b.must(err)
		if n := b.blobs(); n != 0 {
			t.Errorf("%d objects are left of a log that is gone", n)
		}
	})
}
