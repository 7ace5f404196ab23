package client

import (
	"context"
	"errors"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
)

// settling is what the records so far say of the end of the last prompt.
type settling struct {
	last *loop.AgentSettled // nil while a run is open, or none was seen
	// after is the last prompt that settled in its turn.
	after     uint64
	cancelled map[uint64]bool // prompts, out of their turn
}

func (s *settling) see(r *session.Record) {
	for _, ref := range r.Inputs {
		if ref.Early {
			if s.cancelled == nil {
				s.cancelled = map[uint64]bool{}
			}
			s.cancelled[ref.Seq] = true
		}
	}
	for _, ev := range r.Events {
		switch e := ev.(type) {
		case *loop.AgentSettled:
			s.last = e
			if !s.cancelled[e.PromptSeq] {
				s.after = e.PromptSeq
			}
		case *loop.AgentStart, *loop.TurnStart, *loop.MessageStart, *loop.RunResumed:
			s.last = nil
		}
	}
}

// isSettled says whether the record is the end of all that the session has to
// do: the last prompt has settled, the log ends here, and no prompt waits. The
// record itself may be a later one; an owner may look in without finding work.
func (c *Client) isSettled(ctx context.Context, r *session.Record, state *settling) (bool, error) {
	if state.last == nil {
		return false, nil
	}
	tail, err := c.tailSeq(ctx, r.Session)
	if err != nil || tail != r.StreamSeq {
		return false, err
	}
	for after := state.after; ; {
		in, err := c.store.NextInput(ctx, r.Session, KindPrompt, after)
		if errors.Is(err, session.ErrNoInput) {
			return true, nil
		}
		if err != nil || !state.cancelled[in.Ref.Seq] {
			return false, err
		}
		after = in.Ref.Seq // not deleted yet
	}
}

// isOver says of a log without any record that nothing will be written to it
// unless an input comes: no run was open when its owner left, and no prompt waits.
func (c *Client) isOver(ctx context.Context, id string) (bool, error) {
	tail, err := c.tailSeq(ctx, id)
	if err != nil || tail != 0 {
		return false, err
	}
	sum, err := c.store.Summary(ctx, id)
	if err != nil || sum.State != StateIdle {
		return false, err
	}
	_, err = c.store.NextInput(ctx, id, KindPrompt, 0)
	if errors.Is(err, session.ErrNoInput) {
		return true, nil
	}
	return false, err
}

// lastRun is a stream sequence at or before the first record of the last run,
// and after the one before it; 0 without a log.
func (c *Client) lastRun(ctx context.Context, id string) (uint64, error) {
	tail, err := c.tailSeq(ctx, id)
	if err != nil || tail == 0 {
		return 0, err
	}
	settled, err := c.settledBefore(ctx, id, tail)
	if err != nil || settled == 0 {
		return 0, err
	}
	for r, err := range c.store.Read(ctx, id, session.From{Seq: settled + 1}) {
		if err != nil {
			return 0, err
		}
		if hasRun(r) {
			return settled + 1, nil
		}
	}
	// Nothing but a look in since: the last run is the one that settled.
	settled, err = c.settledBefore(ctx, id, settled)
	return settled + 1, err
}

// settledBefore is the stream sequence of the last agent_settled before a
// record, 0 if there is none.
func (c *Client) settledBefore(ctx context.Context, id string, seq uint64) (uint64, error) {
	for r, err := range c.store.Read(ctx, id, session.From{Seq: seq}) {
		if err != nil {
			return 0, err
		}
		if r.Gap == nil {
			return r.Settled, nil
		}
	}
	return 0, nil
}

// hasRun says whether the record belongs to a prompt.
func hasRun(r *session.Record) bool {
	for _, ev := range r.Events {
		switch ev.(type) {
		case *loop.AgentStart, *loop.TurnStart, *loop.MessageStart, *loop.MessageUpdate, *loop.RunResumed, *loop.AgentSettled:
			return true
		}
	}
	return false
}
