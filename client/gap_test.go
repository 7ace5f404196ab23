package client_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// events is the stream of the logs.
func (b *bundle) events(t *testing.T) jetstream.Stream {
	t.Helper()
	stream, err := b.JS.Stream(t.Context(), subjects.Names{}.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// types reads a log to its end: the types of its events, and its gaps.
func (b *bundle) types(t *testing.T, opts client.TailOptions) (types []string, gaps []client.Gap, last loop.Event) {
	t.Helper()
	opts.NoFollow = true
	for ev, err := range b.c.Tail(within(t), "s", &opts) {
		if err != nil {
			t.Fatalf("after %v: %v", types, err)
		}
		if ev.Gap != nil {
			gaps = append(gaps, *ev.Gap)
			continue
		}
		types, last = append(types, ev.Event.EventType()), ev.Event
	}
	return types, gaps, last
}

func TestTailTellsWhatIsGone(t *testing.T) {
	for _, wire := range []bool{true, false} {
		// Wherever retention has cut the log, a reader from the start is told,
		// and the rest is readable.
		b := newBundle(t)
		b.twoRuns(t, "s")
		whole, gaps, _ := b.types(t, client.TailOptions{Wire: wire})
		if len(gaps) != 0 {
			t.Fatalf("a whole log has gaps %v", gaps)
		}
		stream := b.events(t)
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for seq := uint64(2); seq <= info.State.LastSeq; seq++ {
			if err := stream.Purge(t.Context(), jetstream.WithPurgeSequence(seq)); err != nil {
				t.Fatal(err)
			}
			types, gaps, last := b.types(t, client.TailOptions{Wire: wire})
			if len(gaps) != 1 || gaps[0].From != 1 || gaps[0].To != seq-1 {
				t.Errorf("with all before %d gone the gaps are %v", seq, gaps)
			}
			if len(types) == 0 || len(types) > len(whole) {
				t.Errorf("with all before %d gone there are %d of %d events", seq, len(types), len(whole))
			}
			if settled, ok := last.(*loop.AgentSettled); !ok || settled.Outcome != loop.OutcomeCompleted {
				t.Errorf("with all before %d gone the log ends with %v", seq, last)
			}
		}
	}
}

func TestExpiredDeltasAreNoGap(t *testing.T) {
	b := newBundle(t)
	b.twoRuns(t, "s")
	stream := b.events(t)
	var ephemeral []uint64
	for ev, err := range b.c.Tail(within(t), "s", &client.TailOptions{NoFollow: true, Wire: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Sub > 0 && (len(ephemeral) == 0 || ephemeral[len(ephemeral)-1] != ev.Seq) {
			ephemeral = append(ephemeral, ev.Seq)
		}
	}
	for _, seq := range ephemeral {
		if err := stream.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	types, gaps, _ := b.types(t, client.TailOptions{})
	if len(ephemeral) == 0 || len(gaps) != 0 {
		t.Errorf("%d ephemeral records gone give gaps %v", len(ephemeral), gaps)
	}
	answers := 0
	for ev, err := range b.c.Tail(within(t), "s", &client.TailOptions{NoFollow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := ev.Event.(*loop.AgentEnd); ok && len(e.Messages) == 2 {
			answers++
		}
	}
	if answers != 2 {
		t.Errorf("%d runs have their messages, want 2; events are %v", answers, types)
	}
}
