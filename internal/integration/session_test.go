//go:build integration

package integration_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
)

// connect gives a client that stays with the brokers through everything.
func connect(t *testing.T, urls ...string) *client.Client {
	t.Helper()
	nc, err := nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1),
		nats.ReconnectWait(200*time.Millisecond), nats.Timeout(time.Second),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	var last error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		c, err := client.New(ctx, nc, nil)
		stop()
		if err == nil {
			return c
		}
		last = err
		time.Sleep(200 * time.Millisecond) // real brokers: nothing tells when they have a leader
	}
	t.Fatalf("JetStream does not answer: %v", last)
	return nil
}

// prompt publishes a prompt, and again under the same id while the brokers
// don't take it.
func prompt(t *testing.T, c *client.Client, session, text string) *client.Receipt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last error
	for ctx.Err() == nil {
		try, stop := context.WithTimeout(ctx, 5*time.Second)
		r, err := c.Prompt(try, session, loop.NewUserText(text), &client.InputOptions{ID: session + "/" + text})
		stop()
		if err == nil {
			return r
		}
		last = err
		time.Sleep(200 * time.Millisecond) // real brokers: nothing tells when they are back
	}
	t.Fatalf("prompting %s: %v", session, last)
	return nil
}

// streaming waits until the answer to a slow prompt is on its way, and says
// which worker gives it.
func streaming(t *testing.T, c *client.Client, session string) (worker string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	for ev, err := range c.Tail(ctx, session, &client.TailOptions{Wait: true}) {
		if err != nil {
			t.Fatalf("waiting for the answer in %s: %v", session, err)
		}
		switch e := ev.Event.(type) {
		case *loop.SessionClaimed:
			worker = e.Worker
		case *loop.MessageUpdate:
			if e.Update.Type == loop.UpdateTextDelta {
				return worker
			}
		}
	}
	t.Fatalf("no answer in %s", session)
	return ""
}

// completed waits until the prompt is done, and checks the whole log of its
// session: one outcome for it, one whole answer.
func completed(t *testing.T, c *client.Client, r *client.Receipt, want string) *client.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	res, err := c.Wait(ctx, r)
	if err != nil {
		t.Fatalf("waiting for the prompt in %s: %v", r.Session, err)
	}
	if res.Outcome != loop.OutcomeCompleted || !strings.Contains(res.Text, want) {
		t.Errorf("the prompt in %s settled as %s (%s) with %q, want completed with %q", r.Session, res.Outcome, res.ErrorMessage, res.Text, want)
	}
	settled, answers := 0, 0
	for ev, err := range c.Tail(ctx, r.Session, &client.TailOptions{NoFollow: true}) {
		if err != nil {
			t.Fatalf("reading the log of %s: %v", r.Session, err)
		}
		switch e := ev.Event.(type) {
		case *loop.AgentSettled:
			settled++
		case *loop.MessageEnd:
			if m, ok := e.Message.(*loop.AssistantMessage); ok && m.StopReason == loop.StopStop {
				answers++
			}
		}
	}
	if settled != 1 || answers != 1 {
		t.Errorf("the log of %s has %d outcomes and %d whole answers, want one of each", r.Session, settled, answers)
	}
	return res
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
