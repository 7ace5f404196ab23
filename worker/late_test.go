package worker

import (
	"context"
	"iter"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// late is a server whose every answer is 50 ms late.
type late struct{ nats.InProcessConnProvider }

func (l late) InProcessConn() (net.Conn, error) {
	c, err := l.InProcessConnProvider.InProcessConn()
	return lateConn{c}, err
}

type lateConn struct{ net.Conn }

func (c lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	sleep(context.Background(), 50*time.Millisecond)
	return n, err
}

// watched gives a piece each 10 ms, and measures for how long their reader kept
// the model waiting.
type watched struct {
	loop.Model
	pieces     int
	took, held time.Duration
}

func (m *watched) Stream(ctx context.Context, req *loop.Request) iter.Seq2[*loop.Update, error] {
	return func(yield func(*loop.Update, error) bool) {
		began := time.Now()
		defer func() { m.took = time.Since(began) }()
		for u, err := range m.Model.Stream(ctx, req) {
			sleep(ctx, 10*time.Millisecond)
			asked := time.Now()
			more := yield(u, err)
			m.held += time.Since(asked)
			m.pieces++
			if !more {
				return
			}
		}
	}
}

// WISHES 24: a broker that is 50 ms late takes nothing from the model's rate. In
// virtual time, where only what is waited for takes any.
func TestLateBrokerDoesNotSlowTheModel(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		far, err := nats.Connect("", nats.InProcessServer(late{b.env.Server}))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(far.Close)
		text := strings.Repeat("word ", 500)
		model := &watched{Model: looptest.NewModel(looptest.Reply{Text: text})}
		b.start("w1", func(c *Config) { c.NATS = far; withAgent(Agent{Model: model})(c) })
		b.say("s1", subjects.KindPrompt, "talk")
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		if model.pieces < 100 || model.took < time.Second {
			b.Fatalf("%d pieces in %v: the model did not stream", model.pieces, model.took)
		}
		if model.held > model.took/20 {
			b.Errorf("the reader waited %v of %v", model.held, model.took)
		}
		b.check("s1")
		b.Logf("%d pieces in %v, of which the reader waited %v", model.pieces, model.took, model.held)
	})
}
