package client

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/pi-worker/pi-worker/loop"
)

// Result is how a prompt ended.
type Result struct {
	Outcome loop.Outcome
	// Text is that of the last finished answer; with any outcome but completed
	// it may be only a part of what was wanted.
	Text         string
	ErrorMessage string
	Attempts     int
	Usage        loop.Usage // of the whole run, cost included
	// Messages are the run's new ones, the prompt first; nil if it never ran.
	Messages []loop.Message
}

// Follow yields the events of one prompt, by its receipt: from its agent_start
// (or from the message, for a steer or follow-up that joined a run) to the
// agent_settled of the run, which is the last. The prompt may wait for others
// first. A steer or follow-up that was returned from the queue ends with its
// input_returned. Any other end is an error: [ErrLost], or ctx's.
//
// Events of the kind message_update share their partial message: read it before
// the next event, or clone it.
func (c *Client) Follow(ctx context.Context, r *Receipt) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		f := follower{receipt: r}
		for ev, err := range c.Tail(ctx, r.Session, &TailOptions{Seq: r.After + 1, Wait: true}) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, out := range f.take(ev) {
				if !yield(out, nil) {
					return
				}
			}
			if f.ended {
				return
			}
		}
		yield(nil, ErrLost)
	}
}

// follower picks one input's events out of a log.
type follower struct {
	receipt *Receipt
	opening []*Event // what may turn out to be the run's beginning
	begun   bool
	ended   bool
	// settles is true after the return of a prompt: its agent_settled comes,
	// perhaps after that of another run.
	settles bool
}

func (f *follower) take(ev *Event) []*Event {
	if f.begun {
		_, f.ended = ev.Event.(*loop.AgentSettled)
		return []*Event{ev}
	}
	switch e := ev.Event.(type) {
	case *loop.AgentSettled:
		// One that never ran.
		f.ended = f.isOurs(f.receipt.Kind, e.PromptSeq, e.PromptID)
	case *loop.InputReturned:
		if f.isOurs(Kind(e.Kind), e.Seq, e.ID) {
			// A prompt still gets its agent_settled.
			f.settles = f.receipt.Kind == KindPrompt && e.Reason != "duplicate"
			f.ended = !f.settles
			return []*Event{ev}
		}
	}
	if f.ended {
		return []*Event{ev}
	}
	if f.consumed(ev) {
		f.begun = true
		out := append(f.opening, ev)
		f.opening = nil
		return out
	}
	switch ev.Event.(type) {
	case *loop.AgentStart:
		f.opening = []*Event{ev}
	case *loop.TurnStart:
		if len(f.opening) > 0 {
			f.opening = append(f.opening, ev)
		}
	default:
		f.opening = nil
	}
	return nil
}

func (f *follower) isOurs(kind Kind, seq uint64, id string) bool {
	return kind == f.receipt.Kind && seq == f.receipt.Seq || id != "" && id == f.receipt.ID
}

func (f *follower) consumed(ev *Event) bool {
	for _, in := range ev.Inputs {
		if f.isOurs(in.Kind, in.Seq, in.ID) {
			return true
		}
	}
	return false
}

// Wait waits until a prompt settles. That it failed, was aborted or ran into a
// limit is a Result; errors are those of [Client.Follow].
func (c *Client) Wait(ctx context.Context, r *Receipt) (*Result, error) {
	res := &Result{}
	for ev, err := range c.Follow(ctx, r) {
		if err != nil {
			return nil, fmt.Errorf("waiting for %s %d of session %s: %w", r.Kind, r.Seq, r.Session, err)
		}
		res.Apply(ev.Event)
	}
	return res, nil
}

// Apply notes what an event of [Client.Follow] says of the outcome, for callers
// that follow and want the result as well.
func (r *Result) Apply(ev loop.Event) {
	switch e := ev.(type) {
	case *loop.MessageEnd:
		if answer, ok := e.Message.(*loop.AssistantMessage); ok {
			r.Text = textOf(answer)
		}
	case *loop.AgentEnd:
		r.Messages = e.Messages
	case *loop.InputReturned:
		r.Outcome = loop.OutcomeAborted
		if e.Reason == "dead_letter" {
			r.Outcome = loop.OutcomeDeadLetter
		}
		r.ErrorMessage = "returned from the queue: " + e.Reason
	case *loop.AgentSettled:
		r.Outcome, r.ErrorMessage = e.Outcome, e.ErrorMessage
		r.Attempts, r.Usage = e.Attempts, e.Usage
	}
}

func textOf(m *loop.AssistantMessage) string {
	var b strings.Builder
	for _, block := range m.Content {
		if text, ok := block.(*loop.Text); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String()
}
