package worker

import (
	"context"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/loop/openai"
	"github.com/pi-worker/pi-worker/subjects"
)

func TestCostEndsRunWithWhatItHas(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.script.Otherwise(func(*looptest.Request) looptest.Answer {
		return looptest.Reply{Calls: []looptest.Call{{Name: "work"}}, Usage: &looptest.Usage{Input: 500_000}}
	})
	model, err := openai.New(openai.Config{
		BaseURL: b.script.BaseURL(), APIKey: "test", HTTPClient: b.script.Client(),
		Info: loop.ModelInfo{ID: "scripted", Price: loop.Price{Input: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	work := &tool{spec: loop.ToolSpec{Name: "work"}, run: func(context.Context, loop.Call) (loop.ToolResult, error) {
		return loop.TextResult("ok"), nil
	}}
	b.start("w1", withAgent(Agent{Model: model, Tools: []loop.Tool{work}, Limits: Limits{Cost: 2.5}}))
	b.say("s1", subjects.KindPrompt, "hi")
	got := b.settle("s1", 1)
	b.wantOutcomes(got, loop.OutcomeLimit)
	if n := len(b.script.Requests()); n != 3 || got[0].Usage.Cost.Total != 3 || !strings.Contains(got[0].ErrorMessage, "2.5 dollars") {
		t.Errorf("%d turns for $%v, says %q; want 3 of $1 each", n, got[0].Usage.Cost.Total, got[0].ErrorMessage)
	}
	b.check("s1")
}
