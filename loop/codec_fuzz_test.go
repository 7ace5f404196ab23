package loop_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
)

func seeds(f *testing.F) {
	for _, ev := range append(ownEvents, deltaEvents...) {
		f.Add(loop.AppendWire(nil, ev))
		f.Add(loop.AppendEvent(nil, ev))
	}
	events, _ := longAnswer(2, "tok ")
	for _, ev := range events {
		f.Add(loop.AppendWire(nil, ev))
		f.Add(loop.AppendEvent(nil, ev))
	}
}

// FuzzParseWire: anything parses or gives one clear line of error; what was
// parsed is written and read again without loss, in both forms.
func FuzzParseWire(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, line []byte) {
		ev, err := loop.ParseWire(line)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("empty error")
			}
			return
		}
		if !json.Valid(line) {
			t.Fatalf("%q was read, but is no JSON", line)
		}
		for form, write := range map[string]func([]byte, loop.Event) []byte{"wire": loop.AppendWire, "full": loop.AppendEvent} {
			first := write(nil, ev)
			if !json.Valid(first) || bytes.ContainsAny(first, "\n\r") {
				t.Fatalf("%s: bad line %q", form, first)
			}
			again, err := loop.ParseWire(first)
			if err != nil {
				t.Fatalf("%s: %q: %v", form, first, err)
			}
			if second := write(nil, again); !bytes.Equal(first, second) {
				t.Fatalf("%s:\nfirst  %s\nsecond %s", form, first, second)
			}
		}
	})
}

// FuzzFold folds whatever lines parse, and gives pi's form of them: no panic,
// and a context that answers each call.
func FuzzFold(f *testing.F) {
	var log []string
	events, _ := longAnswer(2, "tok ")
	for _, ev := range append(events, ownEvents...) {
		log = append(log, string(loop.AppendWire(nil, ev)))
	}
	f.Add([]byte(strings.Join(log, "\n")))
	for _, name := range []string{"exec_parallel_three", "abort_mid_text", "agent_follow_up_all"} {
		f.Add(recorded(f, name))
	}
	f.Fuzz(func(t *testing.T, log []byte) {
		var tr loop.Transcript
		var x loop.Expander
		for line := range bytes.Lines(log) {
			ev, err := loop.ParseWire(bytes.TrimSpace(line))
			if err != nil {
				continue
			}
			if err := tr.Apply(ev); err != nil {
				t.Fatal(err)
			}
			out, err := x.Expand(ev)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range out {
				if full := loop.AppendEvent(nil, ev); !json.Valid(full) {
					t.Fatalf("bad event %q", full)
				}
			}
		}
		if len(tr.Context()) < len(tr.Messages()) {
			t.Fatal("the context lacks messages")
		}
		if c := tr.Clone(); state(c) != state(&tr) {
			t.Fatal("the clone differs")
		}
	})
}

// FuzzParseMessage: what parses is written back and read again without loss.
func FuzzParseMessage(f *testing.F) {
	f.Add([]byte(`{"role":"user","content":"\ud83d\ude00 \ud83d","x":[1,{"y":null}]}`))
	f.Add([]byte(`{"role":"toolResult","toolCallId":"c","content":[{"type":"image","data":"","mimeType":""},{"type":"odd"}],"details":{"a":1e5}}`))
	f.Add([]byte(`{"role":"assistant","content":[{"type":"thinking","thinking":"t","redacted":true},{"type":"toolCall","extra":{"a":1}}],"usage":{"input":1,"cost":{"total":0.1}}}`))
	f.Add([]byte(`{"role":"note","content":` + strings.Repeat("[", 50) + strings.Repeat("]", 50) + `}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := loop.ParseMessage(in)
		if json.Valid(in) && err != nil && !strings.HasPrefix(err.Error(), "message: ") {
			t.Fatalf("unclear error %v", err)
		}
		if err != nil {
			return
		}
		if !json.Valid(in) {
			t.Fatalf("%q was read, but is no JSON", in)
		}
		first, err := loop.MarshalMessage(m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := loop.ParseMessage(first)
		if err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		second, err := loop.MarshalMessage(again)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Fatalf("first  %s\nsecond %s", first, second)
		}
	})
}

// recorded returns a recording of testdata as lines.
func recorded(f *testing.F, name string) []byte {
	f.Helper()
	b, err := os.ReadFile("testdata/events/" + name + ".json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct{ Events []json.RawMessage }
	if err := json.Unmarshal(b, &file); err != nil {
		f.Fatal(err)
	}
	var lines []byte
	for _, ev := range file.Events {
		lines = append(append(lines, ev...), '\n')
	}
	return lines
}
