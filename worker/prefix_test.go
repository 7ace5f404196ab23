package worker

import (
	"bytes"
	"testing"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/loop/openai"
	"github.com/pi-worker/pi-worker/subjects"
)

// TestRequestPrefixIsByteStable: each request of a session begins with the bytes
// of the one before it, over turns, runs, a worker that is stopped, and the log
// that the next one reads; so that a provider's prompt cache always fits.
func TestRequestPrefixIsByteStable(t *testing.T) {
	for _, api := range []string{openai.ChatCompletions, openai.Responses} {
		t.Run(api, func(t *testing.T) {
			b := newBench(t, benchOptions{answers: []looptest.Answer{
				looptest.Reply{Thinking: "hm \u2028 <b>", Text: "on it &\n", Calls: []looptest.Call{
					{ID: "c1", Name: "work", Args: `{ "z" : 1.50,  "a":"\u00e4\/ \ud83d\ude00" }`}, {ID: "c2", Name: "work", Args: "{\n \"k\":\n [1, 2]}"}}},
				looptest.Text("first"),
				looptest.Calls(looptest.Call{ID: "c3", Name: "work"}), looptest.Text("second"),
				looptest.Text("third"),
			}})
			agent := func() func(*Config) {
				m, err := openai.New(openai.Config{BaseURL: b.script.BaseURL(), APIKey: "test", API: api, HTTPClient: b.script.Client(),
					Info: loop.ModelInfo{ID: "scripted", Provider: "openai", Reasoning: true}})
				if err != nil {
					t.Fatal(err)
				}
				s := newStepping()
				close(s.release)
				return withAgent(Agent{Model: m, SystemPrompt: "Be brief.", Tools: []loop.Tool{s.tool},
					Options: loop.ModelOptions{SessionID: "s1", Reasoning: "low"}})
			}
			w := b.start("w1", agent())
			b.publish("s1", subjects.KindPrompt, &session.Input{Message: &loop.UserMessage{
				Content: []loop.Block{&loop.Text{Text: "a bare string\r\n"}}, ContentString: true}})
			b.settle("s1", 1)
			b.say("s1", subjects.KindPrompt, "and then? ü")
			b.settle("s1", 2)
			w.stop()
			<-w.done
			b.start("w2", agent())
			b.say("s1", subjects.KindPrompt, "once more")
			b.wantOutcomes(b.settle("s1", 3), loop.OutcomeCompleted, loop.OutcomeCompleted, loop.OutcomeCompleted)
			reqs := b.script.Requests()
			if len(reqs) != 5 {
				t.Fatalf("%d requests, want 5", len(reqs))
			}
			for i, r := range reqs[1:] {
				before := reqs[i].Body[:len(reqs[i].Body)-len("]}")]
				if !bytes.HasPrefix(r.Body, before) {
					t.Errorf("request %d does not begin with the bytes of the one before it:\n%s\n%s", i+2, before, r.Body)
				}
			}
		})
	}
}
