package session_test

import (
	"errors"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/natsd"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// lossy is a proxy before the server that can swallow what the server says,
// and cut the connections.
type lossy struct {
	net.Listener
	deaf atomic.Bool // swallow the server's bytes, acknowledgements among them
	wg   sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newLossy(t *testing.T, server string) *lossy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lossy{Listener: l}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", server)
			if err != nil {
				c.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, c, up)
			p.mu.Unlock()
			p.wg.Go(func() { io.Copy(up, c); up.Close() })
			p.wg.Go(func() { p.answers(c, up); c.Close() })
		}
	})
	t.Cleanup(func() { l.Close(); p.cut(); p.wg.Wait() })
	return p
}

func (p *lossy) answers(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if p.deaf.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *lossy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func TestUnknownOutcomeSettledByLeaderRead(t *testing.T) {
	for _, ephemeral := range []bool{false, true} {
		b := start(t)
		u := b.env.Server.ClientURL()[len("nats://"):]
		proxy := newLossy(t, u)
		nc, err := nats.Connect("nats://"+proxy.Addr().String(), nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1))
		b.must(err)
		t.Cleanup(nc.Close)
		far := openStore(t, &natstest.Env{NC: nc}, nil)
		l, err := far.OpenLog(t.Context(), "s", b.fold("s"), "w")
		b.must(err)
		proxy.deaf.Store(true)
		ev := waiting(1)
		if ephemeral {
			ev = delta("x")
		}
		b.must(l.Append(t.Context(), ev))
		for len(b.records("s", session.From{})) < 2 { // until the broker has it
			if t.Context().Err() != nil {
				t.Fatal("never stored")
			}
		}
		proxy.deaf.Store(false)
		proxy.cut() // the acknowledgement never comes
		b.append(l, waiting(2))
		b.must(l.Close(t.Context()))
		recs := b.records("s", session.From{})
		if len(recs) != 3 {
			t.Errorf("ephemeral %v: records\n%swant 3: nothing lost, nothing twice", ephemeral, types(recs))
		}
		b.fold("s")
	}
}

// The same without the answer, when another worker was faster meanwhile.
func TestUnknownOutcomeUnderAnotherOwnerIsFenced(t *testing.T) {
	b := start(t)
	proxy := newLossy(t, b.env.Server.ClientURL()[len("nats://"):])
	nc, err := nats.Connect("nats://"+proxy.Addr().String(), nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1))
	b.must(err)
	t.Cleanup(nc.Close)
	far := openStore(t, &natstest.Env{NC: nc}, nil)
	l, err := far.OpenLog(t.Context(), "s", b.fold("s"), "w")
	b.must(err)
	proxy.deaf.Store(true)
	b.must(l.Append(t.Context(), waiting(1)))
	for len(b.records("s", session.From{})) < 2 {
		if t.Context().Err() != nil {
			t.Fatal("never stored")
		}
	}
	b.close(b.open("s", "other"))
	proxy.deaf.Store(false)
	proxy.cut()
	if err := l.Flush(t.Context()); !errors.Is(err, session.ErrFenced) {
		t.Errorf("flush: %v, want ErrFenced", err)
	}
	if err := l.Close(t.Context()); !errors.Is(err, session.ErrFenced) {
		t.Errorf("close: %v, want ErrFenced", err)
	}
}

// A log that is gone is somebody else's doing: the owner must fold again.
func TestLogThatIsGoneFences(t *testing.T) {
	b := start(t)
	l := b.open("s", "w")
	stream, err := b.env.JS.Stream(t.Context(), subjects.Names{}.EventsStream())
	b.must(err)
	b.must(stream.Purge(t.Context()))
	b.must(l.Append(t.Context(), waiting(1)))
	if err := l.Flush(t.Context()); !errors.Is(err, session.ErrFenced) {
		t.Errorf("flush: %v, want ErrFenced", err)
	}
	if err := l.Close(t.Context()); !errors.Is(err, session.ErrFenced) {
		t.Errorf("close: %v, want ErrFenced", err)
	}
	b.close(b.open("s", "w"))
}

// Anybody who may publish can write on the events subject. That stops the
// owner, and the next one goes on.
func TestStrangersRecordIsPassedOver(t *testing.T) {
	b := start(t)
	l := b.open("s", "w")
	b.append(l, waiting(1))
	_, err := b.env.JS.Publish(t.Context(), "agent.s.events", []byte("garbage"))
	b.must(err)
	if n := len(b.records("s", session.From{})); n != 2 {
		t.Errorf("%d records, want the owner's 2", n)
	}
	b.must(l.Append(t.Context(), waiting(2)))
	if err := l.Flush(t.Context()); !errors.Is(err, session.ErrFenced) {
		t.Errorf("flush: %v, want ErrFenced", err)
	}
	if err := l.Close(t.Context()); !errors.Is(err, session.ErrFenced) {
		t.Errorf("close: %v, want ErrFenced", err)
	}
	l = b.open("s", "w")
	b.append(l, waiting(2))
	b.close(l)
	if st := b.fold("s"); st.Seq != 4 || st.Epoch.N != 2 {
		t.Errorf("state at %d, epoch %v, want 4 and 2", st.Seq, st.Epoch)
	}
}

// The broker goes away and comes back on the same store: what was appended
// meanwhile arrives once, and a reader that was there all the time sees one
// sequence.
func TestLogAndTailOutliveABrokerRestart(t *testing.T) {
	cfg := natsd.Config{Dir: t.TempDir()}
	srv, err := natsd.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Port, err = strconv.Atoi(u.Port()); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(srv.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, &natstest.Env{NC: nc, JS: js}, nil)
	l := b.open("s", "w")
	var got []int64
	var tailErr error
	var wg sync.WaitGroup
	wg.Go(func() { got, tailErr = tail(t.Context(), b.store, "s", session.From{}) })
	n := 0
	for range 3 {
		for range 50 {
			n++
			b.must(l.Append(t.Context(), waiting(n)))
		}
		b.must(srv.Close())
		for range 50 {
			n++
			b.must(l.Append(t.Context(), waiting(n)))
		}
		if srv, err = natsd.Start(cfg); err != nil {
			t.Fatal(err)
		}
		b.must(l.Flush(t.Context()))
	}
	b.append(l, &loop.AgentSettled{})
	b.close(l)
	wg.Wait()
	b.must(tailErr)
	for i := range got {
		if got[i] != int64(i+1) {
			t.Fatalf("event %d of the tail is %d", i+1, got[i])
		}
	}
	if len(got) != n {
		t.Errorf("the tail saw %d events, want %d", len(got), n)
	}
	b.fold("s")
	nc.Close()
	b.must(srv.Close())
}
