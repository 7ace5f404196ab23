package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
)

// ErrNoInput: no such dead letter, or no such input in the queue.
var ErrNoInput = session.ErrNoInput

// ErrMalformed: an input that no worker could understand.
var ErrMalformed = session.ErrMalformed

// DeadLetter is an input that was given up.
type DeadLetter struct {
	Seq      uint64 `json:"seq"` // names the letter
	Session  string `json:"session"`
	Kind     Kind   `json:"kind"`
	ID       string `json:"id,omitempty"`
	InputSeq uint64 `json:"inputSeq,omitempty"` // stream sequence that it had in the inbox
	// Reason is "malformed", "unknown_agent", "not_allowed" (a model, a thinking
	// level or an option that the agent refuses) or "max_attempts".
	Reason   string    `json:"reason"`
	Error    string    `json:"error,omitempty"` // the last one
	Attempts int       `json:"attempts"`        // claims that were made; 0 if it never began
	Time     time.Time `json:"time"`
	// Input is the whole payload, as it was published.
	Input []byte `json:"-"`
}

// DeadLetters lists the dead letters of a session, or of all if it is "",
// oldest first. Errors: [ErrSession], [ErrNoStreams], [ErrNoServer].
func (c *Client) DeadLetters(ctx context.Context, id string) iter.Seq2[*DeadLetter, error] {
	return func(yield func(*DeadLetter, error) bool) {
		for d, err := range c.store.DeadLetters(ctx, id) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(deadLetter(d), nil) {
				return
			}
		}
	}
}

// DeadLetter reads one, by its sequence. Errors: [ErrNoInput] and those of
// [Client.DeadLetters].
func (c *Client) DeadLetter(ctx context.Context, seq uint64) (*DeadLetter, error) {
	d, err := c.store.Dead(ctx, seq)
	if err != nil {
		return nil, err
	}
	return deadLetter(d), nil
}

func deadLetter(d *session.Dead) *DeadLetter {
	return &DeadLetter{
		Seq: d.Seq, Session: d.Session, Kind: d.Kind, ID: d.ID, InputSeq: d.InputSeq,
		Reason: d.Reason, Error: d.Error, Attempts: d.Attempts, Time: d.Time, Input: d.Raw,
	}
}

// Redrive publishes the input of a dead letter again and removes the letter.
// The input gets a new id, so that it is a new input for everybody; with
// sameID it keeps its own, and takes the place of the one that was given up.
// Doing it twice publishes once. Errors: [ErrNoInput], [ErrMalformed], and
// those of [Client.Prompt].
func (c *Client) Redrive(ctx context.Context, seq uint64, sameID bool) (*Receipt, error) {
	d, err := c.store.Dead(ctx, seq)
	if err != nil {
		return nil, err
	}
	after, err := c.tailSeq(ctx, d.Session)
	if err != nil {
		return nil, err
	}
	d, got, err := c.store.Redrive(ctx, seq, sameID)
	if err != nil {
		return nil, fmt.Errorf("sending dead letter %d again: %w", seq, err)
	}
	return &Receipt{Session: d.Session, Kind: d.Kind, ID: got.ID, Seq: got.Seq, Duplicate: got.Duplicate, After: after}, nil
}

// DeleteDeadLetter removes a dead letter. Errors: [ErrNoInput] and those of
// [Client.DeadLetters].
func (c *Client) DeleteDeadLetter(ctx context.Context, seq uint64) error {
	return c.store.DeleteDead(ctx, seq)
}
