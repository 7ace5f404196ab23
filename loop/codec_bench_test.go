package loop_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
)

// longAnswer is an answer of n deltas as an engine emits it, from agent_start
// to agent_end, and the bytes of its content.
func longAnswer(n int, delta string) (events []loop.Event, content int) {
	text := strings.Repeat(delta, n)
	live := &loop.AssistantMessage{Content: []loop.Block{&loop.Text{}}, API: "openai-completions", Provider: "openai", Model: "gpt"}
	whole := &loop.AssistantMessage{Content: []loop.Block{&loop.Text{Text: text}}, API: live.API, Provider: live.Provider, Model: live.Model, StopReason: loop.StopStop}
	events = append(events, &loop.AgentStart{}, &loop.TurnStart{}, &loop.MessageStart{Message: &loop.AssistantMessage{API: live.API, Provider: live.Provider, Model: live.Model}},
		&loop.MessageUpdate{Partial: live, Update: loop.Update{Type: loop.UpdateTextStart}})
	for range n {
		events = append(events, &loop.MessageUpdate{Partial: live, Update: loop.Update{Type: loop.UpdateTextDelta, Delta: delta}})
	}
	events = append(events, &loop.MessageUpdate{Partial: whole, Update: loop.Update{Type: loop.UpdateTextEnd, Content: text}},
		&loop.MessageEnd{Message: whole}, &loop.TurnEnd{Message: whole, Usage: &whole.Usage}, &loop.AgentEnd{Messages: []loop.Message{whole}, Usage: &whole.Usage})
	return events, len(text)
}

// TestWireIsLinear: the text of an answer is on the wire twice, as deltas and
// in its message_end; beyond that there is a fixed price a delta, whatever the
// length. Pieces of a few hundred bytes, a reader's usual read, stay under
// three times the content.
func TestWireIsLinear(t *testing.T) {
	const frame = len(`{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":""}}`)
	for _, delta := range []string{"tok ", strings.Repeat("word ", 60)} {
		for _, n := range []int{200, 1000, 4000, 100000} {
			events, content := longAnswer(n, delta)
			bytes := 0
			var line []byte
			for _, ev := range events {
				line = loop.AppendWire(line[:0], ev)
				bytes += len(line)
			}
			if limit := 2*content + n*frame + 2000; bytes > limit {
				t.Errorf("%d deltas of %d bytes take %d bytes, want at most %d", n, len(delta), bytes, limit)
			}
			ratio := float64(bytes) / float64(content)
			t.Logf("%6d deltas of %3d bytes: %.2f times the content", n, len(delta), ratio)
			if len(delta) >= 100 && ratio >= 3 {
				t.Errorf("%d deltas of %d bytes take %.2f times their content", n, len(delta), ratio)
			}
		}
	}
}

var deltaEvents = []loop.Event{
	&loop.MessageUpdate{Partial: &loop.AssistantMessage{}, Update: loop.Update{Type: loop.UpdateTextDelta, ContentIndex: 1, Delta: "a few words, \"quoted\" & <é>\n"}},
	&loop.MessageUpdate{Partial: &loop.AssistantMessage{}, Update: loop.Update{Type: loop.UpdateThinkingDelta, Delta: "hm"}},
	&loop.MessageUpdate{Partial: &loop.AssistantMessage{}, Update: loop.Update{Type: loop.UpdateToolCallDelta, ContentIndex: 12, Delta: `{"path": "x`}},
}

func TestEncodingADeltaAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 1024)
	for _, ev := range append(deltaEvents, &loop.TurnStart{}, &loop.Waiting{For: "model", Since: 1}) {
		if n := testing.AllocsPerRun(100, func() { buf = loop.AppendWire(buf[:0], ev) }); n != 0 {
			t.Errorf("%T: %v allocations", ev, n)
		}
	}
}

// TestApplyingADeltaCostsItsOwnLength counts allocations over a long answer:
// growing buffers double, so there are far fewer of them than deltas.
func TestApplyingADeltaCostsItsOwnLength(t *testing.T) {
	for name, u := range map[string]loop.Update{
		"text": {Type: loop.UpdateTextDelta, Delta: "tok "},
		"args": {Type: loop.UpdateToolCallDelta, Delta: "tok "},
	} {
		var tr loop.Transcript
		for _, ev := range []loop.Event{&loop.AgentStart{}, &loop.TurnStart{}, &loop.MessageStart{Message: &loop.AssistantMessage{}},
			&loop.MessageUpdate{Update: loop.Update{Type: loop.UpdateToolCallDelta, Delta: `{"a":"`}}} {
			if name == "text" && ev.EventType() == "message_update" {
				continue
			}
			if err := tr.Apply(ev); err != nil {
				t.Fatal(err)
			}
		}
		ev := &loop.MessageUpdate{Update: u}
		n := testing.AllocsPerRun(1, func() {
			for range 50000 {
				if err := tr.Apply(ev); err != nil {
					t.Fatal(err)
				}
			}
		})
		if n > 300 {
			t.Errorf("%s: %v allocations for 50,000 deltas", name, n)
		}
	}
}

func BenchmarkAppendWireDelta(b *testing.B) {
	buf := make([]byte, 0, 1024)
	ev := deltaEvents[0]
	b.ReportAllocs()
	for b.Loop() {
		buf = loop.AppendWire(buf[:0], ev)
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkParseWireDelta(b *testing.B) {
	line := loop.AppendWire(nil, deltaEvents[0])
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := loop.ParseWire(line); err != nil {
			b.Fatal(err)
		}
	}
}

func longMessage() *loop.AssistantMessage {
	return &loop.AssistantMessage{API: "openai-completions", Provider: "openai", Model: "gpt", StopReason: loop.StopToolUse,
		Content: []loop.Block{&loop.Text{Text: strings.Repeat("some words of an answer\n", 400)},
			&loop.ToolCall{ID: "call_1", Name: "read", Arguments: json.RawMessage(`{"path":"a/b/c","limit":100}`)}}}
}

func BenchmarkAppendWireMessageEnd(b *testing.B) {
	ev := &loop.MessageEnd{Message: longMessage()}
	buf := loop.AppendWire(nil, ev)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		buf = loop.AppendWire(buf[:0], ev)
	}
}

func BenchmarkParseWireMessageEnd(b *testing.B) {
	line := loop.AppendWire(nil, &loop.MessageEnd{Message: longMessage()})
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := loop.ParseWire(line); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkApply folds one long answer; ns/op is of a delta.
func BenchmarkApply(b *testing.B) {
	for _, u := range []loop.Update{{Type: loop.UpdateTextDelta, Delta: "tok "}, {Type: loop.UpdateToolCallDelta, Delta: "tok "}} {
		b.Run(string(u.Type), func(b *testing.B) {
			var tr loop.Transcript
			_ = tr.Apply(&loop.AgentStart{})
			ev := &loop.MessageUpdate{Update: u}
			b.ReportAllocs()
			for b.Loop() {
				if err := tr.Apply(ev); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFold decodes and folds whole logs; the time an event does not
// depend on their length.
func BenchmarkFold(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		events, _ := longAnswer(n, "tok ")
		var lines [][]byte
		for _, ev := range events {
			lines = append(lines, loop.AppendWire(nil, ev))
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var tr loop.Transcript
				for _, line := range lines {
					ev, err := loop.ParseWire(line)
					if err != nil {
						b.Fatal(err)
					}
					if err := tr.Apply(ev); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(lines)), "ns/event")
		})
	}
}

// BenchmarkExpand gives pi's events back without encoding them.
func BenchmarkExpand(b *testing.B) {
	var x loop.Expander
	if _, err := x.Expand(&loop.AgentStart{}); err != nil {
		b.Fatal(err)
	}
	ev := &loop.MessageUpdate{Update: loop.Update{Type: loop.UpdateTextDelta, Delta: "tok "}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := x.Expand(ev); err != nil {
			b.Fatal(err)
		}
	}
}
