// Package natstest gives tests a real JetStream, in real time or inside a
// synctest bubble where ack waits, leases and TTLs pass in virtual time.
package natstest

import (
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/natsd"
)

// Env is a server and one connection to it.
type Env struct {
	Server *natsd.Server
	NC     *nats.Conn
	JS     jetstream.JetStream

	t testing.TB
}

// Start starts a server in a folder of the test's own and connects to it.
// cfg nil means a server on any free port of loopback; its Dir is ignored.
// Everything is closed when the test ends.
func Start(t testing.TB, cfg *natsd.Config) *Env {
	t.Helper()
	if cfg == nil {
		cfg = &natsd.Config{}
	}
	c := *cfg
	c.Dir = t.TempDir()
	srv, err := natsd.Start(c)
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("natstest: %v", err)
		}
	})
	e := &Env{Server: srv, t: t}
	e.NC = e.Connect()
	if e.JS, err = jetstream.New(e.NC); err != nil {
		t.Fatalf("natstest: %v", err)
	}
	return e
}

// Connect makes another connection, closed when the test ends.
func (e *Env) Connect(opts ...nats.Option) *nats.Conn {
	e.t.Helper()
	url := e.Server.ClientURL()
	if url == "" {
		opts = append(opts, nats.InProcessServer(e.Server))
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		e.t.Fatalf("natstest: connecting: %v", err)
	}
	e.t.Cleanup(nc.Close)
	return nc
}

// InBubble runs f inside a synctest bubble with a server of its own. All that
// f starts must have ended when it returns.
func InBubble(t *testing.T, cfg *natsd.Config, f func(t *testing.T, e *Env)) {
	t.Helper()
	// The server's clock of last use must tick outside the bubble, or the
	// fake time would never move.
	ats.Register()
	defer ats.Unregister()
	emptyPools()
	defer emptyPools()
	c := natsd.Config{DontListen: true}
	if cfg != nil {
		c = *cfg
		c.DontListen = true
	}
	synctest.Test(t, func(t *testing.T) { f(t, Start(t, &c)) })
}

// emptyPools drops what sync.Pools hold: nats.go pools its timers, and one of
// another bubble, or of none, must not be used in this one. Tests that share
// a process with bubbles can't be parallel for the same reason.
func emptyPools() {
	runtime.GC() // moves pools to their victims
	runtime.GC() // drops the victims
}
