package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
)

// Fate is what became of an input.
type Fate string

// The fates of inputs. Each input has exactly one.
const (
	Delivered    Fate = "delivered"     // it is in the conversation
	Returned     Fate = "returned"      // it is not, and will not be; Reason says why
	DeadLettered Fate = "dead_lettered" // it could not be done; see [Client.DeadLetters]
)

// Delivery is the last receipt of an input.
type Delivery struct {
	Fate Fate `json:"fate"`
	// Turn of its run, from 1, that the input was delivered in; with the reason
	// "already_delivered" that of the input that was to be changed. 0 unknown.
	Turn int `json:"turn,omitempty"`
	// Reason of what was not delivered: "abort", "cancel", "duplicate",
	// "dead_letter"; of aborts and changes of the queue what they did.
	Reason string `json:"reason,omitempty"`
	// Input is the payload of what was returned, where it comes back.
	Input json.RawMessage `json:"input,omitempty"`
	// Seq is the stream sequence of the record that says so.
	Seq uint64 `json:"seq"`
}

// Await waits for the fate of an input: delivered, returned or dead-lettered.
// A repeated id is answered with the fate of the first. [Client.Wait] waits for
// the end of the run that it joined. Errors: [ErrLost], [ErrNoStreams], or
// ctx's.
func (c *Client) Await(ctx context.Context, r *Receipt) (*Delivery, error) {
	from := session.From{Start: true, Wait: true}
	if r.After > 0 {
		// From the run's beginning, to count its turns.
		settled, err := c.settledBefore(ctx, r.Session, r.After)
		if err != nil {
			return nil, err
		}
		from = session.From{Seq: settled + 1, Wait: true}
	}
	ctx, stop := c.whileThere(ctx, r.Session)
	defer stop()
	turn := 0
	for rec, err := range c.store.Tail(ctx, r.Session, from) {
		if err != nil {
			return nil, fmt.Errorf("awaiting %s %d of session %s: %w", r.Kind, r.Seq, r.Session, c.tailError(ctx, err))
		}
		turn = countTurns(turn, rec)
		if rec.StreamSeq <= r.After {
			continue
		}
		if d := deliveryIn(rec, r, turn); d != nil {
			return d, nil
		}
	}
	return nil, ErrLost
}

func countTurns(turn int, rec *session.Record) int {
	for _, ev := range rec.Events {
		switch ev.(type) {
		case *loop.AgentStart:
			turn = 0
		case *loop.TurnStart:
			turn++
		}
	}
	return turn
}

// deliveryIn is what a record says of an input, nil if nothing.
func deliveryIn(rec *session.Record, r *Receipt, turn int) *Delivery {
	f := follower{receipt: r}
	for _, ev := range rec.Events {
		ret, ok := ev.(*loop.InputReturned)
		if !ok || !f.isOurs(Kind(ret.Kind), ret.Seq, ret.ID) {
			continue
		}
		d := &Delivery{Fate: Returned, Reason: ret.Reason, Turn: ret.Turn, Input: ret.Input, Seq: rec.StreamSeq}
		if ret.Reason == "dead_letter" {
			d.Fate = DeadLettered
		}
		return d
	}
	for _, ref := range rec.Inputs {
		if f.isOurs(ref.Kind, ref.Seq, ref.ID) {
			if !ref.Kind.HasMessage() || ref.Returned {
				return &Delivery{Fate: Returned, Reason: "done", Seq: rec.StreamSeq} // an abort that ended a run
			}
			return &Delivery{Fate: Delivered, Turn: turn, Seq: rec.StreamSeq}
		}
	}
	return nil
}
