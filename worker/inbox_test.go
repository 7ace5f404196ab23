package worker

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// A prompt of one turn looks into the inbox when it is claimed, after the
// model's answer, which is when a steer or a follow-up can have come, and after
// its bell is removed.
func TestInboxIsReadThreeTimesForAPrompt(t *testing.T) {
	inBubble(t, []looptest.Answer{looptest.Text("ok"), looptest.Text("ok")}, func(b *bench) {
		b.start("w1", nil)
		synctest.Wait()
		var gets atomic.Int64
		sub, err := b.env.NC.Subscribe("$JS.API.DIRECT.GET."+subjects.Names{}.InboxStream(), func(*nats.Msg) { gets.Add(1) })
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		for n := range 2 { // a new session, and one with a log
			gets.Store(0)
			b.say("s", subjects.KindPrompt, "hello")
			b.wantOutcomes(b.settle("s", n+1)[n:], loop.OutcomeCompleted)
			synctest.Wait() // the worker has nothing more to do at once
			if got := gets.Load(); got != 3 {
				b.Errorf("prompt %d: the inbox was read %d times, want 3", n, got)
			}
		}
		b.check("s")
	})
}
