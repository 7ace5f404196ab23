package session_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// prompted appends the records of a whole prompt: two or more, and one of a
// delta.
func (b *bench) prompted(l *session.Log, seq uint64) session.InputRef {
	b.Helper()
	ref := session.InputRef{Kind: subjects.KindPrompt, Seq: seq, ID: fmt.Sprint("p-", seq)}
	b.append(l, &loop.AgentStart{}, &loop.TurnStart{}, delta("x"))
	b.must(l.AppendAll(b.Context(), []loop.Event{&loop.MessageStart{Message: loop.NewUserText("")}, user("hi")}, ref))
	b.append(l, &loop.TurnEnd{}, &loop.AgentEnd{}, &loop.AgentSettled{Outcome: loop.OutcomeCompleted, PromptSeq: seq, PromptID: ref.ID})
	return ref
}

// knows fails unless the log remembers these inputs, in their turn.
func (b *bench) knows(st *session.State, refs ...session.InputRef) {
	b.Helper()
	for _, ref := range refs {
		out, ok := st.Spent(&session.Input{ID: ref.ID, Ref: session.InputRef{Kind: ref.Kind, Seq: 1 << 40}})
		if !ok || out.Ref.Seq != ref.Seq || out.Turn != 1 {
			b.Errorf("input %s: spent %t, outcome %+v", ref.ID, ok, out)
		}
		if st.Cursors[ref.Kind] < ref.Seq {
			b.Errorf("cursor of %s is %d, want at least %d", ref.Kind, st.Cursors[ref.Kind], ref.Seq)
		}
	}
}

// A session's log keeps its newest prompts, whole ones, and forgets no id. Its
// readers are told what is gone.
func TestSessionKeepsItsNewestPromptsAndAllIDs(t *testing.T) {
	b := newBench(t, natstest.Start(t, nil), &session.Options{SessionRecords: 20})
	l := b.open("s", "w")
	var refs []session.InputRef
	most := 0
	for i := range 30 {
		refs = append(refs, b.prompted(l, uint64(i)+1))
		b.must(l.Retain(t.Context()))
		most = max(most, len(b.records("s", session.From{Seq: 1, Expect: 1})))
	}
	b.close(l)
	if most > 45 { // a quarter over the limit, a prompt, a checkpoint, the deltas, the gap
		t.Errorf("the log had %d records, of which it should keep 20 durable ones", most)
	}
	recs := b.records("s", session.From{})
	if gap := recs[0].Gap; gap == nil || gap.From != 1 || gap.Records != recs[1].Seq-1 {
		t.Fatalf("a reader begins with %+v, want the gap before %d", recs[0], recs[1].StreamSeq)
	}
	if first := recs[1].Events[0].EventType(); first != "agent_start" && first != "checkpoint" {
		t.Errorf("the log begins in the midst of a prompt, with %s", first)
	}
	if n := recs[len(recs)-1].Seq - recs[1].Seq + 1; n < 20 {
		t.Errorf("%d durable records are left, want at least 20", n)
	}
	st := b.fold("s")
	b.knows(st, refs...)
	if n := len(st.Transcript.Messages()); n < 3 || n > 15 {
		t.Errorf("%d messages are left", n)
	}
	b.close(b.open("s", "w2"))
}

// The session's files are those of the last snapshot, however long ago it was.
func TestTrimmedLogStillNamesItsFiles(t *testing.T) {
	b := newBench(t, natstest.Start(t, nil), &session.Options{SessionRecords: 20})
	l := b.open("s", "w")
	b.append(l, &loop.WorkspaceSaved{Manifest: "s/files/1-a.2"}, &loop.WorkspaceSaved{Manifest: "s/files/1-a.4"})
	for i := range 30 {
		b.prompted(l, uint64(i)+1)
		b.must(l.Retain(t.Context()))
	}
	b.close(l)
	for _, rec := range b.records("s", session.From{}) {
		for _, ev := range rec.Events {
			if ev.EventType() == "workspace_saved" {
				t.Fatal("the record is still there, so this shows nothing")
			}
		}
	}
	if st := b.fold("s"); st.Saved == nil || st.Saved.Manifest != "s/files/1-a.4" {
		t.Errorf("the log names %+v", st.Saved)
	}
}

// While a run is open, or an input was changed out of its turn, nothing is cut.
func TestNothingIsTrimmedThatIsStillNeeded(t *testing.T) {
	b := newBench(t, natstest.Start(t, nil), &session.Options{SessionRecords: 5})
	l := b.open("s", "w")
	b.prompted(l, 1)
	b.append(l, &loop.AgentStart{}, &loop.TurnStart{})
	for i := range 30 {
		b.append(l, waiting(i))
	}
	n := len(b.records("s", session.From{}))
	early := session.InputRef{Kind: subjects.KindPrompt, Seq: 9, ID: "early", Early: true}
	b.must(l.AppendAll(t.Context(), []loop.Event{&loop.InputReturned{Kind: "prompt", Seq: 9, ID: "early", Reason: "cancel"}}, early))
	b.must(l.Flush(t.Context()))
	b.must(l.Retain(t.Context()))
	if got := len(b.records("s", session.From{})); got != n+1 {
		t.Errorf("%d records, want %d", got, n+1)
	}
	b.close(l)
}

// The summary of the older context is never cut, for nothing else says what it
// says.
func TestSummaryOfTheContextIsNotTrimmed(t *testing.T) {
	b := newBench(t, natstest.Start(t, nil), &session.Options{SessionRecords: 10})
	l := b.open("s", "w")
	for i := range 20 {
		b.prompted(l, uint64(i)+1)
		if i == 2 || i == 8 {
			b.append(l, &loop.CompactionEnd{Result: &loop.Compacted{Summary: fmt.Sprint("summary ", i), Kept: 1}})
		}
		b.must(l.Retain(t.Context()))
	}
	b.close(l)
	st := b.fold("s")
	line := string(loop.AppendWire(nil, &loop.MessageEnd{Message: st.Transcript.Context()[0]}))
	if !strings.Contains(line, "summary 8") {
		t.Errorf("the context begins with %.200s, want the last summary", line)
	}
	if n := len(st.Transcript.Messages()); n > 15 {
		t.Errorf("%d messages are left", n)
	}
}

// The stream's age takes records one by one. A session that is at work once in
// half of that time forgets no id, however old.
func TestIDsOutliveTheStreamsAge(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		const age = 10 * time.Hour
		b := newBench(t, e, &session.Options{Ensure: &subjects.EnsureOptions{EventsMaxAge: age}})
		var refs []session.InputRef
		for i := range 12 {
			l := b.open("s", "w")
			refs = append(refs, b.prompted(l, uint64(i)+1))
			b.must(l.Retain(t.Context()))
			b.close(l)
			time.Sleep(4 * time.Hour)
			b.expire(age)
			b.knows(b.fold("s"), refs...)
		}
		if recs := b.records("s", session.From{}); recs[0].Gap == nil || len(recs) > 25 {
			t.Errorf("%d records are left, the first is %+v", len(recs), recs[0])
		}
		e.NC.Close()
	})
}

// expire does what the stream's age would. The server's own looks at a clock
// outside of the bubble.
func (b *bench) expire(age time.Duration) {
	b.Helper()
	stream, err := b.env.JS.Stream(b.Context(), subjects.Names{}.EventsStream())
	b.must(err)
	for seq := stream.CachedInfo().State.FirstSeq; seq <= stream.CachedInfo().State.LastSeq; seq++ {
		m, err := stream.GetMsg(b.Context(), seq)
		if err == nil && time.Since(m.Time) < age {
			b.must(stream.Purge(b.Context(), jetstream.WithPurgeSequence(seq)))
			return
		}
	}
}

// The same for a stream that is bounded by bytes, where other sessions push a
// session's records out.
func TestIDsOutliveTheStreamsBytes(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		b := newBenchOf(t, e, &subjects.EnsureOptions{EventsMaxBytes: 200 << 10})
		var refs []session.InputRef
		for i := range 12 {
			l := b.open("s", "w")
			refs = append(refs, b.prompted(l, uint64(i)+1))
			b.must(l.Retain(t.Context()))
			b.close(l)
			b.knows(b.fold("s"), refs...)
			other := b.open(fmt.Sprint("other-", i), "w")
			for n := range 180 { // a third of the stream
				b.append(other, waiting(n))
			}
			b.close(other)
		}
		if recs := b.records("s", session.From{}); recs[0].Gap == nil {
			t.Error("nothing was pushed out")
		}
		e.NC.Close()
	})
}

func newBenchOf(t *testing.T, e *natstest.Env, ensure *subjects.EnsureOptions) *bench {
	t.Helper()
	b := newBench(t, e, &session.Options{Ensure: ensure})
	force := *ensure
	force.Force = true
	b.must(subjects.Ensure(t.Context(), e.JS, subjects.Names{}, &force))
	return b
}

// A log that retention has emptied goes on behind its numbers, as far as the
// summary knows them: whoever reads it is told that something is gone.
func TestEmptiedLogGoesOnBehindItsNumbers(t *testing.T) {
	for _, hasSummary := range []bool{true, false} {
		b := start(t)
		l := b.open("s", "w")
		b.prompted(l, 1)
		b.close(l)
		place := session.From{}
		for _, rec := range b.records("s", session.From{}) {
			place = session.From{Seq: rec.StreamSeq + 1, Expect: rec.Seq + 1}
		}
		last := place.Expect - 1
		l = b.open("s", "w")
		b.prompted(l, 2)
		b.close(l)
		if hasSummary {
			b.must(b.store.PutSummary(t.Context(), &session.Summary{
				Session: "s", State: "idle", Epoch: l.Epoch().String(), Seq: l.Seq(), Updated: time.Now(),
			}))
		}
		stream, err := b.env.JS.Stream(t.Context(), subjects.Names{}.EventsStream())
		b.must(err)
		b.must(stream.Purge(t.Context(), jetstream.WithPurgeSubject(subjects.Names{}.Events("s"))))
		before := l.Seq()
		l = b.open("s", "w2")
		b.prompted(l, 3)
		b.close(l)
		recs := b.records("s", session.From{})
		if hasSummary && (recs[0].Gap == nil || recs[0].Gap.Records != before) {
			t.Errorf("a reader begins with %+v, want a gap of %d records", recs[0], before)
		}
		if hasSummary && (recs[1].Seq != before+1 || recs[1].Epoch.N != 3) {
			t.Errorf("the log goes on with %d of epoch %v, want %d of epoch 3", recs[1].Seq, recs[1].Epoch, before+1)
		}
		// Without a summary only those notice who know how far they were.
		recs = b.records("s", place)
		if recs[0].Gap == nil || recs[0].Gap.From != place.Seq {
			t.Errorf("summary: %t; a reader who was at %d goes on with %+v, want a gap", hasSummary, last, recs[0])
		}
		b.fold("s")
	}
}

// Nobody knows of an emptied log any more but the reader who was in it.
func TestReaderOfAnEmptiedLogIsNotLeftInSilence(t *testing.T) {
	b := start(t)
	l := b.open("s", "w")
	b.prompted(l, 1)
	b.close(l)
	b.must(b.store.Remove(t.Context(), "s"))
	for rec, err := range b.store.Tail(t.Context(), "s", session.From{Seq: 4, Wait: true}) {
		b.must(err)
		if rec.Gap == nil || rec.Gap.From != 4 {
			t.Errorf("the tail begins with %+v, want a gap from 4", rec)
		}
		break
	}
}

// A change of the queue may share its record with the delivery of what it was
// about. Then nothing of it is left, or the log would never be trimmed again.
func TestChangeOfWhatItsRecordDeliversIsOver(t *testing.T) {
	b := newBench(t, natstest.Start(t, nil), nil)
	l, err := b.store.BeginLog(t.Context(), "s", b.fold("s"), "w")
	b.must(err)
	b.must(l.Append(t.Context(), waiting(1)))
	for seq := uint64(1); seq < 80; seq += 2 { // most of them find a record on its way
		op := fmt.Appendf(nil, `{"op":"edit","seq":%d,"message":"new"}`, seq)
		if seq%4 == 1 {
			op = fmt.Appendf(nil, `{"op":"move","seq":%d,"order":[%d]}`, seq, seq)
		}
		change := &loop.InputReturned{Kind: "queue", Seq: seq + 1, Reason: "done", Input: op}
		b.must(l.Append(t.Context(), change, session.InputRef{Kind: subjects.KindQueue, Seq: seq + 1}))
		b.must(l.Append(t.Context(), user("it"), session.InputRef{Kind: subjects.KindPrompt, Seq: seq}))
	}
	b.close(l)
	if st := b.fold("s"); len(st.Edits)+len(st.Order) > 0 {
		t.Errorf("edits %v and the order %v are left", st.Edits, st.Order)
	}
}
