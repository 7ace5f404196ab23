package worker

import (
	"bytes"
	"net"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// misdirected is a server whose client's acknowledgements of bells go nowhere.
type misdirected struct{ nats.InProcessConnProvider }

func (m misdirected) InProcessConn() (net.Conn, error) {
	c, err := m.InProcessConnProvider.InProcessConn()
	return misdirectedConn{c}, err
}

type misdirectedConn struct{ net.Conn }

func (c misdirectedConn) Write(b []byte) (int, error) {
	return c.Conn.Write(bytes.ReplaceAll(b, []byte("$JS.ACK.AGENT_BELL."), []byte("$JS.BAD.AGENT_BELL.")))
}

// The bell's removal is confirmed by the broker. Where it is not, though the
// lease is fresh, the owner takes itself for fenced: readers are told, it does
// no more, and the next worker goes on.
func TestBellWhoseRemovalIsNotConfirmedIsALostLease(t *testing.T) {
	inBubble(t, []looptest.Answer{looptest.Text("one"), looptest.Text("two")}, func(b *bench) {
		deaf, err := nats.Connect("", nats.InProcessServer(misdirected{b.env.Server}))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(deaf.Close)
		w1 := b.start("w1", func(c *Config) { c.NATS = deaf })
		b.say("s1", subjects.KindPrompt, "first")
		var lost *loop.LeaseLost
		settled := false
		b.watch("s1", func(ev loop.Event) bool {
			if _, ok := ev.(*loop.AgentSettled); ok {
				settled = true
			}
			var ok bool
			lost, ok = ev.(*loop.LeaseLost)
			return ok
		})
		if !settled || lost.Worker != "w1" || lost.Epoch != b.records("s1")[0].Epoch.String() || lost.Reason == "" {
			b.Errorf("%+v, settled before: %v", lost, settled)
		}
		w1.stop()
		<-w1.done
		b.start("w2", nil)
		b.say("s1", subjects.KindPrompt, "second")
		b.wantOutcomes(b.settle("s1", 2), loop.OutcomeCompleted, loop.OutcomeCompleted)
		b.check("s1")
		if n := b.count("s1", "run_lost"); n != 0 {
			b.Errorf("%d run_lost of a session without an open run", n)
		}
	})
}
