package worker

import (
	"context"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// WISHES 13: a session of 200,000 tokens and 500 tool calls. What a call adds to
// the log does not depend on what is there, and a restart reads the log once,
// with questions to the broker by the batch and not by the record.
func TestLogGrowsWithWhatIsNewOnly(t *testing.T) {
	const (
		rounds = 5
		calls  = 100 // of each round
		bytes  = 4 * 200_000
	)
	b := newBench(t, benchOptions{})
	model := looptest.NewModelFunc(func(req *loop.Request) looptest.Reply {
		done := 0
		for _, m := range req.Messages {
			switch m.(type) {
			case *loop.ToolResultMessage:
				done++
			case *loop.UserMessage:
				done = 0
			}
		}
		if done == calls {
			return looptest.Reply{Text: "done"}
		}
		return looptest.Reply{Text: "I look.", Calls: []looptest.Call{{Name: "work", Args: `{"path":"a/file"}`}}}
	})
	work := &tool{spec: loop.ToolSpec{Name: "work"}, run: func(context.Context, loop.Call) (loop.ToolResult, error) {
		return loop.TextResult(strings.Repeat("a line of output\n", 20)), nil
	}}
	agent := withAgent(Agent{Model: model, Tools: []loop.Tool{work}})
	w1 := b.start("w1", agent)
	var grown []uint64
	for i := range rounds {
		before := b.logBytes()
		prompt := "go on"
		if i == 0 {
			prompt = strings.Repeat("word ", bytes/5)
		}
		b.say("s1", subjects.KindPrompt, prompt)
		b.settle("s1", i+1)
		if i > 0 {
			grown = append(grown, b.logBytes()-before)
		}
	}
	for i, n := range grown {
		if n > grown[0]*5/4 || n > bytes/2 {
			t.Errorf("round %d adds %d bytes to the log, the second added %d", i+2, n, grown[0])
		}
	}
	w1.stop()
	<-w1.done

	records := uint64(len(b.records("s1")))
	nc := b.env.Connect()
	store, err := session.Open(t.Context(), nc, subjects.Names{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := nc.Stats()
	st, err := store.Fold(t.Context(), "s1")
	if err != nil {
		t.Fatal(err)
	}
	after := nc.Stats()
	asked, got := after.OutMsgs-before.OutMsgs, after.InMsgs-before.InMsgs
	if asked > 16+records/64 || got > records+records/16+16 {
		t.Errorf("folding %d records took %d questions and %d messages, want one pass", records, asked, got)
	}
	if n := len(st.Transcript.Messages()); n != rounds*(2+2*calls) {
		t.Errorf("the fold has %d messages", n)
	}
	b.start("w2", agent)
	b.say("s1", subjects.KindPrompt, "go on")
	b.settle("s1", rounds+1)
	t.Logf("100 calls add %v bytes; a fold of %d records: %d questions, %d messages", grown, records, asked, got)
}

// logBytes is the size of all logs.
func (b *bench) logBytes() uint64 {
	b.Helper()
	s, err := b.env.JS.Stream(b.Context(), subjects.Names{}.EventsStream())
	if err != nil {
		b.Fatal(err)
	}
	return s.CachedInfo().State.Bytes
}
