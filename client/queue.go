package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nuid"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
)

// ErrReturned: the input was returned or dead-lettered before.
var ErrReturned = errors.New("client: the input was returned already")

// ErrNotMovable: only prompts can be moved, and only before a prompt that waits.
var ErrNotMovable = errors.New("client: only a prompt can be moved, and only before a prompt that waits")

// AlreadyDeliveredError says that a change of the queue came too late.
type AlreadyDeliveredError struct {
	Turn int // of its run, from 1, that has the input; 0 unknown
}

// Error names the turn.
func (e *AlreadyDeliveredError) Error() string {
	if e.Turn == 0 {
		return "client: the input is already delivered"
	}
	return fmt.Sprintf("client: the input is already delivered, in turn %d of its run", e.Turn)
}

// QueuedInput is an input that waits.
type QueuedInput struct {
	Seq     uint64            `json:"seq"` // stream sequence in the inbox
	Kind    Kind              `json:"kind"`
	ID      string            `json:"id,omitempty"`
	Message *loop.UserMessage `json:"message,omitempty"` // as it will be delivered; nil for controls
	Agent   string            `json:"agent,omitempty"`
	Time    time.Time         `json:"time"`
	// Malformed says why no worker will understand it, "" if one will.
	Malformed string `json:"malformed,omitempty"`
}

// Queue lists what waits in the session, in the order of its arrival but for
// prompts that were moved. One that
// is being delivered may still be among it. Errors: [ErrSession],
// [ErrUnknownSession], [ErrNoStreams].
func (c *Client) Queue(ctx context.Context, id string) ([]*QueuedInput, error) {
	if err := c.mustKnow(ctx, id); err != nil {
		return nil, err
	}
	var inputs []*session.Input
	for in, err := range c.store.Inputs(ctx, id) {
		if err != nil {
			return nil, fmt.Errorf("reading the queue of session %s: %w", id, err)
		}
		inputs = append(inputs, in)
	}
	if len(inputs) == 0 {
		return nil, nil
	}
	state, err := c.store.Fold(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	}
	session.Arrange(inputs, state.Order, func(in *session.Input) (uint64, bool) {
		return in.Ref.Seq, in.Ref.Kind == KindPrompt
	})
	var out []*QueuedInput
	for _, in := range inputs {
		if _, spent := state.Spent(in); spent {
			continue
		}
		if m := state.Edits[in.Ref.Seq]; m != nil {
			in.Edit(m)
		}
		q := &QueuedInput{Seq: in.Ref.Seq, Kind: in.Ref.Kind, ID: in.ID, Agent: in.Options.Agent, Time: in.Time}
		q.Message, _ = in.Message.(*loop.UserMessage)
		if in.Err != nil {
			q.Malformed = in.Err.Error()
		}
		out = append(out, q)
	}
	return out, nil
}

// Target names an input that waits: by its id, or by its stream sequence.
type Target struct {
	ID  string
	Seq uint64 // if ID is ""
}

// Cancel takes an input out of the queue; it comes back in an input_returned
// event, and a prompt settles as aborted. It waits for the answer of the
// session's worker: nil means that the input will not be delivered. Errors:
// [*AlreadyDeliveredError], [ErrReturned], [ErrNoInput], [ErrUnknownSession],
// [ErrLost], or ctx's: then the change is on its way.
func (c *Client) Cancel(ctx context.Context, id string, target Target) error {
	return c.change(ctx, id, target, &session.Input{Queue: session.QueueOptions{Op: session.OpCancel}})
}

// Edit puts another message in the place of the one that an input has; id and
// place stay. It waits and fails as Cancel does.
func (c *Client) Edit(ctx context.Context, id string, target Target, msg *loop.UserMessage) error {
	if isEmpty(msg) {
		return ErrEmptyPrompt
	}
	return c.change(ctx, id, target, &session.Input{Queue: session.QueueOptions{Op: session.OpEdit}, Message: msg})
}

// Move puts a waiting prompt before another one, or, with nil, before all that
// wait. It waits and fails as Cancel does; and [ErrNotMovable].
func (c *Client) Move(ctx context.Context, id string, target Target, before *Target) error {
	in := &session.Input{Queue: session.QueueOptions{Op: session.OpMove}}
	if before != nil {
		in.Queue.Before = before.ID
		if before.ID == "" {
			in.Queue.BeforeSeq = before.Seq
		}
	}
	return c.change(ctx, id, target, in)
}

func (c *Client) change(ctx context.Context, id string, target Target, in *session.Input) error {
	if err := c.mustKnow(ctx, id); err != nil {
		return err
	}
	in.Queue.Target = target.ID
	if target.ID == "" {
		in.Queue.Seq = target.Seq
	}
	after, err := c.tailSeq(ctx, id)
	if err != nil {
		return err
	}
	in.ID = nuid.Next()
	r, err := c.send(ctx, id, KindQueue, in)
	if err != nil {
		return err
	}
	r.After = after
	d, err := c.Await(ctx, r)
	if err != nil {
		return err
	}
	switch d.Reason {
	case "done":
		return nil
	case "already_delivered":
		return &AlreadyDeliveredError{Turn: d.Turn}
	case "already_returned":
		return ErrReturned
	case "not_a_prompt", "unknown_before":
		return ErrNotMovable
	}
	return fmt.Errorf("%w: none of session %s is %s", ErrNoInput, id, target)
}

// String is the id, or the sequence.
func (t Target) String() string {
	if t.ID != "" {
		return t.ID
	}
	return fmt.Sprint(t.Seq)
}
