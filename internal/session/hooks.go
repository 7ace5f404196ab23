package session

import (
	"errors"
	"time"
)

// Hooks are told what happens. A nil field is not called. They are called from
// many goroutines, some of which others wait for: they must not block.
type Hooks struct {
	// Committed: the broker has acknowledged a record.
	Committed func(Commit)
	// AppendRetried: an attempt to append had a bad answer, or none.
	AppendRetried func()
	// Fenced: the broker refused a record, since another worker has the session.
	Fenced func()
	// LeaseLost: a lease ran out under its owner.
	LeaseLost func()
	// BufferFull: an Append has to wait until some of 4 MiB are acknowledged.
	BufferFull func()
}

// Commit is one record that the broker has.
type Commit struct {
	Events    int
	Bytes     int  // of the payload, without headers
	Ephemeral bool // nothing but deltas
	// Took is the time from sending it until its outcome was known, with all
	// attempts.
	Took time.Duration
}

func (h *Hooks) committed(seg *segment, took time.Duration, err error) {
	switch {
	case err == nil && h.Committed != nil:
		h.Committed(Commit{Events: seg.events, Bytes: len(seg.buf), Ephemeral: seg.ephemeral, Took: took})
	case errors.Is(err, ErrFenced) && h.Fenced != nil:
		h.Fenced()
	}
}

func (h *Hooks) retried() {
	if h.AppendRetried != nil {
		h.AppendRetried()
	}
}

func (h *Hooks) leaseLost() {
	if h.LeaseLost != nil {
		h.LeaseLost()
	}
}

func (h *Hooks) bufferFull() {
	if h.BufferFull != nil {
		h.BufferFull()
	}
}
