package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// A worker may die after any record. Whatever the log says then, the next one
// ends the run once, with the calls that had ended kept.
func TestResumeFromAnyRecord(t *testing.T) {
	script := func(r *looptest.Request) looptest.Answer {
		if r.ToolResults() < 2 {
			return looptest.Reply{Text: "working", Calls: []looptest.Call{{Name: "quick"}, {Name: "other"}}}
		}
		return looptest.Text("done")
	}
	tools := []loop.Tool{}
	for _, name := range []string{"quick", "other"} {
		tools = append(tools, &tool{spec: loop.ToolSpec{Name: name}, run: func(context.Context, loop.Call) (loop.ToolResult, error) {
			return loop.TextResult("result of " + name), nil
		}})
	}
	b := newBench(t, benchOptions{})
	b.script.Otherwise(script)
	agent := withAgent(Agent{Tools: tools})
	b.start("w1", agent)
	in := &session.Input{ID: "the-prompt", Message: loop.NewUserText("hi")}
	b.publish("whole", subjects.KindPrompt, in)
	b.settle("whole", 1)
	recs := b.rawRecords("whole")
	for k := range recs {
		id := fmt.Sprint("cut", k)
		consumed := false
		for _, m := range recs[:k] {
			out := nats.NewMsg(subjects.Names{}.Events(id))
			out.Data = m.Data
			for _, h := range []string{subjects.HeaderEpoch, subjects.HeaderSeq, subjects.HeaderSub, subjects.HeaderInput, subjects.HeaderInputInfo} {
				if v := m.Header.Get(h); v != "" {
					out.Header.Set(h, v)
				}
			}
			consumed = consumed || m.Header.Get(subjects.HeaderInput) != ""
			if _, err := b.env.JS.PublishMsg(t.Context(), out); err != nil {
				t.Fatal(err)
			}
		}
		if !consumed {
			b.publish(id, subjects.KindPrompt, in)
		} else if err := b.store.Ring(id); err != nil {
			t.Fatal(err)
		}
	}
	for k := range recs {
		id := fmt.Sprint("cut", k)
		b.wantOutcomes(b.settle(id, 1), loop.OutcomeCompleted)
		b.check(id)
		b.wantUsers(id, "hi")
		if n := b.count(id, "agent_start"); n != 1 {
			t.Errorf("%s: %d agent_start", id, n)
		}
		for name, got := range b.results(id) {
			if got != "result of "+name && got != loop.Interrupted {
				t.Errorf("%s: result of %s is %q", id, name, got)
			}
		}
	}
	for _, r := range b.script.Requests() {
		validRequest(t, r)
	}
}

// validRequest: both APIs refuse a call without a result, and a result without
// a call.
func validRequest(t *testing.T, r *looptest.Request) {
	t.Helper()
	open := map[string]bool{}
	for _, turn := range r.Turns() {
		if turn.Role != "tool" && len(open) > 0 {
			t.Errorf("request %d: calls without result before %s: %v", r.Number, turn.Role, open)
		}
		for _, c := range turn.Calls {
			open[c.ID] = true
		}
		if turn.Role == "tool" {
			if !open[turn.CallID] {
				t.Errorf("request %d: result for %q without its call", r.Number, turn.CallID)
			}
			delete(open, turn.CallID)
		}
	}
}

func (b *bench) rawRecords(id string) []*nats.Msg {
	b.Helper()
	var out []*nats.Msg
	names := subjects.Names{}
	s, err := b.env.JS.Stream(b.Context(), names.EventsStream())
	if err != nil {
		b.Fatal(err)
	}
	for _, rec := range b.records(id) {
		m, err := s.GetMsg(b.Context(), rec.StreamSeq)
		if err != nil {
			b.Fatal(err)
		}
		out = append(out, &nats.Msg{Header: m.Header, Data: m.Data})
	}
	if n := slices.IndexFunc(out, func(m *nats.Msg) bool { return strings.Contains(string(m.Data), "agent_settled") }); n != len(out)-1 {
		b.Fatalf("agent_settled is in record %d of %d", n, len(out))
	}
	return out
}
