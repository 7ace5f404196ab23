package session

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

const (
	// probes is how many records Fold and Read get one by one before they
	// pay for a consumer.
	probes = 24
	// batch is how many records a reader asks for at a time, batchBytes how
	// much of them; whichever is reached first.
	batch      = 256
	batchBytes = 4 << 20
	// readHeartbeat is how often a reader hears that its consumer lives. Two
	// missing ones mean that the consumer's node is gone, which no lost
	// connection tells to a reader at another node.
	readHeartbeat = 2 * time.Second
	// openTime bounds one attempt to make a reader's consumer. It may have
	// been given to a node that is frozen; the next one is given to any.
	openTime = 5 * time.Second
	// readPatience is how long a read that has an end waits for one record
	// while the broker gives nothing but errors that may pass.
	readPatience = time.Minute
)

// messages gives the log's messages from a place on. Short logs are read by
// single gets; the rest by a consumer, which is made again whenever it is lost.
// Without a consumer to be had single gets serve all, and a reader for ever
// looks once a second.
func (s *Store) messages(ctx context.Context, session string, at place, end tailMark) iter.Seq2[*message, error] {
	return func(yield func(*message, error) bool) {
		// Where the numbers tell that it is long, it need not be tried.
		long := at.expect > 0 && end.seq > at.expect+probes
		if end.stream > 0 && !long && at.time.IsZero() {
			done, err := s.probe(ctx, session, &at, end.stream, yield)
			if err != nil {
				yield(nil, err)
			}
			if done || err != nil {
				return
			}
		}
		s.consume(ctx, session, at, end.stream, yield)
	}
}

// probe reads a few messages by single gets. done says that this was all, or
// that the caller wants no more.
func (s *Store) probe(ctx context.Context, session string, at *place, end uint64, yield func(*message, error) bool) (done bool, err error) {
	for range probes {
		m, err := s.next(ctx, s.names.EventsStream(), s.names.Events(session), at.next)
		if errors.Is(err, errNotFound) {
			// The end may have expired, or the replica that answered may be
			// behind: the consumer, which the leader makes, will tell.
			return false, nil
		}
		if err != nil {
			return false, explain("reading the log", err)
		}
		at.next = m.seq + 1
		if !yield(m, nil) || m.seq >= end {
			return true, nil
		}
	}
	return false, nil
}

// consume reads by a consumer until end, for ever if end is 0. Errors of the
// broker are waited out as long as ctx lives when it reads for ever; otherwise
// those that may pass, for readPatience.
func (s *Store) consume(ctx context.Context, session string, at place, end uint64, yield func(*message, error) bool) {
	pause := 50 * time.Millisecond
	refused := false
	for heard := time.Now(); ; {
		before := at.next
		done, err := s.consumeOnce(ctx, session, &at, end, yield)
		if errors.Is(err, jetstream.ErrMaximumConsumersLimit) {
			// All consumers are taken, by readers most likely: nobody may
			// keep a worker from a log by reading.
			done, err = s.getOnce(ctx, session, &at, end, yield)
		}
		if at.next > before {
			pause, heard = 50*time.Millisecond, time.Now()
		}
		switch {
		case done:
			return
		case ctx.Err() != nil:
			yield(nil, context.Cause(ctx))
			return
		case errors.Is(err, nats.ErrConnectionClosed), end > 0 && (isRefusal(err) || time.Since(heard) > readPatience):
			yield(nil, explain("reading the log", err))
			return
		}
		level, full := slog.LevelWarn, errors.Is(err, jetstream.ErrMaximumConsumersLimit)
		if full && refused {
			level = slog.LevelDebug // said before, and it may stay so for long
		}
		refused = full
		s.log.Log(ctx, level, "reading again", "session", session, "from", at.next, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, maxPause)
		if s.isBeyond(ctx, at.next) {
			at = place{next: 1}
		}
	}
}

// isRefusal says that the broker gave an answer which the next attempt would
// get as well. A consumer that is gone is made again.
func isRefusal(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code >= 400 && api.Code < 500 && api.ErrorCode != jetstream.JSErrCodeConsumerNotFound
}

// isBeyond says that the stream ends before the place where a reader wants to
// go on: somebody deleted it and it was made again. The log begins anew then.
func (s *Store) isBeyond(ctx context.Context, next uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.names.EventsStream())
	return err == nil && stream.CachedInfo().State.LastSeq+1 < next
}

func (s *Store) consumeOnce(ctx context.Context, session string, at *place, end uint64, yield func(*message, error) bool) (done bool, err error) {
	cfg := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{s.names.Events(session)},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy, OptStartSeq: at.next,
		MaxResetAttempts: 1, // consume begins again, with its own bounds
		NamePrefix:       nuid.Next(),
	}
	if !at.time.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &at.time
	}
	cons, err := s.openReader(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer func() { s.forget(cons.CachedInfo().Name) }()
	if end > 0 && cons.CachedInfo().NumPending == 0 {
		return s.isTail(ctx, session, at.next-1)
	}
	msgs, err := cons.Messages(
		jetstream.PullMaxMessagesWithBytesLimit(batch, max(batchBytes, 2*int(s.nc.MaxPayload()))),
		jetstream.PullHeartbeat(readHeartbeat),
	)
	if err != nil {
		return false, err
	}
	defer msgs.Stop()
	for {
		raw, err := msgs.Next(jetstream.NextContext(ctx))
		if err != nil {
			return false, err
		}
		meta, err := raw.Metadata()
		if err != nil {
			return false, err
		}
		seq := meta.Sequence.Stream
		if seq < at.next && at.time.IsZero() {
			continue // a consumer that was reset may repeat
		}
		at.next, at.time = seq+1, time.Time{}
		m := &message{subject: raw.Subject(), seq: seq, time: meta.Timestamp, header: raw.Headers(), data: raw.Data()}
		if !yield(m, nil) || end > 0 && seq >= end {
			return true, nil
		}
		if end > 0 && meta.NumPending == 0 {
			return s.isTail(ctx, session, seq)
		}
	}
}

// openReader makes a reader's consumer.
func (s *Store) openReader(ctx context.Context, cfg jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	cons, err := s.js.OrderedConsumer(ctx, s.names.EventsStream(), cfg)
	if err != nil && isTransient(err) {
		s.forget(cfg.NamePrefix + "_1") // nats.go's name; it may be made yet
	}
	return cons, err
}

// getOnce reads by single gets what there is until end, or to the log's end now
// if end is 0. It is for when no consumer is to be had, and slower.
func (s *Store) getOnce(ctx context.Context, session string, at *place, end uint64, yield func(*message, error) bool) (done bool, err error) {
	for {
		m, err := s.next(ctx, s.names.EventsStream(), s.names.Events(session), at.next)
		if errors.Is(err, errNotFound) {
			if end == 0 {
				return false, jetstream.ErrMaximumConsumersLimit
			}
			return s.isTail(ctx, session, at.next-1)
		}
		if err != nil {
			return false, err
		}
		at.next = m.seq + 1
		if m.time.Before(at.time) {
			continue
		}
		at.time = time.Time{}
		if !yield(m, nil) || end > 0 && m.seq >= end {
			return true, nil
		}
	}
}

// isTail says whether the log has nothing behind seq. A consumer without
// pending messages is no proof before its end was seen: the end may have
// expired, or the replica that the consumer is on may be behind the leader.
func (s *Store) isTail(ctx context.Context, session string, seq uint64) (bool, error) {
	m, err := s.last(ctx, s.names.EventsStream(), s.names.Events(session))
	if errors.Is(err, errNotFound) {
		return true, nil
	}
	return err == nil && m.seq <= seq, err
}

// forget deletes a reader's consumer without waiting; nats.go would leave it
// to the server's five minutes.
func (s *Store) forget(consumer string) {
	subject := s.api + "CONSUMER.DELETE." + s.names.EventsStream() + "." + consumer
	if err := s.nc.Publish(subject, nil); err != nil {
		s.log.Debug("deleting a reader's consumer", "error", err)
	}
}
