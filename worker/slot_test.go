package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// Waiting retries hold no slot: four prompts wait for their provider on a
// worker of two sessions, and the rest goes on.
func TestWaitingRetriesHoldNoSlot(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		busy := map[string]bool{}
		b.script.Otherwise(func(r *looptest.Request) looptest.Answer {
			if text := r.LastUser(); text != "quick" && !busy[text] {
				busy[text] = true
				return looptest.Reply{Status: 429, Text: "slow down"}
			}
			return looptest.Text("ok")
		})
		b.start("w1", func(c *Config) {
			withAgent(Agent{Retry: loop.RetryPolicy{MaxRetries: 2, BaseDelay: 90 * time.Second, MaxDelay: 90 * time.Second}})(c)
			c.Sessions = 2
		})
		began := time.Now()
		for i := range 4 {
			b.say(fmt.Sprintf("slow%d", i), subjects.KindPrompt, fmt.Sprint("wait ", i))
			b.await(fmt.Sprintf("slow%d", i), "auto_retry_start")
		}
		for i := range 4 {
			id := fmt.Sprintf("quick%d", i)
			b.say(id, subjects.KindPrompt, "quick")
			b.wantOutcomes(b.settle(id, 1), loop.OutcomeCompleted)
		}
		if d := time.Since(began); d > time.Minute {
			b.Errorf("the quick ones took %v, so they waited for the slow ones", d)
		}
		for i := range 4 {
			id := fmt.Sprintf("slow%d", i)
			b.wantOutcomes(b.settle(id, 1), loop.OutcomeCompleted)
			b.check(id)
		}
	})
}

// However many wait, no more than that are at work.
func TestSlotsBoundWhatWorksAndWhatWaits(t *testing.T) {
	s := newSlots(1)
	wait := &loop.AutoRetryStart{Delay: time.Minute}
	var waiting []*slot
	for range waitingPerSlot {
		one := s.take(t.Context())
		one.saw(&loop.AutoRetryStart{Delay: time.Millisecond})
		if !one.busy {
			t.Fatal("a short wait gave the slot back")
		}
		one.saw(wait)
		waiting = append(waiting, one)
	}
	last := s.take(t.Context())
	if last.saw(wait); !last.busy {
		t.Error("one more than allowed gave its slot back")
	}
	resumed := make(chan error)
	go func() { resumed <- waiting[0].resume(t.Context()) }()
	last.free()
	if err := <-resumed; err != nil || !waiting[0].busy {
		t.Errorf("resumed: %v", err)
	}
	for _, one := range waiting {
		one.free()
	}
	if len(s.busy) != 0 || len(s.waiting) != 0 {
		t.Errorf("%d and %d are never freed", len(s.busy), len(s.waiting))
	}
}

// A worker of one session takes up the run again whose slot it had given back,
// although nobody else wants that slot.
func TestOnlySlotIsTakenUpAgain(t *testing.T) {
	inBubble(t, []looptest.Answer{
		looptest.Reply{Status: 429, Text: "slow down"}, looptest.Text("ok"),
	}, func(b *bench) {
		b.start("w1", func(c *Config) {
			withAgent(Agent{Retry: loop.RetryPolicy{MaxRetries: 2, BaseDelay: 30 * time.Second, MaxDelay: 30 * time.Second}})(c)
			c.Sessions = 1
		})
		b.say("s", subjects.KindPrompt, "wait")
		b.wantOutcomes(b.settle("s", 1), loop.OutcomeCompleted)
		b.check("s")
	})
}
