package session

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/subjects"
)

// Acknowledgements of JetStream.
const (
	ackAck      = "+ACK"
	ackNak      = "-NAK"
	ackProgress = "+WPI"
)

// Claims gives one bell after the other, each a lease on its session. A bell
// is pulled only when ready, which may wait, says true; nil always does. A
// worker that is full does not ask, and one at a time: what was sent to a
// worker that turns out to be frozen or cut off has to wait for its AckWait.
// Streams and consumers that are gone are made again; meanwhile Ready says so.
// It ends without an error when ctx ends or ready says false, and with one when
// nothing but a person can help.
func (s *Store) Claims(ctx context.Context, ready func() bool) iter.Seq2[*Claim, error] {
	batch := func() int {
		if ready == nil || ready() {
			return 1
		}
		return 0
	}
	return func(yield func(*Claim, error) bool) {
		p := &puller{store: s, stream: s.names.BellStream(), consumer: subjects.ConsumerWorkers, trouble: &s.claiming}
		defer func() { p.stop() }()
		for m, wait := range s.pulls(ctx, p, batch) {
			session, err := s.names.ParseBell(m.Subject)
			if err != nil {
				continue // the stream's subjects allow it, we don't: it has no inbox
			}
			if !yield(s.newClaim(session, m, wait), nil) {
				return
			}
		}
		if s.nc.IsClosed() {
			yield(nil, fmt.Errorf("session: claiming: %w", nats.ErrConnectionClosed))
		}
	}
}

// pulls gives the messages of a consumer and its AckWait, until ctx ends, batch
// says 0 or the connection is closed. batch is how many to pull at once. It
// makes again what is missing.
func (s *Store) pulls(ctx context.Context, p *puller, batch func() int) iter.Seq2[*nats.Msg, time.Duration] {
	return func(yield func(*nats.Msg, time.Duration) bool) {
		var ackWait time.Duration // 0 before the consumer was seen
		pause := 100 * time.Millisecond
		for ctx.Err() == nil && !s.nc.IsClosed() {
			m, err := (*nats.Msg)(nil), error(nil)
			if ackWait == 0 {
				ackWait, err = s.ackWait(ctx, p.stream, p.consumer)
			}
			if err == nil && p.waiting == 0 {
				if err = p.pull(batch()); errors.Is(err, errNoneWanted) {
					return
				}
			}
			if err == nil {
				m, err = p.next(ctx)
			}
			if err == nil || errors.Is(err, errPullExpired) {
				p.trouble.Store(nil)
				pause = 100 * time.Millisecond
				if m != nil && !yield(m, ackWait) {
					return
				}
				continue
			}
			if ctx.Err() != nil {
				return
			}
			s.log.Warn("pulling", "stream", p.stream, "consumer", p.consumer, "error", err)
			err = explain("pulling from "+p.stream, err)
			p.trouble.Store(&err)
			ackWait = 0
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, 5*time.Second)
			s.recreate(ctx)
		}
	}
}

// ackWait asks the consumer, which may have been made with another one.
func (s *Store) ackWait(ctx context.Context, stream, consumer string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cons, err := s.js.Consumer(ctx, stream, consumer)
	if err != nil {
		return 0, err
	}
	return cons.CachedInfo().Config.AckWait, nil
}

// recreate makes again what a stranger deleted; it changes nothing that
// exists.
func (s *Store) recreate(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*requestTimeout)
	defer cancel()
	opts := subjects.EnsureOptions{}
	if s.opts.Ensure != nil {
		opts = *s.opts.Ensure
	}
	opts.Force = false
	if err := subjects.Ensure(ctx, s.js, s.names, &opts); err != nil {
		s.log.Warn("creating streams again", "error", err)
	}
}

// Claim is the lease of one session: its bell, pulled and not acknowledged. It
// beats by itself until Remove, Release or Abandon, one of which must be
// called.
type Claim struct {
	store   *Store
	session string
	bell    *nats.Msg
	ackWait time.Duration

	lost   context.Context // ends with the cause ErrLeaseLost, or with another when the claim ends
	cancel context.CancelCauseFunc
	beats  context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	from time.Time // the lease counts from here
}

func (s *Store) newClaim(session string, bell *nats.Msg, ackWait time.Duration) *Claim {
	c := &Claim{store: s, session: session, bell: bell, ackWait: ackWait, from: time.Now()}
	c.lost, c.cancel = context.WithCancelCause(context.Background())
	ctx, stop := context.WithCancel(c.lost)
	c.beats = stop
	c.wg.Go(func() { c.beat(ctx) }) // end waits for it
	return c
}

// Session is whose bell it is.
func (c *Claim) Session() string { return c.session }

// Lost is closed when the lease is lost, or given up.
func (c *Claim) Lost() <-chan struct{} { return c.lost.Done() }

// Context is a child of parent that also ends when the lease is lost; its
// cause is then ErrLeaseLost.
func (c *Claim) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(c.lost, func() {
		if errors.Is(context.Cause(c.lost), ErrLeaseLost) {
			cancel(ErrLeaseLost)
		}
	})
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// age is how long ago the last acknowledged beat was sent.
func (c *Claim) age() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.from)
}

// Fresh says that a beat was acknowledged within 3/4 of AckWait: time enough
// to remove the bell.
func (c *Claim) Fresh() bool { return c.lost.Err() == nil && c.age() < c.ackWait*3/4 }

// Held is nil while the lease lives, by our own clock, and otherwise
// ErrLeaseLost. Ask it right before a side effect: a process that was stopped
// and goes on sees it here before its next beat.
func (c *Claim) Held() error {
	if c.lost.Err() == nil && c.age() < c.ackWait {
		return nil
	}
	return ErrLeaseLost
}

// beat extends the lease at AckWait/4 until ctx ends or the lease is lost.
func (c *Claim) beat(ctx context.Context) {
	tick := time.NewTicker(c.ackWait / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// A beat after the lease's end would extend another worker's.
		if c.age() < c.ackWait {
			sent := time.Now()
			err := c.ack(ctx, ackProgress, c.ackWait/4)
			if err == nil {
				c.mu.Lock()
				c.from = sent
				c.mu.Unlock()
				continue
			}
			if ctx.Err() != nil {
				return
			}
			c.store.log.Warn("lease beat", "session", c.session, "error", err)
		}
		if c.age() >= c.ackWait {
			c.cancel(ErrLeaseLost)
			c.store.opts.Hooks.leaseLost()
			// Should the bell itself be gone, the session must not stay
			// without one; if it hangs, this changes nothing.
			if err := c.store.Ring(c.session); err != nil {
				c.store.log.Warn("ringing after a lost lease", "session", c.session, "error", err)
			}
			return
		}
	}
}

// ack answers the bell and waits until the server has it.
func (c *Claim) ack(ctx context.Context, answer string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, err := c.store.nc.RequestWithContext(ctx, c.bell.Reply, []byte(answer))
	return err
}

// end stops the beats.
func (c *Claim) end() {
	c.beats()
	c.wg.Wait()
}

// Remove takes the bell away and ends the lease: nothing is left to do for the
// session. It is ErrLeaseLost, and the bell stays, unless the lease is fresh;
// and ErrUnconfirmed as well, if the broker does not confirm while it is: the
// bell may be gone, or may come back and be another worker's. It rings again if
// an input came meanwhile.
func (c *Claim) Remove(ctx context.Context) error {
	c.end()
	defer c.cancel(nil)
	if !c.Fresh() {
		return fmt.Errorf("removing the bell of session %s: %w", c.session, ErrLeaseLost)
	}
	if err := c.confirm(ctx); err != nil {
		return fmt.Errorf("%w: session %s: %w: %w", ErrUnconfirmed, c.session, ErrLeaseLost, err)
	}
	// An input that came between our last look and the removal found the old
	// bell hanging and could not ring.
	_, err := c.store.next(ctx, c.store.names.InboxStream(), c.store.names.Inputs(c.session), 1)
	if errors.Is(err, errNotFound) {
		return nil
	}
	return c.store.Ring(c.session)
}

// confirm removes the bell and asks again while the lease is fresh: doing it
// twice is doing it once.
func (c *Claim) confirm(ctx context.Context) error {
	pause := c.ackWait / 64
	for {
		err := c.ack(ctx, ackAck, c.ackWait/4)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if ctx.Err() != nil || !c.Fresh() {
			return err
		}
		pause *= 2
	}
}

// Release gives the bell back, to be claimed again after delay, by any
// worker. A lost lease needs none and is no error.
func (c *Claim) Release(ctx context.Context, delay time.Duration) error {
	c.end()
	defer c.cancel(nil)
	if c.Held() != nil {
		return nil
	}
	answer := ackNak
	if delay > 0 {
		answer += ` {"delay": ` + strconv.FormatInt(int64(delay), 10) + `}`
	}
	return explain("releasing the bell of session "+c.session, c.ack(ctx, answer, requestTimeout))
}

// Abandon ends the lease without a word to the broker: the session is another
// worker's, or the bell will come back after AckWait.
func (c *Claim) Abandon() {
	c.end()
	c.cancel(nil)
}
