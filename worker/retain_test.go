package worker

import (
	"fmt"
	"testing"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// A session over its limit loses its oldest prompts, goes on, and still knows
// their ids: also under its next owner.
func TestSessionOverItsLimitGoesOnAndKnowsItsIDs(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("ok") })
	limited := func(c *Config) { c.SessionRecords = 15 }
	w1 := b.start("w1", limited)
	const prompts = 12
	for i := range prompts {
		b.publish("s1", subjects.KindPrompt, &session.Input{ID: fmt.Sprint("p-", i), Message: loop.NewUserText(fmt.Sprint("prompt ", i))})
		b.settled("s1", fmt.Sprint("p-", i))
	}
	w1.stop()
	<-w1.done
	recs := b.records("s1")
	if recs[0].Gap == nil || len(recs) > 60 {
		t.Fatalf("%d records, beginning with %+v, want a gap and few", len(recs), recs[0])
	}
	b.start("w2", limited)
	first := recs[len(recs)-1].Epoch.N
	again := &session.Input{ID: "p-0", Message: loop.NewUserText("once more"), Redrive: 1 << 30} // past the duplicate window
	b.publish("s1", subjects.KindPrompt, again)
	b.watch("s1", func(ev loop.Event) bool {
		in, ok := ev.(*loop.InputReturned)
		return ok && in.ID == "p-0" && in.Reason == "duplicate"
	})
	b.publish("s1", subjects.KindPrompt, &session.Input{ID: "last", Message: loop.NewUserText("last")})
	b.settled("s1", "last")
	recs = b.records("s1")
	if n := recs[len(recs)-1].Epoch.N; n <= first {
		t.Errorf("epoch %d, want one after %d", n, first)
	}
	b.inboxEmpty("s1")
}

// settled waits for the agent_settled of a prompt.
func (b *bench) settled(id, prompt string) {
	b.Helper()
	b.watch(id, func(ev loop.Event) bool {
		s, ok := ev.(*loop.AgentSettled)
		return ok && s.PromptID == prompt
	})
}
