package session_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

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
