package session

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/pi-worker/pi-worker/subjects"
)

// place is where a reader stands.
type place struct {
	next   uint64    // stream sequence to go on from, at least 1
	time   time.Time // instead of next, at the beginning only
	expect uint64    // Pi-Seq of the next durable record, 0 unknown
}

// tailMark is where a log ended when it was looked at.
type tailMark struct {
	stream uint64    // stream sequence; 0 without a record, or to read for ever
	seq    uint64    // Pi-Seq, 0 unknown
	time   time.Time // of that record
}

// Read gives the records from a place up to the tail that the log has when
// Read begins. Lost connections and leaders are waited out, up to a minute for
// a record; ErrNoServer after that. ErrUnknownSession if nothing is known of
// the session.
func (s *Store) Read(ctx context.Context, session string, from From) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		at, end, err := s.begin(ctx, session, from)
		if err != nil {
			yield(nil, err)
			return
		}
		if end.stream == 0 {
			s.tellGone(ctx, session, from, yield)
			return
		}
		if at.next > end.stream || at.time.After(end.time) {
			return
		}
		s.records(ctx, session, at, end, yield)
	}
}

// Tail gives the records from a place on, for ever: replay and live are the
// same stream. It survives lost connections, consumers and leaders by going on
// after the last sequence. It ends with the error of ctx, or with
// ErrUnknownSession at once.
func (s *Store) Tail(ctx context.Context, session string, from From) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		at, end, err := s.begin(ctx, session, from)
		if err != nil {
			yield(nil, err)
			return
		}
		if end.stream == 0 {
			told, more := s.tellGone(ctx, session, from, yield)
			if !more {
				return
			}
			if told {
				at.expect = 0 // the numbers may go on or begin again
			}
		}
		s.records(ctx, session, at, tailMark{}, yield)
	}
}

// begin finds the place that from means, and where the log ends now.
func (s *Store) begin(ctx context.Context, session string, from From) (at place, end tailMark, err error) {
	if _, err := subjects.ParseSession(session); err != nil {
		return place{}, tailMark{}, err
	}
	stream := s.names.EventsStream()
	m, err := s.last(ctx, stream, s.names.Events(session))
	if errors.Is(err, errNotFound) {
		if !from.Wait {
			if err := s.known(ctx, session); err != nil {
				return place{}, tailMark{}, err
			}
		}
		return place{next: 1, expect: 1}, tailMark{}, nil
	}
	if err != nil {
		return place{}, tailMark{}, explain("reading the log's end", err)
	}
	rec := &Record{Session: session, StreamSeq: m.seq}
	if !isForeign(m.header) {
		if rec, err = readHead(session, m.seq, m.time, m.header); err != nil {
			return place{}, tailMark{}, err
		}
	}
	end = tailMark{stream: m.seq, seq: rec.Seq, time: m.time}
	switch {
	case from.Seq > 0:
		at, err = s.beginSeq(ctx, from)
	case !from.Time.IsZero():
		at = place{next: 1, time: from.Time}
	case from.Now:
		at = place{next: m.seq + 1}
		if rec.Seq > 0 {
			at.expect = rec.Seq + 1
		}
	case from.LastSettled:
		at, err = s.beginSettled(ctx, rec, m.data)
	default:
		at = place{next: 1, expect: 1}
	}
	return at, end, err
}

// beginSeq tells a hole at the beginning: from.Expect is exact; otherwise what
// the whole stream has lost counts.
func (s *Store) beginSeq(ctx context.Context, from From) (place, error) {
	at := place{next: from.Seq, expect: from.Expect}
	if at.expect != 0 || at.next == 1 {
		at.expect = max(at.expect, 1)
		return at, nil
	}
	stream, err := s.stream(ctx, s.names.EventsStream())
	if err != nil {
		return place{}, explain("reading the stream", err)
	}
	if first := stream.CachedInfo().State.FirstSeq; first > from.Seq {
		at.expect = 1 // whatever the session had before is gone
	}
	return at, nil
}

// beginSettled finds the last agent_settled by the tail alone: each record
// points to it.
func (s *Store) beginSettled(ctx context.Context, rec *Record, data []byte) (place, error) {
	if rec.Sub == 0 {
		if err := s.readLines(ctx, rec, data); err != nil {
			return place{}, err
		}
		if err := rec.parseLines(); err != nil {
			return place{}, err
		}
		for _, ev := range rec.Events {
			if ev.EventType() == "agent_settled" {
				return place{next: rec.StreamSeq + 1, expect: rec.Seq + 1}, nil
			}
		}
	}
	if rec.Settled == 0 {
		return place{next: 1, expect: 1}, nil
	}
	return place{next: rec.Settled + 1}, nil
}

// records gives records from a place on, to the mark or for ever.
func (s *Store) records(ctx context.Context, session string, at place, end tailMark, yield func(*Record, error) bool) {
	for m, err := range s.messages(ctx, session, at, end) {
		if err != nil {
			yield(nil, err)
			return
		}
		if isForeign(m.header) {
			continue
		}
		rec, err := s.decode(ctx, session, m)
		if err != nil {
			yield(nil, err)
			return
		}
		if gap := at.step(rec); gap != nil && !yield(&Record{Session: session, Gap: gap}, nil) {
			return
		}
		if !yield(rec, nil) {
			return
		}
	}
}

func (s *Store) decode(ctx context.Context, session string, m *message) (*Record, error) {
	rec, err := readHead(session, m.seq, m.time, m.header)
	if err != nil {
		return nil, err
	}
	if err := s.readLines(ctx, rec, m.data); err != nil {
		return nil, err
	}
	return rec, rec.parseLines()
}

// raw gives Fold its records. What expires is not parsed: a message or a tool
// result says it again when it ends.
func (s *Store) raw(ctx context.Context, session string) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		at, end, err := s.begin(ctx, session, From{Wait: true})
		if err != nil {
			yield(nil, err)
			return
		}
		if end.stream == 0 {
			return
		}
		for m, err := range s.messages(ctx, session, at, end) {
			if err != nil {
				yield(nil, err)
				return
			}
			if isForeign(m.header) {
				// Not in the state, but the next append is on top of it.
				if !yield(&Record{StreamSeq: m.seq}, nil) {
					return
				}
				continue
			}
			rec, err := readHead(session, m.seq, m.time, m.header)
			if err == nil && rec.Sub == 0 {
				if err = s.readLines(ctx, rec, m.data); err == nil {
					err = rec.parseLines()
				}
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}
