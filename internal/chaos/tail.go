package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/internal/chaos/check"
	"github.com/pi-worker/pi-worker/loop"
)

// tailer is a client that follows one session from its start.
type tailer struct {
	session string

	mu      sync.Mutex // guards what is below
	records []uint64   // stream sequences, in the order in which they came
	silence time.Duration
	err     error
}

// follow reads until ctx ends.
func (t *tailer) follow(ctx context.Context, c *client.Client) {
	running, last := false, time.Now()
	for ev, err := range c.Tail(ctx, t.session, &client.TailOptions{Wait: true, Wire: true}) {
		t.mu.Lock()
		if err != nil {
			if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
				t.err = err
			}
			t.mu.Unlock()
			return
		}
		if ev.Gap != nil {
			t.err = fmt.Errorf("a gap from %d to %d", ev.Gap.From, ev.Gap.To)
		}
		if n := len(t.records); n == 0 || t.records[n-1] != ev.Seq {
			t.records = append(t.records, ev.Seq)
		}
		now := time.Now()
		if running {
			t.silence = max(t.silence, now.Sub(last))
		}
		last = now
		switch ev.Event.(type) {
		case *loop.AgentStart:
			running = true
		case *loop.AgentSettled:
			running = false
		}
		t.mu.Unlock()
	}
}

// reached says whether the tailer has seen the record.
func (t *tailer) reached(seq uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.records) > 0 && t.records[len(t.records)-1] >= seq
}

// check compares what was seen with the log: nothing lost, nothing twice.
func (t *tailer) check(records []check.Record) (broken []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		broken = append(broken, fmt.Sprintf("tail of session %s: %v", t.session, t.err))
	}
	i := 0
	for _, r := range records {
		if r.Session != t.session || len(r.Header["Pi-Epoch"]) == 0 {
			continue
		}
		if i >= len(t.records) {
			return append(broken, fmt.Sprintf("tail of session %s has not seen record %d", t.session, r.StreamSeq))
		}
		if t.records[i] != r.StreamSeq {
			return append(broken, fmt.Sprintf("tail of session %s saw record %d where the log has %d", t.session, t.records[i], r.StreamSeq))
		}
		i++
	}
	if i < len(t.records) {
		broken = append(broken, fmt.Sprintf("tail of session %s saw %d records more than the log has", t.session, len(t.records)-i))
	}
	return broken
}
