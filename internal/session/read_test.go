package session_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// tail reads until an agent_settled, and gives the Since of all waiting
// events: the tests number them.
func tail(ctx context.Context, s *session.Store, id string, from session.From) (got []int64, err error) {
	for rec, err := range s.Tail(ctx, id, from) {
		if err != nil {
			return got, err
		}
		for _, ev := range rec.Events {
			switch ev := ev.(type) {
			case *loop.Waiting:
				got = append(got, ev.Since)
			case *loop.AgentSettled:
				return got, nil
			}
		}
	}
	return got, errors.New("the tail ended by itself")
}

func TestTailSeamNoGapNoRepeat(t *testing.T) {
	b := start(t)
	const events = 3000
	l := b.open("s", "w")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	reader := func(from session.From) {
		wg.Go(func() {
			got, err := tail(ctx, b.store, "s", from)
			if err != nil {
				t.Error(err)
			}
			for i, n := range got {
				if want := int64(events - len(got) + i + 1); n != want {
					t.Errorf("from %+v: event %d is %d, want %d", from, i, n, want)
					return
				}
			}
			if !from.Now && len(got) != events {
				t.Errorf("from %+v: %d events, want %d", from, len(got), events)
			}
		})
	}
	for i := range events {
		if i%300 == 0 { // in the midst of the writing
			reader(session.From{Start: true})
			reader(session.From{Seq: 1})
			reader(session.From{Now: true})
		}
		if i%1000 == 500 { // consumers are lost
			names, err := b.env.JS.Stream(ctx, subjects.Names{}.EventsStream())
			b.must(err)
			for name := range names.ConsumerNames(ctx).Name() {
				if err := b.env.JS.DeleteConsumer(ctx, subjects.Names{}.EventsStream(), name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
					t.Error(err)
				}
			}
		}
		b.must(l.Append(ctx, waiting(i+1)))
		if i%50 == 0 {
			b.must(l.Flush(ctx))
		}
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	// More than once: a reader of what comes now may only begin now.
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for open := true; open; {
		b.append(l, &loop.AgentSettled{Outcome: loop.OutcomeCompleted})
		select {
		case <-ended:
			open = false
		case <-again.C:
		}
	}
	b.close(l)
}

func TestTailSurvivesALostConnection(t *testing.T) {
	b := start(t)
	l := b.open("s", "w")
	b.append(l, waiting(1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	other := openStore(t, &natstest.Env{NC: b.env.Connect()}, nil)
	var got []int64
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { got, err = tail(ctx, other, "s", session.From{Start: true}) })
	b.append(l, waiting(2))
	b.must(other.JetStream().Conn().ForceReconnect())
	b.append(l, waiting(3))
	b.append(l, &loop.AgentSettled{})
	wg.Wait()
	b.must(err)
	if fmt.Sprint(got) != "[1 2 3]" {
		t.Errorf("events %v, want 1 2 3", got)
	}
	b.close(l)
}

func TestReadFrom(t *testing.T) {
	b := start(t)
	l := b.open("s", "w")           // 1
	b.append(l, &loop.AgentStart{}) // 2
	b.append(l, &loop.AgentSettled{})
	b.append(l, delta("after"))      // expires, and points to the settled one too
	time.Sleep(2 * time.Millisecond) // records of one millisecond are not told apart
	between := time.Now()
	b.append(l, waiting(5))
	b.append(l, waiting(6))
	b.close(l)
	for _, c := range []struct {
		name string
		from session.From
		want uint64 // first stream sequence, 0 none
	}{
		{"zero", session.From{}, 1},
		{"start", session.From{Start: true}, 1},
		{"sequence", session.From{Seq: 2}, 2},
		{"last settled", session.From{LastSettled: true}, 4},
		{"time", session.From{Time: between}, 5},
		{"now", session.From{Now: true}, 0},
		{"beyond", session.From{Seq: 99}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			recs := b.records("s", c.from)
			switch {
			case c.want == 0 && len(recs) != 0:
				t.Errorf("records:\n%swant none", types(recs))
			case c.want > 0 && (len(recs) == 0 || recs[0].StreamSeq != c.want || recs[len(recs)-1].StreamSeq != 6):
				t.Errorf("records:\n%swant those from %d to 6", types(recs), c.want)
			}
		})
	}
	l = b.open("s", "w")
	b.append(l, &loop.AgentStart{}, &loop.AgentSettled{})
	b.close(l)
	if recs := b.records("s", session.From{LastSettled: true}); len(recs) != 0 {
		t.Errorf("after the settled tail there are\n%s", types(recs))
	}
}

func TestReadLongLog(t *testing.T) {
	b := start(t)
	l := b.open("s", "w")
	for i := range 200 {
		b.append(l, waiting(i))
	}
	b.close(l)
	recs := b.records("s", session.From{})
	for i, rec := range recs {
		if rec.Seq != uint64(i)+1 {
			t.Fatalf("record %d has the number %d", i, rec.Seq)
		}
	}
	if len(recs) != 201 {
		t.Errorf("%d records, want 201", len(recs))
	}
	if n := len(b.records("s", session.From{Seq: 101})); n != 101 {
		t.Errorf("%d records from 101 on, want 101", n)
	}
}

func TestUnknownSessionIsNotAnEmptyOne(t *testing.T) {
	b := start(t)
	read := func(id string, from session.From) error {
		for _, err := range b.store.Read(t.Context(), id, from) {
			return err
		}
		return nil
	}
	if err := read("nobody", session.From{}); !errors.Is(err, session.ErrUnknownSession) {
		t.Errorf("unknown session: %v, want ErrUnknownSession", err)
	}
	for _, err := range b.store.Tail(t.Context(), "nobody", session.From{}) {
		if !errors.Is(err, session.ErrUnknownSession) {
			t.Errorf("tail of an unknown session: %v, want ErrUnknownSession", err)
		}
	}
	b.publish("asked", subjects.KindPrompt, "hi")
	b.must(read("asked", session.From{}))
	b.must(b.store.PutSummary(t.Context(), &session.Summary{Session: "trimmed"}))
	b.must(read("trimmed", session.From{}))
	if err := read("a.b", session.From{}); !errors.Is(err, subjects.ErrSession) {
		t.Errorf("bad id: %v, want ErrSession", err)
	}
	// A tail may wait for what does not exist yet.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if got, err := tail(ctx, b.store, "later", session.From{Wait: true}); err != nil || len(got) != 1 {
			t.Errorf("waiting tail: %v, %v", got, err)
		}
	})
	l := b.open("later", "w")
	b.append(l, waiting(1), &loop.AgentSettled{})
	wg.Wait()
	b.close(l)
}

func TestGapIsTold(t *testing.T) {
	b := start(t)
	l := b.open("s", "w")
	for i := range 9 {
		b.append(l, waiting(i))
	}
	b.close(l)
	stream, err := b.env.JS.Stream(t.Context(), subjects.Names{}.EventsStream())
	b.must(err)
	b.must(stream.Purge(t.Context(), jetstream.WithPurgeSequence(4)))
	b.must(stream.DeleteMsg(t.Context(), 7))
	for _, c := range []struct {
		from session.From
		want string
	}{
		{session.From{}, "[1-3 3] 4 5 6 [7-7 1] 8 9 10"},
		{session.From{Seq: 2}, "[2-3 3] 4 5 6 [7-7 1] 8 9 10"},
		{session.From{Seq: 3, Expect: 3}, "[3-3 1] 4 5 6 [7-7 1] 8 9 10"},
		{session.From{Seq: 4, Expect: 4}, "4 5 6 [7-7 1] 8 9 10"},
		{session.From{Seq: 8}, "8 9 10"},
	} {
		got := ""
		for _, rec := range b.records("s", c.from) {
			if got != "" {
				got += " "
			}
			if rec.Gap != nil {
				got += fmt.Sprintf("[%d-%d %d]", rec.Gap.From, rec.Gap.To, rec.Gap.Records)
			} else {
				got += fmt.Sprint(rec.StreamSeq)
			}
		}
		if got != c.want {
			t.Errorf("from %+v: %s, want %s", c.from, got, c.want)
		}
	}
	if _, err := b.store.Fold(t.Context(), "s"); !errors.Is(err, session.ErrBroken) {
		t.Errorf("fold over a hole: %v, want ErrBroken", err)
	}
}

// A reader leaves no consumer behind: readers must not cost the server
// anything once they are gone.
func TestReadersLeaveNothingBehind(t *testing.T) {
	b := start(t)
	l := b.open("s", "w")
	for i := range 100 {
		b.append(l, waiting(i))
	}
	b.close(l)
	for range 10 {
		b.fold("s")
		for range b.store.Tail(t.Context(), "s", session.From{}) {
			break
		}
	}
	stream, err := b.env.JS.Stream(t.Context(), subjects.Names{}.EventsStream())
	b.must(err)
	if n := stream.CachedInfo().State.Consumers; n > 1 {
		t.Errorf("%d consumers are left", n)
	}
}

func TestFoldGivesWhatAResumeNeeds(t *testing.T) {
	b := start(t)
	ref := session.InputRef{Kind: subjects.KindPrompt, Seq: 7, ID: "p1", Options: &session.InputOptions{Agent: "coder", Model: "m"}}
	l := b.open("s", "w1")
	b.must(l.Append(t.Context(), &loop.AgentStart{}))
	b.must(l.Append(t.Context(), &loop.TurnStart{}))
	b.must(l.Append(t.Context(), &loop.MessageStart{Message: loop.NewUserText("hi")}, ref))
	b.append(l, user("hi"))
	steer := session.InputRef{Kind: subjects.KindSteer, Seq: 9, ID: "s1"}
	b.must(l.Append(t.Context(), &loop.InputReturned{Kind: "steer", Seq: 9, ID: "s1", Reason: "abort"}, steer))
	b.close(l)
	check := func(attempts, claims int) *session.State {
		t.Helper()
		st := b.fold("s")
		if st.Attempts != attempts || st.Claims != claims {
			t.Errorf("attempts %d, claims %d, want %d and %d", st.Attempts, st.Claims, attempts, claims)
		}
		return st
	}
	st := check(1, 1)
	if st.Prompt == nil || st.Prompt.ID != "p1" || st.Prompt.Options.Agent != "coder" || st.Prompt.Options.Model != "m" {
		t.Errorf("prompt %+v", st.Prompt)
	}
	if st.Cursors[subjects.KindPrompt] != 7 || st.Cursors[subjects.KindSteer] != 9 {
		t.Errorf("cursors %v", st.Cursors)
	}
	if !st.IDs["s1"].Ref.Returned || st.IDs["p1"].Ref.Returned || st.Worker != "w1" {
		t.Errorf("ids %+v, worker %s", st.IDs, st.Worker)
	}
	b.close(b.open("s", "w2"))
	check(2, 2)
	l = b.open("s", "w3")
	check(3, 3)
	b.append(l, &loop.MessageStart{Message: &loop.AssistantMessage{}}, &loop.MessageEnd{Message: &loop.AssistantMessage{StopReason: loop.StopStop}}, &loop.TurnEnd{})
	check(0, 3)
	b.append(l, &loop.AgentEnd{}, &loop.AgentSettled{Outcome: loop.OutcomeCompleted})
	b.close(l)
	if st := check(0, 0); st.Prompt != nil || st.Settled != st.TailSeq {
		t.Errorf("after settling: prompt %+v, settled %d, tail %d", st.Prompt, st.Settled, st.TailSeq)
	}
}

// A stranger deletes the stream and a worker makes it again: the log begins
// anew, and so does its reader.
func TestTailFollowsAStreamThatWasMadeAgain(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		b := newBench(t, e, nil)
		l := b.open("s", "w")
		for i := range 5 {
			b.append(l, waiting(i+1))
		}
		b.close(l)
		var got []int64
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { got, err = tail(t.Context(), b.store, "s", session.From{}) })
		time.Sleep(time.Second)
		b.must(e.JS.DeleteStream(t.Context(), subjects.Names{}.EventsStream()))
		time.Sleep(time.Minute)
		b.must(subjects.Ensure(t.Context(), e.JS, subjects.Names{}, nil))
		l = b.open("s", "w")
		b.append(l, waiting(6), &loop.AgentSettled{})
		b.close(l)
		wg.Wait()
		if err != nil || fmt.Sprint(got) != "[1 2 3 4 5 6]" {
			t.Errorf("events %v, %v, want 1 to 6", got, err)
		}
		e.NC.Close()
	})
}

func TestLogThatIsGoneIsTold(t *testing.T) {
	b := start(t)
	b.publish("young", subjects.KindPrompt, "hi")
	l := b.open("s", "w")
	b.append(l, waiting(1))
	b.close(l)
	b.must(b.store.PutSummary(t.Context(), &session.Summary{Session: "s", State: "idle", Epoch: l.Epoch().String(), Updated: time.Now()}))
	stream, err := b.env.JS.Stream(t.Context(), subjects.Names{}.EventsStream())
	b.must(err)
	b.must(stream.Purge(t.Context()))
	for _, c := range []struct {
		session string
		from    session.From
		want    *session.Gap
	}{
		{"s", session.From{}, &session.Gap{From: 1, To: 2}},
		{"s", session.From{Seq: 2}, &session.Gap{From: 2, To: 2}},
		{"s", session.From{Seq: 3}, nil},
		{"s", session.From{Now: true}, nil},
		{"s", session.From{Time: time.Now().Add(time.Hour)}, nil},
		{"young", session.From{}, nil}, // has a prompt, and never had a log
	} {
		recs := b.records(c.session, c.from)
		switch {
		case c.want == nil && len(recs) > 0, c.want != nil && len(recs) != 1:
			t.Errorf("%s from %+v: %d records", c.session, c.from, len(recs))
		case c.want != nil && (recs[0].Gap == nil || *recs[0].Gap != *c.want):
			t.Errorf("%s from %+v: %+v, want the hole %v", c.session, c.from, recs[0], c.want)
		}
	}
}
