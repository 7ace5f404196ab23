package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/subjects"
)

const headerTTL = "Nats-TTL"

const (
	firstTimeout = 500 * time.Millisecond // of the first attempt to append
	blobTimeout  = 30 * time.Second       // of an attempt to store or read a large payload
)

// write commits segments until there are none, and ends.
func (l *Log) write() {
	for {
		l.mu.Lock()
		if l.err != nil || len(l.queue) == 0 {
			l.writing = false
			l.mu.Unlock()
			return
		}
		l.bytes -= l.queued()
		seg := l.gather()
		l.bytes += len(seg.buf) + l.queued()
		trace := l.traceParent
		l.mu.Unlock()

		begun := time.Now()
		err := l.commit(seg, trace)
		l.store.opts.Hooks.committed(seg, time.Since(begun), err)
		if err != nil {
			l.fail(err)
			continue
		}
		l.mu.Lock()
		l.acked += uint64(seg.events)
		if !seg.ephemeral {
			at := mark{stream: l.tail.stream, seq: l.tail.seq, time: time.Now()}
			seg.says.consumes = len(seg.inputs) > 0
			l.memory.durable(at, seg.says)
		}
		l.bytes -= len(seg.buf)
		if len(l.queue) == 0 {
			l.queue = nil
		}
		if cap(seg.buf) <= maxSpare {
			l.spare = seg
		}
		l.wake()
		l.mu.Unlock()
	}
}

// maxJoined is how many bytes of ephemeral events may go into a durable record,
// and so stay: what a record of their own would cost besides them.
const maxJoined = 256

// queued is the size of what waits. Called with mu held.
func (l *Log) queued() (n int) {
	for _, seg := range l.queue {
		n += len(seg.buf)
	}
	return n
}

// gather takes the next record from the queue, and with it what follows as long
// as that is one record at less cost: durable events behind a few ephemeral
// ones that wait between them. Called with mu held.
func (l *Log) gather() *segment {
	seg := l.pop()
	for len(l.queue) > 0 && seg.joins(l.queue, l.limit) {
		for more := true; more; {
			next := l.pop()
			more = next.ephemeral
			seg.add(next)
			if cap(next.buf) <= maxSpare {
				l.spare = next
			}
		}
	}
	return seg
}

func (l *Log) pop() *segment {
	seg := l.queue[0]
	l.queue[0] = nil
	l.queue = l.queue[1:]
	seg.seal(len(seg.buf))
	return seg
}

// joins says whether the segments up to the next durable one may join seg,
// which then is durable.
func (seg *segment) joins(queue []*segment, limit int) bool {
	size, inputs, eph := len(seg.buf), len(seg.inputs), 0
	if len(seg.large) > 0 || seg.says.settles {
		return false
	}
	if seg.ephemeral {
		eph = len(seg.buf)
	}
	for _, next := range queue[:min(2, len(queue))] {
		if len(next.large) > 0 || eph > 0 && next.ephemeral {
			return false
		}
		size, inputs = size+1+len(next.buf)+next.pack.reserve(), inputs+len(next.inputs)
		if !next.ephemeral {
			return eph <= maxJoined && inputs <= maxInputs && size <= limit
		}
		eph = len(next.buf) + next.pack.reserve()
	}
	return false
}

// add appends the lines of a sealed segment.
func (seg *segment) add(next *segment) {
	seg.buf = append(append(seg.buf, '\n'), next.buf...)
	seg.events += next.events
	seg.ephemeral = seg.ephemeral && next.ephemeral
	seg.says.join(next.says)
	seg.inputs = append(seg.inputs, next.inputs...)
}

// commit appends one record and does not return before its outcome is known
// or the log was given up.
func (l *Log) commit(seg *segment, trace string) error {
	next := l.tail
	if seg.ephemeral {
		next.sub++
	} else {
		next.seq, next.sub, next.epoch = next.seq+1, 0, l.epoch
	}
	data, err := l.refer(seg)
	if err != nil {
		return err
	}
	var stored uint64
	unknown := false
	err = l.retry(firstTimeout, func(ctx context.Context) (err error) {
		if unknown {
			if stored, err = l.settle(ctx, &next); err != nil || stored != 0 {
				return err
			}
		}
		msg, err := l.message(seg, &next, data, trace)
		if err != nil {
			return &permanentError{err}
		}
		ack, err := l.store.publish(ctx, msg)
		if err == nil {
			stored = ack.Sequence
			return nil
		}
		unknown = true
		return err
	})
	if err != nil {
		return err
	}
	next.stream = stored
	if seg.says.settles {
		next.settled = stored
	}
	l.tail = next
	return nil
}

// refer stores the large lines and gives the payload with references to them.
func (l *Log) refer(seg *segment) ([]byte, error) {
	if len(seg.large) == 0 {
		return seg.buf, nil
	}
	mark := ""
	if seg.ephemeral {
		mark = expiring
	}
	var data []byte
	done := 0
	for _, line := range seg.large {
		data = append(data, seg.buf[done:line.start]...)
		done = line.end
		err := l.retry(blobTimeout, func(ctx context.Context) error {
			ref, _, err := l.store.putBlob(ctx, l.session, mark, line.eventType, seg.buf[line.start:line.end])
			if err == nil {
				data = append(data, ref...)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return append(data, seg.buf[done:]...), nil
}

// message builds the record's message on top of the known tail.
func (l *Log) message(seg *segment, next *tail, data []byte, trace string) (*nats.Msg, error) {
	h := make(nats.Header, 8)
	h[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(l.tail.stream, 10)}
	h[subjects.HeaderEpoch] = []string{l.epoch.String()}
	h[subjects.HeaderSeq] = []string{strconv.FormatUint(next.seq, 10)}
	if seg.ephemeral {
		h[subjects.HeaderSub] = []string{strconv.FormatUint(next.sub, 10)}
		if ttl := l.store.opts.EphemeralTTL; ttl > 0 {
			h[headerTTL] = []string{max(ttl, time.Second).Truncate(time.Second).String()}
		}
	}
	if next.settled != 0 {
		h[subjects.HeaderSettled] = []string{strconv.FormatUint(next.settled, 10)}
	}
	if trace != "" {
		h[subjects.HeaderTraceParent] = []string{trace}
	}
	if err := setInputs(h, seg.inputs); err != nil {
		return nil, err
	}
	return &nats.Msg{Subject: l.subject, Header: h, Data: data}, nil
}

// settle finds out, by a leader read, what became of an append whose outcome
// is unknown or that lost its compare-and-set. A sequence means that it is
// stored; 0 means send again, on top of the tail that settle has put into
// l.tail; ErrFenced means that someone else wrote.
func (l *Log) settle(ctx context.Context, next *tail) (stored uint64, err error) {
	m, err := l.store.last(ctx, l.store.names.EventsStream(), l.subject)
	if errors.Is(err, errNotFound) {
		if l.tail.stream == 0 {
			return 0, nil // nothing was there, nor is now
		}
		return 0, fmt.Errorf("%w: the log of session %s is gone", ErrFenced, l.session)
	}
	if err != nil {
		return 0, err
	}
	hd, err := parseHead(m.header)
	if err != nil {
		return 0, fmt.Errorf("%w: the last record of session %s is not a worker's: %w", ErrFenced, l.session, err)
	}
	switch {
	case hd.epoch == l.epoch && hd.seq == next.seq && hd.sub == next.sub:
		return m.seq, nil
	case m.seq == l.tail.stream:
		return 0, nil
	case m.seq < l.tail.stream && hd.seq == l.tail.seq && hd.epoch == l.tail.epoch:
		// Our last records were ephemeral and have expired, so the broker
		// knows an older one as the last.
		l.tail.stream = m.seq
		return 0, nil
	}
	return 0, fmt.Errorf("%w: session %s has record %d.%d of epoch %s", ErrFenced, l.session, hd.seq, hd.sub, hd.epoch)
}

// permanentError ends a retry.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// isPermanent names the errors that another attempt can't mend.
func isPermanent(err error) bool {
	if _, ok := errors.AsType[*permanentError](err); ok {
		return true
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum {
		return true
	}
	return errors.Is(err, ErrFenced) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrMaxPayload) ||
		errors.Is(err, nats.ErrHeadersNotSupported)
}

// isLostRace says that the broker refused the fence.
func isLostRace(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// retry calls f until it succeeds, fails for good, or the log is given up. A
// full disk, a leaderless stream and a lost connection all may pass; the
// caller's lease and its contexts decide how long that is worth waiting for.
//
// An attempt that has no answer is given up after patience, the next one
// later: a leader that steps down never answers, a busy one only late, and
// asking twice is safe behind the fence.
func (l *Log) retry(patience time.Duration, f func(context.Context) error) error {
	pause := 20 * time.Millisecond
	for {
		ctx, cancel := context.WithTimeout(l.ctx, patience)
		err := f(ctx)
		cancel()
		switch {
		case err == nil:
			return nil
		case isPermanent(err):
			return err
		case l.ctx.Err() != nil:
			return ErrClosed
		}
		if isLostRace(err) && pause == 20*time.Millisecond {
			pause *= 2
			continue // settle at once
		}
		l.store.opts.Hooks.retried()
		l.store.log.Warn("appending", "session", l.session, "epoch", l.epoch.String(), "error", err)
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
			return ErrClosed
		}
		pause = min(2*pause, maxPause)
		patience = max(patience, min(2*patience, requestTimeout))
	}
}
