package session_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/subjects"
)

func TestLeaseOutlivesALongRun(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		b := newBench(t, e, nil)
		b.must(b.store.Ring("s"))
		c := b.claim()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		for other, err := range b.store.Claims(ctx, nil) {
			b.must(err)
			t.Errorf("session %s was claimed again while its owner lived", other.Session())
			b.must(other.Release(t.Context(), 0))
			break
		}
		if !c.Fresh() || c.Held() != nil {
			t.Error("the lease is not fresh after half an hour of beats")
		}
		b.must(c.Remove(t.Context()))
		e.NC.Close()
	})
}

func TestLeaseExpiresAndAnotherClaims(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		b := newBench(t, e, nil)
		b.must(b.store.Ring("s"))
		first := b.claim()
		work, cancel := first.Context(t.Context())
		defer cancel()
		began := time.Now()
		dead := openStore(t, &natstest.Env{NC: e.Connect(), JS: e.JS}, nil)
		b.must(dead.Ring("t"))
		var second *session.Claim
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		for c, err := range dead.Claims(ctx, nil) {
			b.must(err)
			second = c
			break
		}
		// Its connection goes, and with it the beats.
		dead.JetStream().Conn().Close()
		<-second.Lost()
		if d := time.Since(began); d < subjects.DefaultAckWait || d > 2*subjects.DefaultAckWait {
			t.Errorf("lost after %v, want one AckWait of %v", d, subjects.DefaultAckWait)
		}
		if err := second.Remove(t.Context()); !errors.Is(err, session.ErrLeaseLost) {
			t.Errorf("removing under a lost lease: %v, want ErrLeaseLost", err)
		}
		third := b.claim()
		if third.Session() != "t" {
			t.Errorf("claimed %s, want t", third.Session())
		}
		b.must(third.Remove(t.Context()))
		if work.Err() != nil {
			t.Errorf("the other lease ended too: %v", context.Cause(work))
		}
		b.must(first.Remove(t.Context()))
		if work.Err() != nil {
			t.Errorf("removing the bell ended its work: %v", context.Cause(work))
		}
		e.NC.Close()
	})
}

func TestReleaseHandsOverAtOnce(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		b := newBench(t, e, nil)
		b.must(b.store.Ring("s"))
		c := b.claim()
		began := time.Now()
		b.must(c.Release(t.Context(), 0))
		c = b.claim()
		if d := time.Since(began); d > time.Second {
			t.Errorf("handed over after %v", d)
		}
		began = time.Now()
		b.must(c.Release(t.Context(), time.Minute))
		c = b.claim()
		if d := time.Since(began); d < time.Minute || d > time.Minute+time.Second {
			t.Errorf("claimed again after %v, want a minute", d)
		}
		b.must(c.Remove(t.Context()))
		e.NC.Close()
	})
}

func TestRingerRingsStrandedInput(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		b := newBench(t, e, nil)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := b.store.Ringer(ctx); err != nil {
				t.Error(err)
			}
		})
		// A stranger rings no bell.
		_, err := e.JS.Publish(t.Context(), "agent.s.prompt", []byte("hello"))
		b.must(err)
		c := b.claim()
		b.must(c.Release(t.Context(), 0))
		// Now the bell gets lost, twice.
		for range 2 {
			c = b.claim()
			stream, err := e.JS.Stream(t.Context(), subjects.Names{}.BellStream())
			b.must(err)
			b.must(stream.Purge(t.Context()))
			began := time.Now()
			again := b.claim()
			if d := time.Since(began); again.Session() != "s" || d > 30*time.Second {
				t.Errorf("session %s rang after %v, want s within 30 s", again.Session(), d)
			}
			b.must(again.Release(t.Context(), 0))
			b.must(c.Release(t.Context(), 0))
		}
		in, err := b.store.NextInput(t.Context(), "s", "", 0)
		b.must(err)
		b.must(b.store.DeleteInput(t.Context(), in))
		c = b.claim()
		b.must(c.Remove(t.Context()))
		quiet, done := context.WithTimeout(t.Context(), 10*time.Minute)
		defer done()
		for c, err := range b.store.Claims(quiet, nil) {
			b.must(err)
			t.Errorf("session %s rings though its inbox is empty", c.Session())
			b.must(c.Remove(t.Context()))
		}
		stop()
		wg.Wait()
		e.NC.Close()
	})
}

// What a stranger deletes is made again, and work goes on within 30 s.
func TestClaimsGoOnAfterDeletion(t *testing.T) {
	names := subjects.Names{}
	for name, destroy := range map[string]func(context.Context, *natstest.Env) error{
		"consumer": func(ctx context.Context, e *natstest.Env) error {
			return e.JS.DeleteConsumer(ctx, names.BellStream(), subjects.ConsumerWorkers)
		},
		"stream": func(ctx context.Context, e *natstest.Env) error { return e.JS.DeleteStream(ctx, names.BellStream()) },
		"ringer": func(ctx context.Context, e *natstest.Env) error {
			return e.JS.DeleteConsumer(ctx, names.InboxStream(), subjects.ConsumerRinger)
		},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
				b := newBench(t, e, nil)
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() {
					if err := b.store.Ringer(ctx); err != nil {
						t.Error(err)
					}
				})
				bells := make(chan string)
				wg.Go(func() {
					for c, err := range b.store.Claims(ctx, nil) {
						b.must(err)
						bells <- c.Session()
						b.must(c.Remove(t.Context()))
					}
				})
				time.Sleep(time.Second)
				b.must(destroy(t.Context(), e))
				if _, err := e.JS.Publish(t.Context(), "agent.s.prompt", []byte("hello")); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if s := <-bells; s != "s" || time.Since(began) > 30*time.Second {
					t.Errorf("session %s after %v, want s within 30 s", s, time.Since(began))
				}
				stop()
				for done := false; !done; {
					select {
					case <-bells:
					default:
						done = true
					}
				}
				wg.Wait()
				if err := b.store.Ready(); err != nil {
					t.Errorf("not ready: %v", err)
				}
				e.NC.Close()
			})
		})
	}
}

// The ringer leaves an input alone whose publisher rings, and rings when that
// bell was lost.
func TestRingerRingsForALostRing(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		b := newBench(t, e, nil)
		// As a publisher does that dies before it rings.
		msg := nats.NewMsg(b.store.Names().Input("s", subjects.KindPrompt))
		msg.Header.Set(subjects.HeaderRings, "1")
		msg.Data = []byte("hi")
		_, err := e.JS.PublishMsg(t.Context(), msg)
		b.must(err)
		published := time.Now()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { b.must(b.store.Ringer(ctx)) })
		for c, err := range b.store.Claims(ctx, nil) {
			b.must(err)
			if d := time.Since(published); d < time.Second {
				t.Errorf("rung after %v, before the publisher's own bell can be called lost", d)
			}
			b.must(c.Release(t.Context(), 0))
			break
		}
		stop()
		wg.Wait()
		e.NC.Close()
	})
}
