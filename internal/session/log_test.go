package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pi-worker/pi-worker/internal/natsd"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

func TestLogAppendFenced(t *testing.T) {
	b := start(t)
	first := b.open("s", "w1")
	b.append(first, &loop.AgentStart{}, user("hello"))
	second := b.open("s", "w2")
	if first.Epoch().N != 1 || second.Epoch().N != 2 {
		t.Errorf("epochs %v and %v, want 1 and 2", first.Epoch(), second.Epoch())
	}
	b.must(first.Append(t.Context(), waiting(1)))
	if err := first.Flush(t.Context()); !errors.Is(err, session.ErrFenced) {
		t.Fatalf("the former owner's append: %v, want ErrFenced", err)
	}
	<-first.Done()
	if err := first.Append(t.Context(), waiting(2)); !errors.Is(err, session.ErrFenced) {
		t.Errorf("append after the fence: %v, want ErrFenced to stick", err)
	}
	if err := first.Close(t.Context()); !errors.Is(err, session.ErrFenced) {
		t.Errorf("close after the fence: %v, want ErrFenced", err)
	}
	b.append(second, waiting(3))
	b.close(second)
	for _, rec := range b.records("s", session.From{}) {
		if rec.StreamSeq > 3 && rec.Epoch != second.Epoch() {
			t.Errorf("record %d is of epoch %v, after the fence", rec.StreamSeq, rec.Epoch)
		}
	}
}

func TestTwoClaimsOfOneFoldLeaveOneOwner(t *testing.T) {
	b := start(t)
	one, two := b.fold("s"), b.fold("s")
	l, err := b.store.OpenLog(t.Context(), "s", one, "w1")
	b.must(err)
	if _, err := b.store.OpenLog(t.Context(), "s", two, "w2"); !errors.Is(err, session.ErrFenced) {
		t.Fatalf("second claim of the same fold: %v, want ErrFenced", err)
	}
	b.close(l)
}

func TestRecordsAreDenseAndDeltasApart(t *testing.T) {
	b := start(t)
	l := b.open("s", "w")
	long := strings.Repeat("long", 100)
	b.append(l, &loop.AgentStart{}, delta("a"), delta(long), waiting(1), delta(long), &loop.TurnEnd{})
	b.close(l)
	got := []string{}
	durable, sub := uint64(0), uint64(0)
	for _, rec := range b.records("s", session.From{}) {
		if rec.Sub > 0 {
			sub++
		} else {
			durable, sub = durable+1, 0
		}
		if rec.Seq != durable || rec.Sub != sub {
			t.Errorf("record %d.%d, want %d.%d", rec.Seq, rec.Sub, durable, sub)
		}
		for _, ev := range rec.Events {
			if eph := ev.EventType() == "message_update"; eph != (rec.Sub > 0) {
				t.Errorf("%s is in record %d.%d", ev.EventType(), rec.Seq, rec.Sub)
			}
			got = append(got, ev.EventType())
		}
	}
	want := []string{
		"session_claimed", "agent_start", "message_update", "message_update",
		"waiting", "message_update", "turn_end",
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

// A few deltas that wait with a durable event are part of its record: one of
// their own would be larger than they are, and they would leave no sooner.
func TestFewDeltasJoinTheRecordBehindThem(t *testing.T) {
	b := start(t)
	l, err := b.store.BeginLog(t.Context(), "s", b.fold("s"), "w")
	b.must(err)
	// One call, so that the writer finds all of them waiting.
	b.must(l.AppendAll(t.Context(), []loop.Event{
		&loop.AgentStart{}, delta("a"), delta("b"), &loop.TurnEnd{}, delta("c"), &loop.AgentEnd{}, delta("d"),
	}))
	b.close(l)
	var got []string
	for _, rec := range b.records("s", session.From{}) {
		var types []string
		for _, ev := range rec.Events {
			types = append(types, ev.EventType())
		}
		got = append(got, fmt.Sprintf("%d.%d %s", rec.Seq, rec.Sub, strings.Join(types, " ")))
	}
	want := []string{
		"1.0 session_claimed agent_start message_update message_update turn_end message_update agent_end",
		"1.1 message_update",
	}
	if !slices.Equal(got, want) {
		t.Errorf("records %q, want %q", got, want)
	}
	b.fold("s")
}

// Readers begin a run behind the record in which the one before it settled.
func TestSettledIsTheLastOfItsRecord(t *testing.T) {
	b := start(t)
	l, err := b.store.BeginLog(t.Context(), "s", b.fold("s"), "w")
	b.must(err)
	run := []loop.Event{&loop.AgentStart{}, delta("a"), &loop.AgentEnd{}, &loop.AgentSettled{Outcome: loop.OutcomeCompleted}}
	for range 20 { // some of them find a record on its way
		b.must(l.AppendAll(t.Context(), run))
		b.must(l.Append(t.Context(), &loop.AgentStart{}))
		b.must(l.Append(t.Context(), &loop.AgentSettled{Outcome: loop.OutcomeAborted}))
	}
	b.close(l)
	settled := 0
	for _, rec := range b.records("s", session.From{}) {
		for i, ev := range rec.Events {
			if _, ok := ev.(*loop.AgentSettled); ok {
				if settled++; i != len(rec.Events)-1 {
					t.Errorf("record %d has %d events behind agent_settled", rec.Seq, len(rec.Events)-1-i)
				}
			}
		}
	}
	if settled != 40 {
		t.Errorf("%d settled, want 40", settled)
	}
}

// Who begins a log without waiting learns by the first Flush that it is not
// his, and nothing of his is in it.
func TestBegunLogIsFencedByFlush(t *testing.T) {
	b := start(t)
	one, two := b.fold("s"), b.fold("s")
	late, err := b.store.BeginLog(t.Context(), "s", one, "w1")
	b.must(err)
	l, err := b.store.OpenLog(t.Context(), "s", two, "w2")
	b.must(err)
	if err := late.Append(t.Context(), waiting(1)); err != nil && !errors.Is(err, session.ErrFenced) {
		t.Errorf("append: %v", err)
	}
	if err := late.Flush(t.Context()); !errors.Is(err, session.ErrFenced) {
		t.Errorf("flush: %v, want ErrFenced", err)
	}
	b.close(l)
	if recs := b.records("s", session.From{}); len(recs) != 1 || recs[0].Epoch != l.Epoch() {
		t.Errorf("%d records", len(recs))
	}
}

// A log that was begun and is abandoned leaves nothing.
func TestBegunLogThatIsAbandonedWritesNothing(t *testing.T) {
	b := start(t)
	l, err := b.store.BeginLog(t.Context(), "s", b.fold("s"), "w")
	b.must(err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Close(ended); err == nil {
		t.Error("closed without an error")
	}
	if st := b.fold("s"); st.TailSeq != 0 {
		t.Errorf("the log has a record %d", st.TailSeq)
	}
}

// Whatever is appended, however the flushes fall, the log has every event in
// the order of the calls, with dense numbers and nothing merged.
func TestGroupCommitKeepsOrder(t *testing.T) {
	b := start(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		id := "s" + strconv.Itoa(n)
		l := b.open(id, "w")
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"delta", "event", "big", "input", "flush"}), 1, 60).Draw(r, "steps")
		want := []string{"session_claimed"}
		seq := uint64(0)
		for _, step := range steps {
			var err error
			switch step {
			case "delta":
				err, want = l.Append(t.Context(), delta("x")), append(want, "message_update")
			case "event":
				err, want = l.Append(t.Context(), waiting(len(want))), append(want, "waiting")
			case "big":
				err, want = l.Append(t.Context(), user(strings.Repeat("y", 300<<10))), append(want, "message_end")
			case "input":
				seq++
				err = l.Append(t.Context(), &loop.AgentStart{}, session.InputRef{Kind: subjects.KindSteer, Seq: seq})
				want = append(want, "agent_start")
			case "flush":
				err = l.Flush(t.Context())
			}
			b.must(err)
		}
		b.close(l)
		st := b.fold(id) // checks the numbers
		if got := st.Cursors[subjects.KindSteer]; got != seq {
			r.Fatalf("cursor of steers %d, want %d", got, seq)
		}
		var got []string
		for _, rec := range b.records(id, session.From{}) {
			for _, ev := range rec.Events {
				got = append(got, ev.EventType())
			}
		}
		if !slices.Equal(got, want) {
			r.Fatalf("events %v, want %v", got, want)
		}
	})
}

func TestEphemeralTailExpired(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		b := newBench(t, e, nil)
		l := b.open("s", "w1")
		b.append(l, &loop.AgentStart{})
		b.append(l, delta("a"))
		b.append(l, delta("b"))
		time.Sleep(2 * time.Hour)
		b.append(l, waiting(1)) // 10071 for an expired sequence is no fence
		b.append(l, delta("c"))
		st := b.fold("s")
		if st.Seq != 3 || st.Sub != 1 {
			t.Errorf("tail %d.%d, want 3.1", st.Seq, st.Sub)
		}
		time.Sleep(2 * time.Hour)
		// The same for a new owner, between its fold and its claim.
		l2, err := b.store.OpenLog(t.Context(), "s", st, "w2")
		b.must(err)
		b.close(l2)
		if err := l.Append(t.Context(), waiting(2)); err == nil {
			err = l.Flush(t.Context())
			if !errors.Is(err, session.ErrFenced) {
				t.Errorf("former owner: %v, want ErrFenced", err)
			}
		}
		if err := l.Close(t.Context()); !errors.Is(err, session.ErrFenced) {
			t.Error(err)
		}
		e.NC.Close()
	})
}

func TestBigPayloadTravelsAsBlob(t *testing.T) {
	b := newBench(t, natstest.Start(t, &natsd.Config{MaxPayload: 64 << 10}), nil)
	text := strings.Repeat("0123456789", 300_000) // 3 MB against 64 KiB
	r := b.publish("s", subjects.KindPrompt, text)
	in, err := b.store.NextInput(t.Context(), "s", "", 0)
	b.must(err)
	if in.Ref.Seq != r.Seq || in.Message.(*loop.UserMessage).Content[0].(*loop.Text).Text != text {
		t.Fatalf("input %d differs from what was published as %d", in.Ref.Seq, r.Seq)
	}
	l := b.open("s", "w")
	b.append(l, &loop.AgentStart{}, &loop.MessageEnd{Message: in.Message}, waiting(1))
	b.close(l)
	got := 0
	for _, rec := range b.records("s", session.From{}) {
		for _, ev := range rec.Events {
			if end, ok := ev.(*loop.MessageEnd); ok {
				got = len(end.Message.(*loop.UserMessage).Content[0].(*loop.Text).Text)
			}
		}
	}
	if got != len(text) {
		t.Errorf("%d bytes came back from the log, want %d", got, len(text))
	}
	if n := len(b.fold("s").Transcript.Messages()); n != 1 {
		t.Errorf("%d messages in the fold, want 1", n)
	}
	b.must(b.store.DeleteInput(t.Context(), in))
	blobs, err := b.env.JS.ObjectStore(t.Context(), subjects.Names{}.BlobBucket())
	b.must(err)
	list, err := blobs.List(t.Context())
	b.must(err)
	if len(list) != 1 {
		t.Errorf("%d blobs are left, want the log's one", len(list))
	}
}

// Append must not wait for the broker until 4 MiB lie there, and must then.
func TestAppendWaitsOnlyWhenTheBufferIsFull(t *testing.T) {
	env := natstest.Start(t, nil)
	b := newBench(t, env, nil)
	l := b.open("s", "w")
	b.must(env.Server.Close()) // nothing is acknowledged any more
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	piece := delta(strings.Repeat("x", 64<<10))
	for range 60 { // 3.75 MiB
		b.must(l.Append(ctx, piece))
	}
	full, cancelFull := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancelFull()
	var err error
	for range 10 {
		if err = l.Append(full, piece); err != nil {
			break
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("append to a full buffer: %v, want it to wait for the deadline", err)
	}
	ended, cancelEnded := context.WithCancel(t.Context())
	cancelEnded()
	if err := l.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("abandoning: %v, want context.Canceled", err)
	}
}

func TestExpiredDeltasAreNoGap(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		b := newBench(t, e, nil)
		l := b.open("s", "w")
		long := strings.Repeat("long", 100)
		b.append(l, waiting(1), delta(long), waiting(2))
		b.append(l, delta(long))
		time.Sleep(2 * time.Hour)
		b.append(l, waiting(3))
		b.close(l)
		n := 0
		for _, rec := range b.records("s", session.From{}) {
			if rec.Gap != nil {
				t.Errorf("gap %+v", rec.Gap)
			}
			if rec.Sub > 0 {
				t.Errorf("record %d.%d has not expired", rec.Seq, rec.Sub)
			}
			n += len(rec.Events)
		}
		if n != 4 {
			t.Errorf("%d events, want the claim and 3 waits", n)
		}
		b.fold("s")
		e.NC.Close()
	})
}
