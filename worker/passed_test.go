package worker

import (
	"sync"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// An abort that comes when its run has just ended is not for the next prompt,
// which was waiting and has not begun.
func TestAbortBetweenTwoRunsEndsNeither(t *testing.T) {
	inBubble(t, []looptest.Answer{looptest.Text("one"), looptest.Reply{Text: "two", Delay: time.Second}}, func(b *bench) {
		b.say("s1", subjects.KindPrompt, "one")
		b.say("s1", subjects.KindPrompt, "two")
		var once sync.Once
		abort := make(chan uint64, 1)
		b.start("w1", func(c *Config) {
			c.Hooks.RunEnded = func(string, loop.Outcome, time.Duration) {
				once.Do(func() { abort <- b.abort("s1", session.QueueKeep) })
			}
		})
		b.wantOutcomes(b.settle("s1", 2), loop.OutcomeCompleted, loop.OutcomeCompleted)
		b.wantAnswer("s1", <-abort, "no_run", 0)
		b.inboxEmpty("s1")
		b.check("s1")
	})
}
