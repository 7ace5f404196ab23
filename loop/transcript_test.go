package loop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"reflect"
	"slices"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"pgregory.net/rapid"
)

func all(events []loop.Event) iter.Seq2[loop.Event, error] {
	return func(yield func(loop.Event, error) bool) {
		for _, ev := range events {
			if !yield(ev, nil) {
				return
			}
		}
	}
}

func fold(t interface{ Fatal(...any) }, events []loop.Event) *loop.Transcript {
	tr, err := loop.Fold(all(events))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// overWire returns the events as a reader of the log gets them.
func overWire(t interface{ Fatal(...any) }, events []loop.Event) []loop.Event {
	out := make([]loop.Event, 0, len(events))
	for _, ev := range events {
		got, err := loop.ParseWire(loop.AppendWire(nil, ev))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, got)
	}
	return out
}

// state is all that a transcript says, to compare.
func state(tr *loop.Transcript) string {
	b, err := json.Marshal(struct {
		Messages, Context loop.Messages
		Open              *loop.OpenRun
		Unsettled         bool
		Usage, Run        loop.Usage
	}{tr.Messages(), tr.Context(), tr.Open(), tr.Unsettled(), tr.Usage(), tr.RunUsage()})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TestFoldOfPrefixGoesOn: every prefix folds, and fold(a+b) is b applied to
// fold(a); the fold of a is not changed by that.
func TestFoldOfPrefixGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := overWire(t, genLog(t))
		cut := rapid.IntRange(0, len(events)).Draw(t, "cut")
		prefix := fold(t, events[:cut])
		before := state(prefix)
		open, messages := prefix.Open(), prefix.Messages()
		openBefore, _ := json.Marshal(open)
		on := prefix.Clone()
		for _, ev := range events[cut:] {
			if err := on.Apply(ev); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := state(on), state(fold(t, events)); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
		if state(prefix) != before {
			t.Fatal("the clone changed its original")
		}
		for _, ev := range events[cut:] {
			if err := prefix.Apply(ev); err != nil {
				t.Fatal(err)
			}
		}
		if now, _ := json.Marshal(open); string(now) != string(openBefore) {
			t.Fatalf("Open changed afterwards: %s, was %s", now, openBefore)
		}
		if len(messages) > 0 && !reflect.DeepEqual(messages, prefix.Messages()[:len(messages)]) {
			t.Fatal("Messages changed afterwards")
		}
	})
}

// TestBothFormsFoldAlike: the engine's events, the wire's and pi's are the
// same session.
func TestBothFormsFoldAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := genLog(t)
		events = events[:rapid.IntRange(0, len(events)).Draw(t, "cut")]
		wire := overWire(t, events)
		var x loop.Expander
		var full []loop.Event
		for _, ev := range wire {
			out, err := x.Expand(ev)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range out {
				got, err := loop.ParseEvent(loop.AppendEvent(nil, ev))
				if err != nil {
					t.Fatal(err)
				}
				full = append(full, got)
			}
		}
		live := state(fold(t, events))
		if got := state(fold(t, wire)); got != live && fold(t, wire).Open() == nil {
			t.Fatalf("wire %s\nlive %s", got, live)
		}
		if x.Flush() == nil {
			if got := messages(fold(t, full)); got != messages(fold(t, events)) {
				t.Fatalf("full %s\nlive %s", got, live)
			}
		}
	})
}

func messages(tr *loop.Transcript) string {
	b, err := json.Marshal(loop.Messages(tr.Messages()))
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TestExpanderGivesEngineEventsBack: over the wire and back, the engine's own
// events come out, with all that pi repeats.
func TestExpanderGivesEngineEventsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := genLog(t)
		var x loop.Expander
		var got []string
		for _, ev := range overWire(t, events) {
			out, err := x.Expand(ev)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range out {
				got = append(got, piForm(t, ev))
			}
		}
		if len(got) != len(events) {
			t.Fatalf("%d events, want %d", len(got), len(events))
		}
		for i, ev := range events {
			if want := piForm(t, ev); got[i] != want {
				t.Fatalf("event %d\n got %s\nwant %s", i, got[i], want)
			}
		}
	})
}

// piForm is pi's form of an event, but for an unfinished call's arguments,
// which an engine may show in its own way.
func piForm(t interface{ Fatal(...any) }, ev loop.Event) string {
	var full []byte
	if u, ok := ev.(*loop.MessageUpdate); ok {
		p := snapshot(u.Partial)
		for _, b := range p.Content {
			if c, ok := b.(*loop.ToolCall); ok && u.Update.Type != loop.UpdateToolCallEnd {
				c.Arguments = nil
			}
		}
		full = loop.AppendEvent(nil, &loop.MessageUpdate{Update: u.Update, Partial: p})
	} else {
		full = loop.AppendEvent(nil, ev)
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(full))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err, string(full))
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestExpanderRepeatsWhatPiRepeats(t *testing.T) {
	user := loop.NewUserText("do")
	call := &loop.ToolCall{ID: "c", Name: "t", Arguments: json.RawMessage(`{"a":1}`)}
	answer := &loop.AssistantMessage{Content: []loop.Block{call}, StopReason: loop.StopToolUse}
	result := &loop.ToolResultMessage{ToolCallID: "c", ToolName: "t", Content: []loop.Block{&loop.Text{Text: "ok"}}}
	var x loop.Expander
	var got []loop.Event
	for _, ev := range overWire(t, []loop.Event{
		&loop.AgentStart{}, &loop.TurnStart{},
		&loop.MessageStart{Message: user}, &loop.MessageEnd{Message: user},
		&loop.MessageStart{Message: &loop.AssistantMessage{}}, &loop.MessageEnd{Message: answer},
		&loop.ToolExecutionStart{ToolCallID: "c", ToolName: "t", Args: call.Arguments},
		&loop.ToolExecutionUpdate{ToolCallID: "c", ToolName: "t", Args: call.Arguments, PartialResult: loop.TextResult("o")},
		&loop.ToolExecutionEnd{ToolCallID: "c", ToolName: "t", Result: loop.TextResult("ok")},
		&loop.MessageStart{Message: result}, &loop.MessageEnd{Message: result},
		&loop.TurnEnd{Message: answer, ToolResults: []*loop.ToolResultMessage{result}},
		&loop.AgentEnd{Messages: []loop.Message{user, answer, result}},
	}) {
		out, err := x.Expand(ev)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, out...)
	}
	if start := got[2].(*loop.MessageStart); !reflect.DeepEqual(start.Message, loop.Message(user)) {
		t.Errorf("message_start has %+v", start.Message)
	}
	if up := got[7].(*loop.ToolExecutionUpdate); string(up.Args) != `{"a":1}` {
		t.Errorf("tool_execution_update has args %s", up.Args)
	}
	end := got[11].(*loop.TurnEnd)
	if !reflect.DeepEqual(end.Message, loop.Message(answer)) || !reflect.DeepEqual(end.ToolResults, []*loop.ToolResultMessage{result}) {
		t.Errorf("turn_end has %+v and %+v", end.Message, end.ToolResults)
	}
	if list := got[12].(*loop.AgentEnd).Messages; !reflect.DeepEqual(list, []loop.Message{user, answer, result}) {
		t.Errorf("agent_end has %+v", list)
	}
}

// TestExpanderFromTheMiddle: a reader that joins late gets what can be known,
// and never an error.
func TestExpanderFromTheMiddle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := overWire(t, genLog(t))
		cut := rapid.IntRange(0, len(events)).Draw(t, "cut")
		var blind loop.Expander
		told := loop.NewExpander(fold(t, events[:cut]))
		for i, ev := range events[cut:] {
			if _, err := blind.Expand(ev); err != nil {
				t.Fatal(err)
			}
			out, err := told.Expand(ev)
			if err != nil {
				t.Fatal(err)
			}
			if end, ok := ev.(*loop.TurnEnd); ok && end.Message == nil {
				if full := out[len(out)-1].(*loop.TurnEnd); full.Message == nil {
					t.Fatalf("event %d after %d: turn_end without message", i, cut)
				}
			}
		}
	})
}

func TestOpenSaysWhatResumeNeeds(t *testing.T) {
	calls := []loop.Block{
		&loop.ToolCall{ID: "a", Name: "t", Arguments: json.RawMessage(`{}`)},
		&loop.ToolCall{ID: "b", Name: "t", Arguments: json.RawMessage(`{}`)},
		&loop.ToolCall{ID: "c", Name: "t", Arguments: json.RawMessage(`{}`)},
	}
	answer := &loop.AssistantMessage{Content: calls, StopReason: loop.StopToolUse, Usage: loop.Usage{Input: 5}}
	result := &loop.ToolResultMessage{ToolCallID: "a"}
	var tr loop.Transcript
	step := func(ev loop.Event) *loop.OpenRun {
		t.Helper()
		if err := tr.Apply(ev); err != nil {
			t.Fatal(err)
		}
		return tr.Open()
	}
	if o := tr.Open(); o != nil {
		t.Errorf("an empty session has an open run: %+v", o)
	}
	if o := step(&loop.AgentStart{}); o == nil || o.Turn != -1 || o.InTurn {
		t.Errorf("after agent_start: %+v", o)
	}
	if o := step(&loop.TurnStart{}); o.Turn != 0 || !o.InTurn {
		t.Errorf("after turn_start: %+v", o)
	}
	if o := step(&loop.MessageStart{Message: loop.NewUserText("x")}); o.Starting == nil {
		t.Errorf("after message_start of a prompt: %+v", o)
	}
	if o := step(&loop.MessageEnd{Message: loop.NewUserText("x")}); o.Starting != nil || len(o.NewMessages) != 1 {
		t.Errorf("after the prompt: %+v", o)
	}
	step(&loop.MessageStart{Message: &loop.AssistantMessage{Model: "m"}})
	o := step(&loop.MessageUpdate{Update: loop.Update{Type: loop.UpdateTextDelta, Delta: "hel"}})
	if o.Partial == nil || o.Partial.Model != "m" || o.Partial.Content[0].(*loop.Text).Text != "hel" {
		t.Errorf("in an answer: %+v", o.Partial)
	}
	for _, ev := range []loop.Event{&loop.SessionClaimed{}, &loop.RunResumed{}, &loop.UnknownEvent{Type: "x"}} {
		if o := step(ev); o == nil || o.Partial == nil {
			t.Errorf("%T lost the half-streamed answer", ev)
		}
	}
	if o := step(&loop.MessageDiscarded{}); o.Partial != nil {
		t.Errorf("after message_discarded: %+v", o.Partial)
	}
	step(&loop.MessageStart{Message: &loop.AssistantMessage{}})
	if o := step(&loop.MessageEnd{Message: answer}); o.Assistant != answer || o.Partial != nil || o.Usage.Input != 5 {
		t.Errorf("after the answer: %+v", o)
	}
	step(&loop.ToolExecutionStart{ToolCallID: "a"})
	step(&loop.ToolExecutionStart{ToolCallID: "b"})
	step(&loop.ToolExecutionEnd{ToolCallID: "a", Result: loop.ToolResult{Terminate: true}})
	o = step(&loop.MessageEnd{Message: result})
	if !o.Started[0] || !o.Started[1] || o.Started[2] || o.Ended[0] == nil || o.Ended[1] != nil || len(o.Results) != 1 {
		t.Errorf("in the tools: started %v, ended %v, results %v", o.Started, o.Ended, o.Results)
	}
	step(&loop.ToolExecutionEnd{ToolCallID: "b", Result: loop.ToolResult{Terminate: true}})
	step(&loop.ToolExecutionEnd{ToolCallID: "c", Result: loop.ToolResult{Terminate: true}}) // blocked: no start
	o = step(&loop.TurnEnd{})
	if o.InTurn || o.Assistant != nil || o.LastAssistant != answer || !o.Terminate || o.Started != nil {
		t.Errorf("after turn_end: %+v", o)
	}
	if o := step(&loop.AgentEnd{WillContinue: true}); o == nil {
		t.Error("the run continues, but is closed")
	}
	if o := step(&loop.AgentEnd{}); o != nil || !tr.Unsettled() {
		t.Errorf("after agent_end: open %+v, unsettled %v", o, tr.Unsettled())
	}
	step(&loop.AgentSettled{})
	if tr.Unsettled() {
		t.Error("after agent_settled: unsettled")
	}
}

// TestCallsWithOneIDAreToldApart: some servers give every call the same id.
func TestCallsWithOneIDAreToldApart(t *testing.T) {
	answer := &loop.AssistantMessage{Content: []loop.Block{&loop.ToolCall{}, &loop.ToolCall{}}, StopReason: loop.StopToolUse}
	tr := fold(t, []loop.Event{&loop.AgentStart{}, &loop.TurnStart{}, &loop.MessageEnd{Message: answer},
		&loop.ToolExecutionStart{}, &loop.ToolExecutionStart{}, &loop.ToolExecutionEnd{}})
	if o := tr.Open(); !o.Started[0] || !o.Started[1] || o.Ended[0] == nil || o.Ended[1] != nil {
		t.Errorf("started %v, ended %v", o.Started, o.Ended)
	}
	if got := len(tr.Context()); got != 3 {
		t.Errorf("context has %d messages, want the answer and two results", got)
	}
}

// TestContextAnswersEachCall: wherever the log is cut, each call of an answer
// has exactly one result right behind it.
func TestContextAnswersEachCall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := overWire(t, genLog(t))
		cut := rapid.IntRange(0, len(events)).Draw(t, "cut")
		tr := fold(t, events[:cut])
		context := tr.Context()
		// What stands behind the last summary is there, and in order.
		rest := tr.Messages()
		for i, ev := range events[:cut] {
			if e, ok := ev.(*loop.CompactionEnd); ok && e.Result != nil {
				before := fold(t, events[:i])
				behind := len(tr.Messages()) - len(before.Messages())
				all := before.Context()
				for _, m := range all[max(0, len(all)-e.Result.Kept):] {
					if slices.Contains(before.Messages(), m) { // not the former summary
						behind++
					}
				}
				rest = tr.Messages()[len(tr.Messages())-behind:]
			}
		}
		kept := len(rest)
		for i, m := range slices.Backward(context) {
			if kept > 0 && reflect.DeepEqual(m, rest[kept-1]) {
				kept--
			}
			a, ok := m.(*loop.AssistantMessage)
			if !ok || a.StopReason == loop.StopError || a.StopReason == loop.StopAborted {
				continue
			}
			want := map[string]int{}
			for _, b := range a.Content {
				if c, ok := b.(*loop.ToolCall); ok {
					want[c.ID]++
				}
			}
			for _, r := range context[i+1:] {
				r, ok := r.(*loop.ToolResultMessage)
				if !ok {
					break
				}
				want[r.ToolCallID]--
			}
			for id, n := range want {
				if n != 0 {
					t.Fatalf("call %q of message %d: %d results missing", id, i, n)
				}
			}
		}
		if kept != 0 {
			t.Fatalf("the context lacks %d messages of the transcript", kept)
		}
	})
}

func TestContextUsesTheJournal(t *testing.T) {
	answer := &loop.AssistantMessage{StopReason: loop.StopToolUse, Content: []loop.Block{
		&loop.ToolCall{ID: "a", Name: "t"}, &loop.ToolCall{ID: "b", Name: "t"}}}
	tr := fold(t, []loop.Event{&loop.AgentStart{}, &loop.TurnStart{}, &loop.MessageEnd{Message: answer},
		&loop.ToolExecutionStart{ToolCallID: "a"}, &loop.ToolExecutionStart{ToolCallID: "b"},
		&loop.ToolExecutionEnd{ToolCallID: "a", Result: loop.TextResult("done")}})
	context := tr.Context()
	a, b := context[1].(*loop.ToolResultMessage), context[2].(*loop.ToolResultMessage)
	if a.IsError || a.Content[0].(*loop.Text).Text != "done" {
		t.Errorf("finished call: %+v", a)
	}
	if !b.IsError || b.ToolCallID != "b" || b.Content[0].(*loop.Text).Text != loop.Interrupted {
		t.Errorf("unfinished call: %+v", b)
	}
	if len(tr.Messages()) != 1 {
		t.Error("the context was written into the transcript")
	}
}

func TestFoldStopsAtAnError(t *testing.T) {
	gone := errors.New("gone")
	tr, err := loop.Fold(func(yield func(loop.Event, error) bool) {
		if yield(&loop.MessageEnd{Message: loop.NewUserText("a")}, nil) {
			yield(nil, gone)
		}
	})
	if !errors.Is(err, gone) || len(tr.Messages()) != 1 {
		t.Errorf("got %v and %d messages", err, len(tr.Messages()))
	}
	if _, err := loop.Fold(all([]loop.Event{&loop.MessageEnd{}})); err == nil {
		t.Error("a message_end without message folded")
	}
}

// TestWrongIndexAllocatesNothingMuch: a contentIndex from nowhere is ignored.
func TestWrongIndexAllocatesNothingMuch(t *testing.T) {
	for _, index := range []int{-1, 1 << 40} {
		tr := fold(t, []loop.Event{&loop.AgentStart{}, &loop.MessageUpdate{Update: loop.Update{Type: loop.UpdateTextDelta, ContentIndex: index, Delta: "x"}}})
		if got := len(tr.Open().Partial.Content); got != 0 {
			t.Errorf("index %d made %d blocks", index, got)
		}
	}
	tr := fold(t, []loop.Event{&loop.AgentStart{}, &loop.MessageUpdate{Update: loop.Update{Type: loop.UpdateTextDelta, ContentIndex: 2, Delta: "x"}}})
	if got := tr.Open().Partial.Content; len(got) != 3 || got[2].(*loop.Text).Text != "x" {
		t.Errorf("lost starts: %v", got)
	}
}
