package worker

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/loop/openai"
	"github.com/pi-worker/pi-worker/subjects"
)

// limited starts a worker with one slot whose models have a limiter of their
// own, as in a process of its own.
func (b *bench) limited(id string) {
	limiter := new(openai.Limiter)
	m, err := openai.New(openai.Config{
		BaseURL: b.script.BaseURL(), APIKey: "sk-shared-key", HTTPClient: b.script.Client(),
		Info: loop.ModelInfo{ID: "scripted"}, Limiter: limiter,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.start(id, func(c *Config) {
		withAgent(Agent{Model: m, Retry: loop.RetryPolicy{MaxRetries: 1}})(c)
		c.Sessions, c.Limiter = 1, limiter
	})
}

// One worker is told to wait. Nobody sends anything with that key until then:
// not the worker that was there, nor one that starts later, nor all at once.
func TestOneWorkers429PausesTheKeyForTheFleet(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.script.Add(looptest.Reply{Status: 429, Text: "slow down", Headers: map[string]string{"Retry-After": "30"}})
		b.script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("fine") })
		began := time.Now()
		var mu sync.Mutex
		var sent []time.Duration
		b.script.OnRequest(func(r *looptest.Request) {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, time.Since(began))
		})
		b.limited("w1")
		b.limited("w2")
		b.say("s0", subjects.KindPrompt, "hi")
		b.await("s0", "auto_retry_start")
		sleep(b.Context(), time.Second)
		ids := []string{"s0", "s1", "s2", "s3", "s4"}
		for _, id := range ids[1:3] {
			b.say(id, subjects.KindPrompt, "hi")
		}
		sleep(b.Context(), 9*time.Second)
		b.limited("w3")
		for _, id := range ids[3:] {
			b.say(id, subjects.KindPrompt, "hi")
		}
		for _, id := range ids {
			b.wantOutcomes(b.settle(id, 1), loop.OutcomeCompleted)
		}
		workers := map[string]bool{}
		for _, id := range ids {
			workers[b.worker(id)] = true
		}
		b.Logf("ran on %v", workers)
		mu.Lock()
		defer mu.Unlock()
		if len(sent) != 6 || sent[1] < 30*time.Second || sent[5] > 34*time.Second {
			b.Errorf("requests at %v, want one, then none before 30 s", sent)
		}
		if sent[5]-sent[1] < 100*time.Millisecond {
			b.Errorf("all came back within %v", sent[5]-sent[1])
		}
		// The bucket knows the key by a digest only.
		msgs, err := b.env.JS.Stream(b.Context(), "KV_"+subjects.Names{}.FleetBucket())
		if err != nil {
			b.Fatal(err)
		}
		m, err := msgs.GetMsg(b.Context(), 1)
		if err != nil || strings.Contains(m.Subject+string(m.Data), "shared") {
			b.Errorf("stored %+v, %v", m, err)
		}
	})
}

// counted notes what a limiter is asked for.
type counted struct {
	mu   sync.Mutex
	told func(string, time.Duration)
	rest map[string]time.Duration
}

func (c *counted) Share(told func(string, time.Duration)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = told
}

func (c *counted) Rest(id string, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rest == nil {
		c.rest = map[string]time.Duration{}
	}
	c.rest[id] = wait
}

// A pause that is nearly over is not begun again by a worker that starts.
func TestPauseIsOverForAllAtTheSameTime(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		put := func(id string, wait time.Duration) {
			if err := b.store.PutPause(context.Background(), id, wait); err != nil {
				b.Fatal(err)
			}
		}
		put("long", time.Minute)
		put("short", 10*time.Second)
		sleep(b.Context(), 40*time.Second)
		c := &counted{}
		b.start("w1", func(cfg *Config) { cfg.Limiter = c })
		sleep(b.Context(), time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.rest) != 1 || c.rest["long"] > 20*time.Second || c.rest["long"] < 19*time.Second {
			b.Errorf("rests %v, want the long one for 20 s", c.rest)
		}
	})
}
