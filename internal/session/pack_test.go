package session

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pi-worker/pi-worker/loop"
)

// Whatever is packed comes back line by line, and one who reads the packed
// line alone has the same text.
func TestPackedDeltasComeBack(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.SampledFrom([]rune("ab\"\\\n\t\x00\u2028é世🙂<")), 0, 12, -1))
	rapid.Check(t, func(r *rapid.T) {
		seg := &segment{}
		var want [][]byte
		sums := map[string]string{}
		for range rapid.IntRange(1, 40).Draw(r, "events") {
			var ev loop.Event = &loop.MessageUpdate{Update: loop.Update{
				Type:         rapid.SampledFrom([]loop.UpdateType{loop.UpdateTextDelta, loop.UpdateThinkingDelta, loop.UpdateToolCallDelta}).Draw(r, "type"),
				ContentIndex: rapid.IntRange(0, 1).Draw(r, "index"), Delta: text.Draw(r, "delta"),
			}}
			if rapid.IntRange(0, 9).Draw(r, "other") == 0 {
				ev = &loop.MessageUpdate{Update: loop.Update{Type: loop.UpdateTextEnd, Revised: true, Content: `x","sizes":"11`}}
			}
			line := loop.AppendWire(nil, ev)
			want = append(want, line)
			if len(seg.buf) > 0 {
				seg.buf = append(seg.buf, '\n')
			}
			start := len(seg.buf)
			seg.buf = append(seg.buf, line...)
			seg.join(ev, start)
			count(r, sums, line)
		}
		seg.seal(len(seg.buf))
		var got [][]byte
		packed := map[string]string{}
		for line := range bytes.SplitSeq(seg.buf, newline) {
			var err error
			if got, err = unpack(got, line); err != nil {
				r.Fatalf("%v: %s", err, line)
			}
			count(r, packed, line)
		}
		if len(got) != len(want) {
			r.Fatalf("%d lines came back of %d\n%s", len(got), len(want), seg.buf)
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				r.Fatalf("line %d is %s, want %s", i, got[i], want[i])
			}
		}
		for k, v := range sums {
			if packed[k] != v {
				r.Fatalf("%s of the packed lines is %q, want %q", k, packed[k], v)
			}
		}
	})
}

// count adds a line's delta up, as a reader does that knows nothing of sizes.
func count(r *rapid.T, sums map[string]string, line []byte) {
	ev, err := loop.ParseWire(line)
	if err != nil {
		r.Fatalf("%v: %s", err, line)
	}
	u := ev.(*loop.MessageUpdate).Update
	sums[string(u.Type)+string(rune('0'+u.ContentIndex))] += u.Delta
}

func TestPackedLineIsSmall(t *testing.T) {
	seg := &segment{}
	ev := &loop.MessageUpdate{Update: loop.Update{Type: loop.UpdateTextDelta, Delta: "word "}}
	line := loop.AppendWire(nil, ev)
	allocs := testing.AllocsPerRun(1, func() {
		seg.buf, seg.pack.sizes = seg.buf[:0], seg.pack.sizes[:0]
		for i := range 100 {
			if i > 0 {
				seg.buf = append(seg.buf, '\n')
			}
			start := len(seg.buf)
			seg.buf = append(seg.buf, line...)
			seg.join(ev, start)
		}
		seg.seal(len(seg.buf))
	})
	if allocs > 0 {
		t.Errorf("%v allocations with a used buffer", allocs)
	}
	if want := `{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"` +
		strings.Repeat("word ", 100) + `","sizes":"` + strings.Repeat("5", 100) + `"}}`; string(seg.buf) != want {
		t.Errorf("packed: %s", seg.buf)
	}
}

func TestSizesThatDoNotFitAreBroken(t *testing.T) {
	for _, delta := range []string{`abc","sizes":"22`, `abc","sizes":"2`, `é","sizes":"11`[1:], `\u00`, `abc","sizes":"~`} {
		line := []byte(updateHead + `"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"` + delta + `"}}`)
		if lines, err := unpack(nil, line); err == nil && len(lines) != 1 {
			t.Errorf("%s gives %d lines", line, len(lines))
		} else if err == nil && strings.Contains(delta, "sizes") {
			t.Errorf("%s is no error", line)
		}
	}
}
