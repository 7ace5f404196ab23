package loop_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

// resumeWorld is a session whose worker dies at any event: what outlives it is
// the log of events and the count of executions.
type resumeWorld struct {
	mode loop.ExecutionMode
	log  []loop.Event

	mu  sync.Mutex
	ran map[string]int // executions that finished, by call
}

func (w *resumeWorld) count(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ran[id]
}

func (w *resumeWorld) transcript(t *testing.T) *loop.Transcript {
	t.Helper()
	tr, err := loop.Fold(func(yield func(loop.Event, error) bool) {
		for _, ev := range w.log {
			// What is read back is what a log holds.
			if !yield(loop.ParseWire(loop.AppendWire(nil, ev))) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// config is what each owner runs with. Steering and follow-up messages count
// as delivered when the log has them.
func (w *resumeWorld) config(t *testing.T) *loop.Config {
	deliver := func(text string, when func(*loop.Transcript) bool) func(context.Context) ([]loop.Message, error) {
		return func(context.Context) ([]loop.Message, error) {
			tr := w.transcript(t)
			if said(tr.Messages(), text) || !when(tr) {
				return nil, nil
			}
			return []loop.Message{loop.NewUserText(text)}, nil
		}
	}
	cfg := &loop.Config{
		ToolExecution: w.mode,
		Model: looptest.NewModelFunc(func(req *loop.Request) looptest.Reply {
			switch {
			case said(req.Messages, "and then?"):
				return looptest.Text("that was all")
			case said(req.Messages, "careful"):
				return looptest.Reply{Thinking: "hm", Text: "one more", Calls: []looptest.Call{{ID: "c3", Name: "safe"}}}
			}
			return looptest.Reply{Text: "on it", Calls: []looptest.Call{{ID: "c1", Name: "safe"}, {ID: "c2", Name: "risky"}}}
		}),
		Steering: deliver("careful", func(tr *loop.Transcript) bool {
			return slices.ContainsFunc(tr.Messages(), func(m loop.Message) bool {
				r, ok := m.(*loop.ToolResultMessage)
				return ok && r.ToolCallID == "c2"
			})
		}),
		FollowUp: deliver("and then?", func(*loop.Transcript) bool { return true }),
	}
	for _, name := range []string{"safe", "risky"} {
		tl := tool(name, func(_ context.Context, c loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
			update(loop.TextResult("working"))
			w.mu.Lock()
			w.ran[c.ID]++
			w.mu.Unlock()
			return loop.ToolResult{Content: loop.TextResult(name + " ok").Content, Terminate: c.ID == "c3"}, nil
		})
		tl.Idempotent = name == "safe"
		cfg.Tools = append(cfg.Tools, tl)
	}
	return cfg
}

func said(messages []loop.Message, what string) bool {
	return slices.ContainsFunc(messages, func(m loop.Message) bool {
		u, ok := m.(*loop.UserMessage)
		return ok && text(u.Content) == what
	})
}

// run appends events to the log until there are limit of them in all.
func (w *resumeWorld) run(t *testing.T, events func(func(loop.Event, error) bool), limit int) {
	t.Helper()
	for ev, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		if len(w.log) == limit {
			return
		}
		w.log = append(w.log, ev)
	}
}

func (w *resumeWorld) resume(t *testing.T, prompt loop.Message) {
	t.Helper()
	tr := w.transcript(t)
	open := tr.Open()
	history := tr.Messages()[:len(tr.Messages())-len(open.NewMessages)]
	var missing []loop.Message
	if !said(open.NewMessages, "hi") {
		missing = append(missing, prompt)
	}
	w.run(t, loop.Resume(t.Context(), w.config(t), history, open, missing...), -1)
}

// TestResumeFinishesARunCutAnywhere kills the owner after each event of a run
// with two batches of calls, a steering message and a follow-up.
func TestResumeFinishesARunCutAnywhere(t *testing.T) {
	for _, mode := range []loop.ExecutionMode{loop.ExecutionParallel, loop.ExecutionSequential} {
		t.Run(string(mode), func(t *testing.T) {
			history := []loop.Message{loop.NewUserText("earlier"), &loop.AssistantMessage{
				Content: []loop.Block{&loop.Text{Text: "yes"}}, StopReason: loop.StopStop,
			}}
			prompt := loop.NewUserText("hi")
			begin := func(limit int) *resumeWorld {
				w := &resumeWorld{mode: mode, ran: map[string]int{}}
				for _, m := range history {
					w.log = append(w.log, &loop.MessageStart{Message: m}, &loop.MessageEnd{Message: m})
				}
				w.run(t, loop.Run(t.Context(), w.config(t), history, prompt), limit)
				return w
			}
			whole := begin(-1)
			wantMessages := describe(whole.transcript(t).Messages(), nil)
			if len(whole.log) < 40 {
				t.Fatalf("only %d events: the run is not the one meant", len(whole.log))
			}
			for cut := len(history)*2 + 1; cut < len(whole.log); cut++ {
				t.Run(fmt.Sprintf("%d_%s", cut, whole.log[cut-1].EventType()), func(t *testing.T) {
					w := begin(cut)
					before := w.transcript(t)
					ranBefore := map[string]int{}
					unknown := startedOnly(w.log[:cut])
					for _, ev := range w.log[:cut] {
						if e, ok := ev.(*loop.ToolExecutionEnd); ok {
							ranBefore[e.ToolCallID] = w.count(e.ToolCallID)
						}
					}
					w.resume(t, prompt)
					tr := w.transcript(t)
					if tr.Open() != nil {
						t.Fatal("the run is still open")
					}
					var expect []string
					for _, line := range wantMessages {
						if unknown["c2"] && strings.HasPrefix(line, "toolResult c2") {
							line = "toolResult c2 " + loop.Interrupted
						}
						expect = append(expect, line)
					}
					if got := describe(tr.Messages(), nil); !slices.Equal(got, expect) {
						t.Errorf("transcript\n got  %q\n want %q", got, expect)
					}
					for id, n := range ranBefore {
						if w.count(id) != n {
							t.Errorf("call %s had finished and ran again", id)
						}
					}
					checkNesting(t, w.log)
					if got, want := tr.Messages()[:len(before.Messages())], before.Messages(); len(got) != len(want) {
						t.Errorf("finished messages were lost")
					}
				})
			}
		})
	}
}

// startedOnly lists the calls of the log that began and have no end.
func startedOnly(log []loop.Event) map[string]bool {
	open := map[string]bool{}
	for _, ev := range log {
		switch e := ev.(type) {
		case *loop.ToolExecutionStart:
			open[e.ToolCallID] = true
		case *loop.ToolExecutionEnd:
			delete(open, e.ToolCallID)
		}
	}
	return open
}

func describe(messages []loop.Message, out []string) []string {
	for _, m := range messages {
		switch m := m.(type) {
		case *loop.UserMessage:
			out = append(out, "user "+text(m.Content))
		case *loop.AssistantMessage:
			out = append(out, "assistant "+text(m.Content)+" "+string(m.StopReason))
		case *loop.ToolResultMessage:
			out = append(out, "toolResult "+m.ToolCallID+" "+text(m.Content))
		}
	}
	return out
}

// checkNesting: one agent_start and one agent_end, turns inside, and in each
// of them as many ends of calls as starts.
func checkNesting(t *testing.T, log []loop.Event) {
	t.Helper()
	runs, turns := 0, 0
	calls := map[string]int{}
	starts := map[string]int{}
	for _, ev := range log {
		switch e := ev.(type) {
		case *loop.AgentStart:
			runs++
		case *loop.AgentEnd:
			runs--
		case *loop.TurnStart:
			turns++
		case *loop.TurnEnd:
			turns--
		case *loop.ToolExecutionStart:
			calls[e.ToolCallID]++
			starts[e.ToolCallID]++
		case *loop.ToolExecutionEnd:
			calls[e.ToolCallID]--
		}
		if runs < 0 || runs > 1 || turns < 0 || turns > 1 {
			t.Fatalf("%s does not nest", ev.EventType())
		}
	}
	if runs != 0 || turns != 0 {
		t.Errorf("%d runs and %d turns are open at the end", runs, turns)
	}
	for id, n := range calls {
		if n != 0 || starts[id] != 1 {
			t.Errorf("call %s: %d starts, %d without end", id, starts[id], n)
		}
	}
}

func TestResumeEndsARunThatHadFailed(t *testing.T) {
	failed := &loop.AssistantMessage{StopReason: loop.StopError, ErrorMessage: "500"}
	user := loop.NewUserText("hi")
	cfg := &loop.Config{Model: looptest.NewModel()}
	events := collect(t, loop.Resume(t.Context(), cfg, nil, &loop.OpenRun{
		NewMessages: []loop.Message{user, failed}, InTurn: true, Assistant: failed,
	}))
	want(t, events, "turn_end agent_end")
	events = collect(t, loop.Resume(t.Context(), cfg, nil, &loop.OpenRun{
		NewMessages: []loop.Message{user, failed}, LastAssistant: failed,
	}))
	want(t, events, "agent_end")
}
