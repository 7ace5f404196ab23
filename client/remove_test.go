package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// A tail of a session that somebody removes would wait for ever in silence.
func TestTailOfARemovedSessionEnds(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		if err := subjects.Ensure(t.Context(), e.JS, subjects.Names{}, nil); err != nil {
			t.Fatal(err)
		}
		c, err := client.New(t.Context(), e.NC, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Prompt(t.Context(), "s", loop.NewUserText("go"), nil)
		if err != nil {
			t.Fatal(err)
		}
		ends := make(chan error)
		go func() {
			var last error
			for _, err := range c.Tail(t.Context(), "s", &client.TailOptions{Wait: true}) {
				last = err
			}
			ends <- last
		}()
		go func() {
			_, err := c.Await(t.Context(), r)
			ends <- err
		}()
		time.Sleep(15 * time.Second) // virtual: both have seen that it is there
		if err := c.Remove(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-ends; !errors.Is(err, client.ErrUnknownSession) {
				t.Errorf("it ended with %v", err)
			}
		}
	})
}
