package worker

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// recoveryTime is how soon after a stranger's deletion a prompt must be done.
const recoveryTime = 30 * time.Second

func TestWorkerRecoversFromDeletedConsumerAndStream(t *testing.T) {
	names := subjects.Names{}
	for what, destroy := range map[string]func(*bench) error{
		"consumer": func(b *bench) error {
			return b.env.JS.DeleteConsumer(b.Context(), names.BellStream(), subjects.ConsumerWorkers)
		},
		"stream": func(b *bench) error { return b.env.JS.DeleteStream(b.Context(), names.BellStream()) },
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, []looptest.Answer{looptest.Text("before"), looptest.Text("after")}, func(b *bench) {
				w := b.start("w1", nil)
				b.say("s1", subjects.KindPrompt, "one")
				b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
				b.ready(w, true)
				began := time.Now()
				if err := destroy(b); err != nil {
					b.Fatal(err)
				}
				why := b.ready(w, false)
				b.say("s1", subjects.KindPrompt, "two")
				b.wantOutcomes(b.settle("s1", 2), loop.OutcomeCompleted, loop.OutcomeCompleted)
				if d := time.Since(began); d > recoveryTime {
					b.Errorf("settled %v after the deletion (%v)", d, why)
				}
				b.ready(w, true)
				if d := time.Since(began); d > recoveryTime {
					b.Errorf("ready again %v after the deletion (%v)", d, why)
				}
				b.inboxEmpty("s1")
				b.check("s1")
			})
		})
	}
}

// ready waits until a worker is ready, or is not, and gives what it says.
func (b *bench) ready(w *live, want bool) error {
	b.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); sleep(b.Context(), time.Millisecond) {
		if err := w.Ready(); (err == nil) == want {
			return err
		}
	}
	b.Fatalf("ready never was %v", want)
	return nil
}

// Retention takes the first records of a session that still goes on.
func TestSessionGoesOnAfterItsLogsHeadIsGone(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.script.Otherwise(func(r *looptest.Request) looptest.Answer { return looptest.Text("answer to " + r.LastUser()) })
	w1 := b.start("w1", nil)
	b.say("s1", subjects.KindPrompt, "one")
	b.say("s1", subjects.KindPrompt, "two")
	b.settle("s1", 2)
	b.inboxEmpty("s1")
	w1.stop()
	<-w1.done
	recs := b.records("s1")
	// The cut goes through the first run: its beginning is gone.
	kept := recs[2].StreamSeq
	stream, err := b.env.JS.Stream(b.Context(), subjects.Names{}.EventsStream())
	if err != nil {
		b.Fatal(err)
	}
	err = stream.Purge(b.Context(), jetstream.WithPurgeSubject(subjects.Names{}.Events("s1")), jetstream.WithPurgeSequence(kept))
	if err != nil {
		b.Fatal(err)
	}
	b.start("w2", nil)
	seq := b.say("s1", subjects.KindPrompt, "three")
	var last *loop.AgentSettled
	b.watch("s1", func(ev loop.Event) bool {
		last, _ = ev.(*loop.AgentSettled)
		return last != nil && last.PromptSeq == seq
	})
	if last.Outcome != loop.OutcomeCompleted {
		b.Errorf("outcome %s", last.Outcome)
	}
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	for rec, err := range b.store.Tail(ctx, "s1", session.From{Start: true}) {
		if err != nil {
			b.Fatal(err)
		}
		if rec.Gap == nil || rec.Gap.From != recs[0].StreamSeq || rec.Gap.To != kept-1 {
			b.Errorf("a tail begins with %+v, want a gap from %d to %d", rec, recs[0].StreamSeq, kept-1)
		}
		break
	}
	b.inboxEmpty("s1")
}
