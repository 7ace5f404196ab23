package session_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// Three replicas, whose leader steps down in mid-stream: nothing is lost or
// doubled, readers see one sequence, and the fence holds with the code that
// replicated streams have for it.
func TestLogOutlivesLeadersStepDown(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers")
	}
	c := natstest.StartCluster(t)
	opts := &subjects.EnsureOptions{Replicas: 3}
	err := subjects.Ensure(t.Context(), c.JS, subjects.Names{}, opts)
	b := &bench{TB: t, env: &natstest.Env{NC: c.NC, JS: c.JS}}
	b.must(err)
	b.store = openStore(t, b.env, nil)
	l := b.open("s", "w1")
	const events = 2000
	var wg sync.WaitGroup
	var got []int64
	var tailErr error
	wg.Go(func() { got, tailErr = tail(t.Context(), b.store, "s", session.From{}) })
	for i := range events {
		if i%500 == 250 {
			subject := "$JS.API.STREAM.LEADER.STEPDOWN." + subjects.Names{}.EventsStream()
			_, err := c.NC.Request(subject, nil, 5*time.Second)
			b.must(err)
		}
		b.must(l.Append(t.Context(), waiting(i+1)))
		if i%10 == 0 {
			b.must(l.Flush(t.Context()))
		}
	}
	b.must(l.Flush(t.Context()))
	second := b.open("s", "w2")
	b.must(l.Append(t.Context(), waiting(-1)))
	if err := l.Close(t.Context()); !errors.Is(err, session.ErrFenced) {
		t.Errorf("former owner: %v, want ErrFenced", err)
	}
	b.append(second, &loop.AgentSettled{})
	b.close(second)
	wg.Wait()
	b.must(tailErr)
	for i := range got {
		if got[i] != int64(i+1) {
			t.Fatalf("event %d of the tail is %d", i, got[i])
		}
	}
	if len(got) != events {
		t.Errorf("the tail saw %d events, want %d", len(got), events)
	}
	b.publish("s", subjects.KindPrompt, "hi")
	claim := b.claim()
	b.must(claim.Remove(t.Context()))
	if st := b.fold("s"); st.Epoch.N != 2 {
		t.Errorf("epoch %v", fmt.Sprint(st.Epoch))
	}
}

// Found by internal/chaos: the node that has a reader's consumer dies, and the
// reader is connected to another one, so that no connection is lost. The
// reader must notice within seconds that it hears nothing.
func TestTailOutlivesTheNodeOfItsConsumer(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers")
	}
	c := natstest.StartCluster(t)
	b := &bench{TB: t, env: &natstest.Env{NC: c.NC, JS: c.JS}}
	b.must(subjects.Ensure(t.Context(), c.JS, subjects.Names{}, &subjects.EnsureOptions{Replicas: 3}))
	b.store = openStore(t, b.env, nil)
	l := b.open("s", "w1")
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	// A reader beside each node: at least two are not connected to the node
	// of their consumer.
	var wg sync.WaitGroup
	began := make(chan struct{}, len(c.Servers))
	seen := make([]bool, len(c.Servers))
	dead := 0
	for i, srv := range c.Servers {
		nc, err := nats.Connect(srv.ClientURL(), nats.DontRandomize(), nats.ReconnectWait(50*time.Millisecond), nats.MaxReconnects(-1))
		b.must(err)
		t.Cleanup(nc.Close)
		store, err := session.Open(t.Context(), nc, subjects.Names{}, nil)
		b.must(err)
		wg.Go(func() {
			for rec, err := range store.Tail(ctx, "s", session.From{}) {
				if err != nil {
					return
				}
				for _, ev := range rec.Events {
					switch ev.EventType() {
					case "session_claimed":
						began <- struct{}{}
					case "agent_settled":
						seen[i] = true
						return
					}
				}
			}
		})
	}
	for range c.Servers {
		<-began
	}
	dead = consumersNode(t, c)
	c.Servers[dead].Shutdown()
	b.must(l.Append(t.Context(), &loop.AgentSettled{}))
	b.must(l.Flush(t.Context()))
	wg.Wait()
	b.close(l)
	for i, ok := range seen {
		if !ok {
			t.Errorf("the reader at node %d has not seen what came after node %d was lost", i, dead)
		}
	}
}

// consumersNode is the node with most of the readers' consumers.
func consumersNode(t *testing.T, c *natstest.Cluster) (node int) {
	t.Helper()
	s, err := c.JS.Stream(t.Context(), subjects.Names{}.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for info := range s.ListConsumers(t.Context()).Info() {
		count[info.Cluster.Leader]++
	}
	for i, srv := range c.Servers {
		if count[srv.Name()] > count[c.Servers[node].Name()] {
			node = i
		}
	}
	return node
}
