package loop_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"pgregory.net/rapid"
)

func TestMessageRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genMessage(t)
		b, err := loop.MarshalMessage(m)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsAny(b, "\n\r") {
			t.Fatalf("line break in %s", b)
		}
		got, err := loop.ParseMessage(b)
		if err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		if !reflect.DeepEqual(got, m) {
			t.Fatalf("got %#v\nwant %#v\njson %s", got, m, b)
		}
	})
}

// TestMessageJSONIsKept has messages as other programs write them; what is
// written back is the same, byte for byte.
func TestMessageJSONIsKept(t *testing.T) {
	for name, in := range map[string]string{
		"string content":      `{"role":"user","content":"hi <b>&"}`,
		"unknown role":        `{"role":"bashExecution","command":"ls", "n":1.50,"exitCode":null}`,
		"unknown block":       `{"role":"user","content":[{"type":"video", "url":"x","n":1.0}]}`,
		"unknown members":     `{"role":"user","content":[{"type":"text","text":"a","cache":{"z":1,"a":2}}],"timestamp":5,"vendor":[1.50]}`,
		"argument spelling":   `{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"n","arguments":{"z":1.50, "a":1e400,"z":2}}],"api":"a","provider":"p","model":"m","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0000012}},"stopReason":"toolUse"}`,
		"arguments no object": `{"role":"assistant","content":[{"type":"toolCall","id":"","name":"n","arguments":[1]}],"api":"a","provider":"p","model":"m","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":1e-7}},"stopReason":"stop"}`,
		"provider's fields":   `{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"n","arguments":{},"extra":{"extra_content":{"google":{"thought_signature":"A=="}}},"partialJson":"{"}],"api":"a","provider":"p","model":"m","usage":{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"totalTokens":10,"reasoning":1,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"stop","timestamp":3,"responseId":"r","responseModel":"mm","errorMessage":"e"}`,
		"details null":        `{"role":"toolResult","toolCallId":"c","toolName":"n","content":[],"details":null,"isError":false}`,
		"no details":          `{"role":"toolResult","toolCallId":"c","toolName":"n","content":[{"type":"image","data":"eA==","mimeType":"image/png"}],"isError":true}`,
		"lone surrogate":      `{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"n","arguments":{"a":"\ud83d"}}],"api":"a","provider":"p","model":"m","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			m, err := loop.ParseMessage([]byte(in))
			if err != nil {
				t.Fatal(err)
			}
			got, err := loop.MarshalMessage(m)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != in {
				t.Errorf("got  %s\nwant %s", got, in)
			}
		})
	}
}

func TestMessageErrorsNameThePlace(t *testing.T) {
	for in, want := range map[string]string{
		``:                               "message: want an object, JSON ends",
		`[]`:                             "message: want an object, got '[' at offset 0",
		`{}`:                             "message: role missing",
		`{"role":1}`:                     "message: role: want a string",
		`{"role":""}`:                    "message: role is empty",
		`{"role":"user"}`:                "message: content missing",
		`{"role":"user","content":7}`:    "message: content: want a list of blocks, got '7' at offset 25",
		`{"role":"user","content":[7]}`:  "message: content: block 0: want an object, got '7' at offset 26",
		`{"role":"user","content":[{}]}`: "message: content: block 0: type missing",
		`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text"}]}`: "message: content: block 1: text missing",
		`{"role":"user","content":[{"type":"image","data":"a"}]}`:                "message: content: block 0: mimeType missing",
		`{"role":"toolResult","content":[]}`:                                     "message: toolCallId missing",
		`{"role":"user","content":"a"} x`:                                        "message: more data after the JSON value at offset 30",
		`{"role":"user","content":"a`:                                            "message: string has no end",
		`{"role":"user","content":"\x"}`:                                         `message: bad escape \x in a string`,
		"{\"role\":\"user\",\"content\":\"a\nb\"}":                               `message: control character '\n' in a string at offset 27`,
		`{"role":"assistant","content":[],"usage":{"input":"many"}}`:             "message: usage: want a number, got '\"' at offset 50",
		`{"role":"assistant","content":[],"usage":{"input":1.5}}`:                "message: usage: want a whole number, got 1.5",
		`{"role":"user","content":"a",}`:                                         "message: want a string, got '}' at offset 29",
	} {
		if _, err := loop.ParseMessage([]byte(in)); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", in, err, want)
		}
	}
}

func TestEventErrorsNameThePlace(t *testing.T) {
	for in, want := range map[string]string{
		``:                                    "event: want an object, JSON ends",
		`{"blob":"x"}`:                        "event: type missing",
		`{"type":"message_end"}`:              "message_end: message missing",
		`{"type":"message_end","message":{}}`: "message_end: message: role missing",
		`{"type":"message_update"}`:           "message_update: assistantMessageEvent missing",
		`{"type":"tool_execution_start"}`:     "tool_execution_start: toolCallId missing",
		`{"type":"agent_settled","usage":3}`:  "agent_settled: usage: want an object, got '3' at offset 32",
		`{"type":"waiting","since":"noon"}`:   "waiting: want a number, got '\"' at offset 26",
		`{"type":"message_update","assistantMessageEvent":{"type":"text_delta","delta":5}}`: "message_update: assistantMessageEvent: want a string, got '5' at offset 78",
	} {
		if _, err := loop.ParseWire([]byte(in)); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", in, err, want)
		}
	}
}

// TestLoneSurrogatesAreHarmless: halves of a pair and bytes that are no UTF-8
// become U+FFFD in text, and stay as they are in arguments.
func TestLoneSurrogatesAreHarmless(t *testing.T) {
	m, err := loop.ParseMessage([]byte(`{"role":"user","content":"\ud83d\ude00 \ud83d \ude00 \ud83dx \ud83d\u0041` + "\xff" + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	got := m.(*loop.UserMessage).Content[0].(*loop.Text).Text
	if want := "😀 \uFFFD \uFFFD \uFFFDx \uFFFDA\uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b, _ := loop.MarshalMessage(loop.NewUserText("a\xf0\x9fb\xed\xa0\xbd"))
	if !json.Valid(b) || !strings.Contains(string(b), "a\uFFFD\uFFFDb\uFFFD\uFFFD\uFFFD") {
		t.Errorf("got %s", b)
	}
}

// TestBadRawJSONNeverBreaksALine: whatever a program puts in raw members, the
// line stays one line of valid JSON.
func TestBadRawJSONNeverBreaksALine(t *testing.T) {
	for _, raw := range []string{"{\n \"a\": \"x y\"\n}", "{", "", "\n", "nope", "\"\xff\"", "{}{}", "[1,\r\n2]"} {
		for _, ev := range []loop.Event{
			&loop.ToolExecutionStart{ToolCallID: "c", Args: json.RawMessage(raw)},
			&loop.UnknownEvent{Type: "x", Raw: json.RawMessage(raw)},
			&loop.MessageEnd{Message: &loop.CustomMessage{CustomRole: "r", Raw: json.RawMessage(raw)}},
			&loop.MessageEnd{Message: &loop.AssistantMessage{Other: json.RawMessage(raw), Content: []loop.Block{
				&loop.ToolCall{Arguments: json.RawMessage(raw), Extra: json.RawMessage(raw)},
				&loop.UnknownBlock{Type: "u", Raw: json.RawMessage(raw)}, nil}}},
			&loop.InputReturned{Input: json.RawMessage(raw)},
		} {
			line := loop.AppendWire(nil, ev)
			if !json.Valid(line) || bytes.ContainsAny(line, "\n\r") {
				t.Errorf("%q in %T gives %q", raw, ev, line)
			}
		}
	}
}

func TestOwnEventsRoundTrip(t *testing.T) {
	for _, ev := range ownEvents {
		for form, line := range map[string][]byte{"wire": loop.AppendWire(nil, ev), "full": loop.AppendEvent(nil, ev)} {
			got, err := loop.ParseWire(line)
			if err != nil {
				t.Fatalf("%s %s: %v", form, line, err)
			}
			if !reflect.DeepEqual(got, ev) {
				t.Errorf("%s\n got %#v\nwant %#v", line, got, ev)
			}
		}
	}
	settled := string(loop.AppendWire(nil, ownEvents[len(ownEvents)-2]))
	for _, member := range []string{`"outcome":"failed"`, `"attempts":2`, `"cost":0.25`, `"promptSeq":7`, `"promptId":"p"`} {
		if !strings.Contains(settled, member) {
			t.Errorf("%s is not in %s", member, settled)
		}
	}
}

// TestUnknownIsPassedOn: types from the future keep their bytes.
func TestUnknownIsPassedOn(t *testing.T) {
	for _, line := range []string{
		`{"type":"novelty","z":1.50,"a":[null]}`,
		`{"a":1,"type":"late type"}`,
		`{"type":"message_update","assistantMessageEvent":{"type":"audio_delta","delta":"AAA","contentIndex":0},"x":1}`,
	} {
		ev, err := loop.ParseWire([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := ev.(*loop.UnknownEvent); !ok {
			t.Errorf("%s is a %T", line, ev)
		}
		for _, got := range [][]byte{loop.AppendWire(nil, ev), loop.AppendEvent(nil, ev)} {
			if string(got) != line {
				t.Errorf("got %s, want %s", got, line)
			}
		}
	}
}

// TestWireRoundTrip: what the wire says, it says again.
func TestWireRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, ev := range genLog(t) {
			line := loop.AppendWire(nil, ev)
			if !json.Valid(line) || bytes.ContainsAny(line, "\n\r") {
				t.Fatalf("bad line %q", line)
			}
			got, err := loop.ParseWire(line)
			if err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if again := loop.AppendWire(nil, got); !bytes.Equal(again, line) {
				t.Fatalf("again %s\nfirst %s", again, line)
			}
		}
	})
}

// TestFullRoundTrip: pi's form is read back whole.
func TestFullRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, ev := range genLog(t) {
			line := loop.AppendEvent(nil, ev)
			got, err := loop.ParseEvent(line)
			if err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if again := loop.AppendEvent(nil, got); !bytes.Equal(again, line) {
				t.Fatalf("again %s\nfirst %s", again, line)
			}
		}
	})
}

// TestFullUpdateHasPiShape pins pi's form of an update.
func TestFullUpdateHasPiShape(t *testing.T) {
	partial := &loop.AssistantMessage{Content: []loop.Block{&loop.Text{Text: "hi"}}, API: "a", Provider: "p", Model: "m"}
	ev := &loop.MessageUpdate{Partial: partial, Update: loop.Update{Type: loop.UpdateTextDelta, Delta: "i"}}
	m := `{"role":"assistant","content":[{"type":"text","text":"hi"}],"api":"a","provider":"p","model":"m","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"stop"}`
	want := `{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"i","partial":` + m + `},"message":` + m + `}`
	if got := string(loop.AppendEvent(nil, ev)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := string(loop.AppendWire(nil, ev)), `{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"i"}}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestFullStartHasPiShape: a program for pi may look into the content of a
// message that has only begun.
func TestFullStartHasPiShape(t *testing.T) {
	ev := &loop.MessageStart{Message: &loop.AssistantMessage{API: "a", Provider: "p", Model: "m"}}
	want := `{"type":"message_start","message":{"role":"assistant","content":[],"api":"a","provider":"p","model":"m","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"stop"}}`
	full := loop.AppendEvent(nil, ev)
	if string(full) != want {
		t.Errorf("got  %s\nwant %s", full, want)
	}
	back, err := loop.ParseEvent(full)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range []loop.Event{ev, back} {
		if got, want := string(loop.AppendWire(nil, ev)), `{"type":"message_start","message":{"role":"assistant","api":"a","provider":"p","model":"m"}}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestMarshalerAgreesWithEncodingJSON(t *testing.T) {
	in := loop.Messages{loop.NewUserText("a"), &loop.CustomMessage{CustomRole: "note", Raw: json.RawMessage(`{"role":"note"}`)}}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out loop.Messages
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Errorf("got %#v, want %#v", out, in)
	}
	var u loop.UserMessage
	if err := json.Unmarshal([]byte(`{"role":"toolResult","toolCallId":"c","content":[]}`), &u); err == nil {
		t.Error("a tool result became a user message")
	}
	var r loop.ToolResult
	if err := json.Unmarshal([]byte(`{"content":[{"type":"text","text":"a"}],"details":{"x":1},"terminate":true,"isError":true}`), &r); err != nil {
		t.Fatal(err)
	}
	if !r.Terminate || !r.IsError || len(r.Content) != 1 {
		t.Errorf("got %+v", r)
	}
}
