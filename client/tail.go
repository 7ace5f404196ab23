package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// Event is one event of a session's log with its position.
type Event struct {
	Session string
	// Seq is the stream sequence of the record that holds the event, Index the
	// event's place in it. To go on after a whole record, tail from Seq+1.
	Seq   uint64
	Index int
	// Number is the record's dense number within the session, and Sub the
	// number of an ephemeral record after it, 0 for a durable one.
	Number, Sub uint64
	Epoch       string // of the worker's ownership, "<n>-<nonce>"
	Time        time.Time
	// Inputs are the inputs that begin to have their effect with this event.
	Inputs []InputRef
	// Event is pi's, or the stored form with TailOptions.Wire. nil with a Gap.
	Event loop.Event
	// Line is the event as it is stored, one line of JSON; only with Wire.
	Line []byte
	// Gap says that what was asked for is gone; nil everywhere else.
	Gap *Gap
}

// InputRef names an input by its kind and its stream sequence in the inbox.
type InputRef struct {
	Kind Kind
	Seq  uint64
	ID   string
}

// Gap is a part of the log that retention or a purge has removed, or all of it:
// stream sequences, both included, and how many durable records were in it, 0
// if unknown.
type Gap struct{ From, To, Records uint64 }

// TailOptions say where a tail begins and in which form; the zero value and nil
// mean from the start, pi's events, for ever. At most one of Seq, Time,
// LastRun and Now is set.
type TailOptions struct {
	Seq     uint64    // stream sequence of a record, included
	Time    time.Time // first record at or after
	LastRun bool      // the open run, or without one the last that settled
	Now     bool      // only what comes
	// NoFollow ends the tail at what was the log's end when it began.
	NoFollow bool
	// UntilSettled ends the tail after an agent_settled at the log's end, with
	// no prompt waiting; and after the gap of a log that is gone as a whole.
	UntilSettled bool
	// Wait waits for a session that does not exist yet.
	Wait bool
	// Wire gives events as they are stored, without what pi repeats.
	Wire bool
}

// Tail yields a session's events from a point on, and then what happens, until
// ctx ends; its error is then ctx's. Errors: [ErrSession], [ErrUnknownSession]
// (without Wait), [ErrNoStreams], [ErrLost].
func (c *Client) Tail(ctx context.Context, id string, opts *TailOptions) iter.Seq2[*Event, error] {
	var o TailOptions
	if opts != nil {
		o = *opts
	}
	return func(yield func(*Event, error) bool) {
		if _, err := subjects.ParseSession(id); err != nil {
			yield(nil, err)
			return
		}
		ctx, stop := c.whileThere(ctx, id)
		defer stop()
		if err := c.tail(ctx, id, o, yield); err != nil {
			yield(nil, c.tailError(ctx, err))
		}
	}
}

// tail returns the error that ended the stream, nil if yield or the options
// did.
func (c *Client) tail(ctx context.Context, id string, o TailOptions, yield func(*Event, error) bool) error {
	from, err := c.from(ctx, id, o)
	if err != nil {
		return err
	}
	records := c.store.Tail
	if o.NoFollow {
		records = c.store.Read
	}
	x := expander{wire: o.Wire}
	var last *session.Record
	var state settling
	for r, err := range records(ctx, id, from) {
		if err != nil {
			return err
		}
		if err := x.prime(ctx, c.store, r); err != nil {
			return err
		}
		if more, err := x.events(r, yield); err != nil || !more {
			return err
		}
		last = r
		if state.see(r); !o.UntilSettled {
			continue
		}
		settled, err := c.isSettled(ctx, r, &state)
		if r.Gap != nil {
			settled, err = c.isOver(ctx, id)
		}
		if err != nil || settled {
			return err
		}
	}
	if o.NoFollow {
		x.flush(last, yield)
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return ErrLost
}

// from is where the store begins to read.
func (c *Client) from(ctx context.Context, id string, o TailOptions) (session.From, error) {
	from := session.From{Seq: o.Seq, Time: o.Time, Now: o.Now, Wait: o.Wait}
	if o.LastRun {
		seq, err := c.lastRun(ctx, id)
		if err != nil {
			return session.From{}, err
		}
		from.Seq = seq
	}
	from.Start = from.Seq == 0 && from.Time.IsZero() && !from.Now
	return from, nil
}

// expander gives pi's events for records from any point of the log on.
type expander struct {
	loop   loop.Expander
	wire   bool
	primed bool
	inputs []InputRef // of records whose events the loop's expander holds back
}

// prime feeds the part of the open run that comes before the first record, so
// that partial messages and the run's messages are whole from the first event.
func (x *expander) prime(ctx context.Context, store *session.Store, first *session.Record) error {
	if x.primed || x.wire || first.Gap != nil {
		return nil
	}
	x.primed = true
	if first.Settled+1 >= first.StreamSeq {
		return nil
	}
	for r, err := range store.Read(ctx, first.Session, session.From{Seq: first.Settled + 1}) {
		if err != nil {
			return fmt.Errorf("reading the run's beginning: %w", err)
		}
		if r.Gap == nil && r.StreamSeq >= first.StreamSeq {
			return nil
		}
		for _, ev := range r.Events {
			if _, err := x.loop.Expand(ev); err != nil {
				return fmt.Errorf("expanding record %d: %w", r.StreamSeq, err)
			}
		}
	}
	return nil
}

// events makes the client's Events of one record, and reports whether the
// reader wants more.
func (x *expander) events(r *session.Record, yield func(*Event, error) bool) (bool, error) {
	if r.Gap != nil {
		ev := newEvent(r, 0)
		ev.Gap = &Gap{From: r.Gap.From, To: r.Gap.To, Records: r.Gap.Records}
		return yield(ev, nil), nil
	}
	begins, index := effects(r), 0
	for i, stored := range r.Events {
		x.inputs = append(x.inputs, begins[i]...)
		full := []loop.Event{stored}
		if !x.wire {
			var err error
			if full, err = x.loop.Expand(stored); err != nil {
				return false, fmt.Errorf("expanding record %d: %w", r.StreamSeq, err)
			}
		}
		for _, one := range full {
			ev := newEvent(r, index)
			ev.Event, ev.Inputs = one, x.inputs
			x.inputs = nil
			if x.wire && i < len(r.Lines) {
				ev.Line = r.Lines[i]
			}
			index++
			if !yield(ev, nil) {
				return false, nil
			}
		}
	}
	return true, nil
}

// flush gives what was held back when the log ends in the middle of it.
func (x *expander) flush(last *session.Record, yield func(*Event, error) bool) {
	for i, held := range x.loop.Flush() {
		ev := newEvent(last, len(last.Events)+i)
		ev.Event, ev.Inputs = held, x.inputs
		x.inputs = nil
		if !yield(ev, nil) {
			return
		}
	}
}

func newEvent(r *session.Record, index int) *Event {
	return &Event{
		Session: r.Session, Seq: r.StreamSeq, Index: index, Number: r.Seq, Sub: r.Sub,
		Epoch: r.Epoch.String(), Time: r.Time,
	}
}

// effects says which inputs begin to have their effect with which of the record's
// events: one that is returned with the event that says so, one with a message
// with that, in their order, and what is left with the first such event.
func effects(r *session.Record) map[int][]InputRef {
	if len(r.Inputs) == 0 {
		return nil
	}
	messages := userMessages(r.Events)
	rest := 0
	if len(messages) > 0 {
		rest = messages[0]
	}
	begins := make(map[int][]InputRef, len(r.Inputs))
	for _, in := range r.Inputs {
		at := returnOf(r.Events, in)
		switch {
		case at >= 0:
		case in.Kind.HasMessage() && !in.Returned && len(messages) > 0:
			at, messages = messages[0], messages[1:]
		default:
			at = rest
		}
		begins[at] = append(begins[at], InputRef{Kind: in.Kind, Seq: in.Seq, ID: in.ID})
	}
	return begins
}

// userMessages are the places where messages begin that no model and no tool
// made.
func userMessages(events []loop.Event) (places []int) {
	for i, ev := range events {
		start, ok := ev.(*loop.MessageStart)
		if !ok || start.Message == nil {
			continue
		}
		if role := start.Message.Role(); role != loop.RoleAssistant && role != loop.RoleToolResult {
			places = append(places, i)
		}
	}
	return places
}

// returnOf is the place of the event that gives the input back, -1 without one.
func returnOf(events []loop.Event, in session.InputRef) int {
	return slices.IndexFunc(events, func(ev loop.Event) bool {
		ret, ok := ev.(*loop.InputReturned)
		return ok && ret.Seq == in.Seq && ret.Kind == string(in.Kind)
	})
}

// lookEvery is how often a tail looks whether its session is still there.
const lookEvery = 10 * time.Second

// whileThere is ctx, ended with [ErrLost] when the connection is closed, and
// with [ErrUnknownSession] when all of a session that was there is removed:
// then no event would ever come, and nobody would say so.
func (c *Client) whileThere(parent context.Context, id string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	closed := c.nc.StatusChanged(nats.CLOSED)
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for there := false; ; {
			select {
			case <-closed:
				cancel(fmt.Errorf("%w: the connection to NATS is closed", ErrLost))
				return
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := c.mustKnow(ctx, id)
			if there = there || err == nil; there && errors.Is(err, ErrUnknownSession) {
				cancel(fmt.Errorf("%w: it was removed", err))
				return
			}
		}
	})
	if c.nc.IsClosed() {
		cancel(fmt.Errorf("%w: the connection to NATS is closed", ErrLost))
	}
	return ctx, func() {
		cancel(nil)
		watch.Wait()
		c.nc.RemoveStatusListener(closed)
	}
}

// tailError says lost for everything that the caller did not bring about.
func (c *Client) tailError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	for _, known := range []error{ErrUnknownSession, ErrNoStreams, ErrLost} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }
