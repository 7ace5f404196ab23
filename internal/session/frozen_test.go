package session_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
)

// deafBroker never answers requests that have a word in them: a broker whose
// leader for them is frozen, and has no successor yet. The connection lives.
type deafBroker struct {
	nats.InProcessConnProvider
	word atomic.Pointer[string] // nil: it hears everything
}

func (d *deafBroker) InProcessConn() (net.Conn, error) {
	c, err := d.InProcessConnProvider.InProcessConn()
	return &deafConn{Conn: c, broker: d}, err
}

type deafConn struct {
	net.Conn
	broker *deafBroker
}

// Write gets whole commands of the protocol: the client flushes them so.
func (c *deafConn) Write(b []byte) (int, error) {
	if word := c.broker.word.Load(); word != nil && bytes.Contains(b, []byte(*word)) {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// startDeaf gives a store whose broker can be made deaf, and a log of 100
// records.
func startDeaf(t *testing.T, e *natstest.Env) (*bench, *deafBroker, *session.Store) {
	b := newBench(t, e, nil)
	l := b.open("s", "w")
	for i := range 99 {
		b.append(l, waiting(i))
	}
	b.close(l)
	d := &deafBroker{InProcessConnProvider: e.Server}
	nc, err := nats.Connect("", nats.InProcessServer(d))
	b.must(err)
	t.Cleanup(nc.Close)
	return b, d, openStore(t, &natstest.Env{NC: nc}, nil)
}

// freeze makes the broker deaf to a word for a time.
func (d *deafBroker) freeze(word string, length time.Duration) {
	d.word.Store(&word)
	time.AfterFunc(length, func() { d.word.Store(nil) })
}

// Found by the integration tests: a question that a frozen leader got was
// waited for until the reader's own deadline.
func TestReadersOutliveAFrozenLeader(t *testing.T) {
	for _, word := range []string{"STREAM.MSG.GET", "CONSUMER.CREATE", "CONSUMER.MSG.NEXT", "$JS."} {
		natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
			b, broker, store := startDeaf(t, e)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			for name, read := range map[string]func() int{
				"Read": func() (n int) {
					for _, err := range store.Read(ctx, "s", session.From{}) {
						b.must(err)
						n++
					}
					return n
				},
				"Tail": func() (n int) {
					for _, err := range store.Tail(ctx, "s", session.From{}) {
						b.must(err)
						if n++; n == 100 {
							break
						}
					}
					return n
				},
				"Fold": func() int {
					st, err := store.Fold(ctx, "s")
					b.must(err)
					return int(st.Seq)
				},
			} {
				broker.freeze(word, 25*time.Second)
				begun := time.Now()
				if n := read(); n != 100 {
					t.Errorf("%s gave %d records, want 100", name, n)
				}
				if took := time.Since(begun); took < 20*time.Second || took > 40*time.Second {
					t.Errorf("%s took %v while the broker did not hear %s for 25 s", name, took, word)
				}
				time.Sleep(time.Minute)
			}
			e.NC.Close()
		})
	}
}

// A broker that stays away ends a read that has an end, and its error says so.
func TestReadGivesUpWhenTheBrokerStaysAway(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		_, broker, store := startDeaf(t, e)
		broker.freeze("CONSUMER.CREATE", time.Hour)
		begun := time.Now()
		err := error(nil)
		for _, err = range store.Read(t.Context(), "s", session.From{}) {
		}
		if !errors.Is(err, session.ErrNoServer) {
			t.Errorf("error %v, want ErrNoServer", err)
		}
		if took := time.Since(begun); took < 50*time.Second || took > 2*time.Minute {
			t.Errorf("gave up after %v", took)
		}
		e.NC.Close()
	})
}

// A blob is asked for again like everything else.
func TestBlobOutlivesAFrozenLeader(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		b, broker, store := startDeaf(t, e)
		l := b.open("large", "w")
		text := string(bytes.Repeat([]byte("x"), 2<<20))
		b.append(l, &loop.MessageStart{Message: loop.NewUserText("")}, &loop.MessageEnd{Message: loop.NewUserText(text)})
		b.close(l)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		broker.freeze("$O.", 25*time.Second)
		n := 0
		for rec, err := range store.Read(ctx, "large", session.From{}) {
			b.must(err)
			n += len(rec.Events)
		}
		if n != 3 {
			t.Errorf("%d events, want 3", n)
		}
		e.NC.Close()
	})
}
