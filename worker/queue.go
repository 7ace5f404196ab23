package worker

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// errInHand says that the loop has the input, and that the log will have it in
// a moment: only then it is known in which turn.
var errInHand = errors.New("worker: input is being delivered")

// changeQueue does what the first waiting change of the queue asks for; false
// if there is none. inHand says which inputs the loop was given that have no
// record yet; the caller sees to it that it is given none meanwhile.
func (o *owner) changeQueue(ctx context.Context, running bool, inHand func(seq uint64) bool) (bool, error) {
	change, err := o.inbox.first(ctx, subjects.KindQueue)
	if errors.Is(err, session.ErrNoInput) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if ok, err := o.usable(change, false); !ok || err != nil {
		return true, err
	}
	target, err := o.inbox.find(ctx, change.Queue.Target, change.Queue.Seq)
	switch {
	case errors.Is(err, session.ErrNoInput):
		return true, o.tooLate(change)
	case err != nil:
		return false, err
	case inHand != nil && inHand(target.Ref.Seq):
		return false, errInHand
	}
	if _, spent := o.events.Spent(target); spent || target.Err != nil {
		// The next look at it makes it a duplicate or a dead letter.
		return true, o.consume(change, answered(change, "unknown"))
	}
	switch change.Queue.Op {
	case session.OpEdit:
		return true, o.edit(change, target)
	case session.OpMove:
		return true, o.move(ctx, change, target)
	}
	return true, o.cancel(change, target, running)
}

// tooLate answers a change whose input does not wait any more, or never did.
func (o *owner) tooLate(change *session.Input) error {
	out, known := o.events.Outcome(change.Queue.Target, change.Queue.Seq)
	ev := answered(change, "unknown")
	switch {
	case known && out.Ref.Returned:
		ev.Reason = "already_returned"
	case known && out.Ref.Kind.HasMessage():
		ev.Reason, ev.Turn = "already_delivered", out.Turn
	}
	return o.consume(change, ev)
}

func answered(change *session.Input, reason string) *loop.InputReturned {
	return returned(change, reason)
}

// cancel gives the target back, out of its turn.
func (o *owner) cancel(change, target *session.Input, running bool) error {
	ev := returned(target, "cancel")
	ev.Input = payload(target)
	evs := []loop.Event{ev, answered(change, "done")}
	if target.Ref.Kind == subjects.KindPrompt && !running {
		evs = append(evs, aborted(target)) // the last of its record, or it would be two
	}
	target.Ref.Early = true
	return o.append(evs, target, change)
}

// edit puts a message in the place of the target's. The event has it, and so
// the next owner.
func (o *owner) edit(change, target *session.Input) error {
	ev := answered(change, "done")
	message, err := loop.MarshalMessage(change.Message)
	if err != nil {
		return err
	}
	ev.Input, err = json.Marshal(struct {
		Op      string          `json:"op"`
		Seq     uint64          `json:"seq"`
		Message json.RawMessage `json:"message"`
	}{session.OpEdit, target.Ref.Seq, message})
	if err != nil {
		return err
	}
	if err := o.consume(change, ev); err != nil {
		return err
	}
	o.inbox.edit(target.Ref.Seq, change.Message)
	return nil
}

// move puts a prompt before another one, or before all. The event has the whole
// order, and so the next owner.
func (o *owner) move(ctx context.Context, change, target *session.Input) error {
	if target.Ref.Kind != subjects.KindPrompt {
		return o.consume(change, answered(change, "not_a_prompt"))
	}
	var before uint64
	if q := change.Queue; q.Before != "" || q.BeforeSeq != 0 {
		other, err := o.inbox.find(ctx, q.Before, q.BeforeSeq)
		if errors.Is(err, session.ErrNoInput) || err == nil && other.Ref.Kind != subjects.KindPrompt {
			return o.consume(change, answered(change, "unknown_before"))
		}
		if err != nil {
			return err
		}
		before = other.Ref.Seq
	}
	order := moved(o.inbox.prompts(), target.Ref.Seq, before)
	ev := answered(change, "done")
	var err error
	ev.Input, err = json.Marshal(struct {
		Op    string   `json:"op"`
		Seq   uint64   `json:"seq"`
		Order []uint64 `json:"order"`
	}{session.OpMove, target.Ref.Seq, order})
	if err != nil {
		return err
	}
	if err := o.consume(change, ev); err != nil {
		return err
	}
	o.inbox.reorder(order)
	return nil
}

// moved is the order with one sequence before another, or first.
func moved(order []uint64, seq, before uint64) []uint64 {
	if seq == before {
		return order
	}
	order = slices.DeleteFunc(slices.Clone(order), func(s uint64) bool { return s == seq })
	return slices.Insert(order, max(slices.Index(order, before), 0), seq)
}

// settleCancelled gives the prompts that were cancelled during a run their
// agent_settled, now that none is open.
func (o *owner) settleCancelled() error {
	for _, ref := range o.events.Owed() {
		err := o.append([]loop.Event{&loop.AgentSettled{
			Outcome: loop.OutcomeAborted, PromptSeq: ref.Seq, PromptID: ref.ID,
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// changeQueue does the same while the run goes on. The loop's polls wait
// meanwhile: an input is either cancelled or given to the loop.
func (r *run) changeQueue(ctx context.Context) (bool, error) {
	r.taking.Lock()
	defer r.taking.Unlock()
	more, err := r.o.changeQueue(ctx, true, func(seq uint64) bool {
		for _, in := range r.inputs {
			if in.Ref.Seq == seq {
				return true
			}
		}
		return false
	})
	if err != nil || !more {
		return false, err
	}
	return true, r.o.barrier(ctx)
}
