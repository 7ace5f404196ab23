package session

import (
	"context"
	"errors"
	"fmt"
)

// step moves the place past a record, and tells the hole before it. Records
// that expire leave no hole.
func (at *place) step(rec *Record) (gap *Gap) {
	want := at.expect
	if rec.Sub > 0 && want > 0 {
		want-- // it carries the number of the durable record before it
	}
	switch {
	case at.expect == 0:
	case rec.Seq > want:
		gap = &Gap{From: at.next, To: rec.StreamSeq - 1, Records: rec.Seq - want}
	case rec.Seq < want: // the log was lost as a whole, and began again
		gap = &Gap{From: at.next, To: rec.StreamSeq - 1}
	}
	if gap != nil {
		if gap.To < gap.From {
			gap.From = gap.To
		}
	}
	at.next, at.expect = rec.StreamSeq+1, rec.Seq+1
	return gap
}

// known tells a session without a log from one that nobody has heard of.
func (s *Store) known(ctx context.Context, session string) error {
	_, err := s.next(ctx, s.names.InboxStream(), s.names.Inputs(session), 1)
	if err == nil {
		return nil
	}
	if !errors.Is(err, errNotFound) {
		return explain("reading the inbox", err)
	}
	if _, err := s.summary(ctx, session); err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUnknownSession, session)
}

// tellGone yields the hole of a log without any record that had some: its
// summary has an epoch, which comes with the first record, or the reader has a
// place in it. The hole ends where the stream ended before it was seen that the
// log is empty.
func (s *Store) tellGone(ctx context.Context, session string, from From, yield func(*Record, error) bool) (told, more bool) {
	if from.Now {
		return false, true
	}
	gap := &Gap{From: max(from.Seq, 1)}
	// Derived data: without it only a reader who was here before is told.
	switch sum, err := s.summary(ctx, session); {
	case err == nil && sum.Epoch != "" && !from.Time.After(sum.Updated):
		if from.Seq <= 1 {
			gap.Records = sum.Seq
		}
	case from.Seq <= 1:
		return false, true
	}
	stream, err := s.stream(ctx, s.names.EventsStream())
	if err != nil {
		return false, true
	}
	gap.To = stream.CachedInfo().State.LastSeq
	if _, err := s.last(ctx, s.names.EventsStream(), s.names.Events(session)); !errors.Is(err, errNotFound) || gap.To < gap.From {
		return false, true // it begins again right now
	}
	return true, yield(&Record{Session: session, Gap: gap}, nil)
}
