package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
)

// seen is an event as it is compared: its position and its JSON.
type seen struct {
	Seq  uint64
	Type string
	JSON string
}

func see(ev *client.Event) seen {
	return seen{ev.Seq, ev.Event.EventType(), string(loop.AppendEvent(nil, ev.Event))}
}

// collect reads until the n-th agent_settled, or the end.
func collect(t *testing.T, events iter.Seq2[*client.Event, error], n int) []seen {
	t.Helper()
	var all []seen
	for ev, err := range events {
		if err != nil {
			t.Errorf("after %d events: %v", len(all), err)
			return all
		}
		all = append(all, see(ev))
		if _, ok := ev.Event.(*loop.AgentSettled); ok {
			if n--; n == 0 {
				break
			}
		}
	}
	return all
}

// twoRuns writes two runs into a session.
func (b *bundle) twoRuns(t *testing.T, id string) {
	t.Helper()
	b.prompt(t, id, "one")
	log := b.worker.openLog(id)
	b.worker.answer(log, b.worker.input(id), "the Rhine", loop.OutcomeCompleted)
	b.prompt(t, id, "two")
	b.worker.answer(log, b.worker.input(id), "the Po", loop.OutcomeCompleted)
	b.worker.close(log)
}

func TestTailReplayEqualsLive(t *testing.T) {
	b := newBundle(t)
	var live []seen
	var wg sync.WaitGroup
	wg.Go(func() {
		live = collect(t, b.c.Tail(within(t), "s", &client.TailOptions{Wait: true}), 2)
	})
	b.twoRuns(t, "s")
	wg.Wait()
	if len(live) < 30 {
		t.Fatalf("only %d events: %v", len(live), live)
	}
	replay := collect(t, b.c.Tail(within(t), "s", &client.TailOptions{NoFollow: true}), 0)
	if !slices.Equal(live, replay) {
		t.Fatalf("replay differs\nlive   %v\nreplay %v", live, replay)
	}
	// From each record on: the same events, as whole as from the start.
	for i, ev := range replay {
		if i > 0 && replay[i-1].Seq == ev.Seq {
			continue
		}
		part := collect(t, b.c.Tail(within(t), "s", &client.TailOptions{Seq: ev.Seq, NoFollow: true}), 0)
		if !slices.Equal(part, replay[i:]) {
			t.Errorf("from %d\ngives %v\nwant  %v", ev.Seq, part, replay[i:])
		}
	}
}

func TestTailGivesPisFullEvents(t *testing.T) {
	b := newBundle(t)
	b.twoRuns(t, "s")
	var partials []string
	var turns []*loop.TurnEnd
	var ends []*loop.AgentEnd
	for ev, err := range b.c.Tail(within(t), "s", &client.TailOptions{NoFollow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := ev.Event.(type) {
		case *loop.MessageUpdate:
			if e.Update.Type == loop.UpdateTextDelta {
				partials = append(partials, e.Partial.Content[0].(*loop.Text).Text)
			}
		case *loop.TurnEnd:
			turns = append(turns, e)
		case *loop.AgentEnd:
			ends = append(ends, e)
		}
	}
	if !slices.Contains(partials, "the Rhi") || partials[len(partials)-1] != "the Po" {
		t.Errorf("partial messages are %q", partials)
	}
	if len(turns) != 2 || turns[1].Message == nil {
		t.Fatalf("turn_end is without its message: %v", turns)
	}
	if len(ends) != 2 || len(ends[0].Messages) != 2 || len(ends[1].Messages) != 2 {
		t.Errorf("agent_end does not have the two messages of its run: %v", ends)
	}
}

func TestTailWireHasNoCopies(t *testing.T) {
	b := newBundle(t)
	b.twoRuns(t, "s")
	n := 0
	for ev, err := range b.c.Tail(within(t), "s", &client.TailOptions{NoFollow: true, Wire: true}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		stored, err := loop.ParseWire(ev.Line)
		if err != nil || stored.EventType() != ev.Event.EventType() {
			t.Errorf("line %s: %v", ev.Line, err)
		}
		if e, ok := ev.Event.(*loop.AgentEnd); ok && e.Messages != nil {
			t.Error("agent_end repeats its messages")
		}
	}
	if n == 0 {
		t.Error("no events")
	}
}

func TestTailFromEachPoint(t *testing.T) {
	b := newBundle(t)
	b.twoRuns(t, "s")
	all := collect(t, b.c.Tail(within(t), "s", &client.TailOptions{NoFollow: true}), 0)
	second := slices.IndexFunc(all, func(s seen) bool { return s.Type == "agent_settled" }) + 1

	last := collect(t, b.c.Tail(within(t), "s", &client.TailOptions{LastRun: true, UntilSettled: true}), 0)
	if !slices.Equal(last, all[second:]) {
		t.Errorf("the last run is %v\nwant %v", last, all[second:])
	}
	whole := collect(t, b.c.Tail(within(t), "s", &client.TailOptions{UntilSettled: true}), 0)
	if !slices.Equal(whole, all) {
		t.Errorf("until settled ends after %d of %d events", len(whole), len(all))
	}
	future := collect(t, b.c.Tail(within(t), "s", &client.TailOptions{Time: time.Now().Add(time.Hour), NoFollow: true}), 0)
	if len(future) != 0 {
		t.Errorf("an hour from now has %d events", len(future))
	}
	past := collect(t, b.c.Tail(within(t), "s", &client.TailOptions{Time: time.Now().Add(-time.Hour), NoFollow: true}), 0)
	if !slices.Equal(past, all) {
		t.Errorf("an hour ago has %d of %d events", len(past), len(all))
	}
	now := collect(t, b.c.Tail(within(t), "s", &client.TailOptions{Now: true, NoFollow: true}), 0)
	if len(now) != 0 {
		t.Errorf("now has %d events", len(now))
	}
}

func TestTailNowSeesWholePartialMessages(t *testing.T) {
	b := newBundle(t)
	b.prompt(t, "s", "one")
	log := b.worker.openLog("s")
	in := b.worker.input("s")
	b.worker.begin(log, in)
	b.worker.stream(log, "the Rh", false)
	ctx, stop := context.WithCancel(within(t))
	joined := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		// The tail has begun when it says so; nothing tells the moment, so the
		// writer goes on until the reader has seen one event.
		<-joined
		stop()
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			b.worker.append(log, update(loop.Update{Type: loop.UpdateTextDelta, Delta: "i"}))
			b.worker.flush(log)
		}
	})
	for ev, err := range b.c.Tail(ctx, "s", &client.TailOptions{Now: true}) {
		if err != nil {
			t.Error(err)
			break
		}
		e, ok := ev.Event.(*loop.MessageUpdate)
		if !ok {
			t.Errorf("first event is %s", ev.Event.EventType())
		} else if text := e.Partial.Content[0].(*loop.Text).Text; len(text) < len("the Rhi") || text[:7] != "the Rhi" {
			t.Errorf("partial message is %q, want it from its beginning", text)
		}
		break
	}
	close(joined)
	wg.Wait()
	b.worker.close(log)
}

func TestTailEndsWithContext(t *testing.T) {
	b := newBundle(t)
	b.twoRuns(t, "s")
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(within(t))
	defer cancel(nil)
	var last error
	for ev, err := range b.c.Tail(ctx, "s", nil) {
		if last = err; err == nil && ev.Event.EventType() == "agent_settled" {
			cancel(why)
		}
	}
	if !errors.Is(last, why) {
		t.Errorf("the tail ends with %v, want the context's cause", last)
	}
}

func TestTailClosedConnectionIsLost(t *testing.T) {
	b := newBundle(t)
	b.twoRuns(t, "s")
	nc := b.Connect(nats.NoReconnect())
	c, err := client.New(t.Context(), nc, nil)
	if err != nil {
		t.Fatal(err)
	}
	settled := 0
	var last error
	for ev, err := range c.Tail(within(t), "s", nil) {
		if last = err; err != nil {
			break
		}
		if ev.Event.EventType() == "agent_settled" {
			if settled++; settled == 2 {
				nc.Close()
			}
		}
	}
	if !errors.Is(last, client.ErrLost) {
		t.Errorf("the tail ends with %v, want ErrLost", last)
	}
	// A connection that is closed already is lost as well.
	for _, err := range c.Tail(within(t), "s", nil) {
		if err != nil && !errors.Is(err, client.ErrLost) {
			t.Errorf("a closed connection gives %v, want ErrLost", err)
		}
	}
}

func TestTailUntilSettledSeesPastALookIn(t *testing.T) {
	// An owner that finds no work leaves its session_claimed behind the last
	// agent_settled: the session is settled all the same.
	b := newBundle(t)
	b.twoRuns(t, "s")
	b.worker.close(b.worker.openLog("s"))
	all := collect(t, b.c.Tail(within(t), "s", &client.TailOptions{UntilSettled: true}), 0)
	if last := all[len(all)-1]; last.Type != "session_claimed" {
		t.Fatalf("the log ends with %v", last)
	}
	second := slices.IndexFunc(all, func(s seen) bool { return s.Type == "agent_settled" }) + 1
	last := collect(t, b.c.Tail(within(t), "s", &client.TailOptions{LastRun: true, UntilSettled: true}), 0)
	if !slices.Equal(last, all[second:]) {
		t.Errorf("the last run is %v\nwant %v", last, all[second:])
	}
}

func TestTailUntilSettledWaitsForQueuedPrompts(t *testing.T) {
	b := newBundle(t)
	b.prompt(t, "s", "one")
	b.prompt(t, "s", "two")
	log := b.worker.openLog("s")
	b.worker.answer(log, b.worker.input("s"), "the Rhine", loop.OutcomeCompleted)
	settled := 0
	for ev, err := range b.c.Tail(within(t), "s", &client.TailOptions{UntilSettled: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := ev.Event.(*loop.AgentSettled); ok {
			if settled++; settled == 1 {
				b.worker.answer(log, b.worker.input("s"), "the Po", loop.OutcomeCompleted)
			}
		}
	}
	b.worker.close(log)
	if settled != 2 {
		t.Errorf("the tail ends after %d of 2 prompts", settled)
	}
}

// Inputs that share a record begin each with its own event.
func TestInputsOfOneRecordBeginWithTheirOwnEvents(t *testing.T) {
	b := newBundle(t)
	log := b.worker.openLog("s1")
	one, two := loop.NewUserText("one"), loop.NewUserText("two")
	ref := func(kind client.Kind, seq uint64) session.InputRef { return session.InputRef{Kind: kind, Seq: seq} }
	err := log.AppendAll(t.Context(), []loop.Event{
		&loop.AgentStart{}, &loop.TurnStart{},
		&loop.MessageStart{Message: one}, &loop.MessageEnd{Message: one},
		&loop.MessageStart{Message: two}, &loop.MessageEnd{Message: two},
	}, ref(client.KindPrompt, 1), ref(client.KindSteer, 2))
	if err != nil {
		t.Fatal(err)
	}
	b.worker.flush(log)
	err = log.AppendAll(t.Context(), []loop.Event{
		&loop.InputReturned{Kind: "queue", Seq: 3, Reason: "unknown"}, &loop.InputReturned{Kind: "steer", Seq: 4, Reason: "duplicate"},
	}, ref(client.KindQueue, 3), ref(client.KindSteer, 4))
	if err != nil {
		t.Fatal(err)
	}
	b.worker.close(log)
	for _, wire := range []bool{false, true} {
		var got []string
		for ev, err := range b.c.Tail(t.Context(), "s1", &client.TailOptions{NoFollow: true, Wire: wire}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, in := range ev.Inputs {
				text := ""
				if start, ok := ev.Event.(*loop.MessageStart); ok {
					text = textIn(start.Message)
				}
				if ret, ok := ev.Event.(*loop.InputReturned); ok {
					text = ret.Reason
				}
				got = append(got, fmt.Sprint(ev.Event.EventType(), " ", text, " ", in.Seq))
			}
		}
		want := []string{"message_start one 1", "message_start two 2", "input_returned unknown 3", "input_returned duplicate 4"}
		if wire {
			want[0], want[1] = "message_start  1", "message_start  2" // the text is in message_end
		}
		if !slices.Equal(got, want) {
			t.Errorf("wire %t: inputs begin with %q, want %q", wire, got, want)
		}
	}
}

func textIn(m loop.Message) string {
	user, ok := m.(*loop.UserMessage)
	if !ok || len(user.Content) == 0 {
		return ""
	}
	if text, ok := user.Content[0].(*loop.Text); ok {
		return text.Text
	}
	return ""
}
