package loop_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"pgregory.net/rapid"
)

func TestArgumentsPreview(t *testing.T) {
	for in, want := range map[string]string{
		``:                      `{}`,
		`{`:                     `{}`,
		`{"`:                    `{}`,
		`{"ke`:                  `{}`,
		`{"key"`:                `{}`,
		`{"key":`:               `{}`,
		`{"key": "`:             `{"key":""}`,
		`{"key": "val`:          `{"key":"val"}`,
		`{"key": "val\`:         `{"key":"val"}`,
		`{"key": "val\n`:        `{"key":"val\n"}`,
		`{"key": "val\u00e`:     `{"key":"val"}`,
		`{"key": "val\u00e9`:    `{"key":"val\u00e9"}`,
		`{"key": "val",`:        `{"key":"val"}`,
		`{"key": "val", "n`:     `{"key":"val"}`,
		`{"key": "val", "n": 1`: `{"key":"val","n":1}`,
		`{"n": 12.`:             `{}`,
		`{"n": 12.5`:            `{"n":12.5}`,
		`{"n": -`:               `{}`,
		`{"n": 1e`:              `{}`,
		`{"b": t`:               `{"b":true}`,
		`{"b": fal`:             `{"b":false}`,
		`{"b": nu`:              `{"b":null}`,
		`{"b": true`:            `{"b":true}`,
		`{"b": tx`:              `{}`,
		`{"b": tx}`:             `{}`,
		`{"a": [1, 2`:           `{"a":[1,2]}`,
		`{"a": [1, {"b": "c`:    `{"a":[1,{"b":"c"}]}`,
		`{"a": [`:               `{"a":[]}`,
		`{"a": [] , "b":{}`:     `{"a":[],"b":{}}`,
		`{"a":1}`:               `{"a":1}`,
		`{"a":1}}`:              `{"a":1}`,
		`{"a":1} {"b":2}`:       `{"a":1}`,
		`{"a":1,}`:              `{"a":1}`,
		`{'a':1}`:               `{}`,
		`Sure: {"a":1}`:         `{}`,
		"{\"a\":\"x\ny\"}":      `{"a":"x\ny"}`,
		`{"a":"\d+\"`:           `{"a":"\\d+\""}`,
		`{"\q":"\\","k\\":"v`:   `{"\\q":"\\","k\\":"v"}`,
		`{"k\u00e":1}`:          `{"k\\u00e":1}`,
		`{"k\u00e9":1,"l":2`:    `{"k\u00e9":1,"l":2}`,
		`[1,"a`:                 `[1,"a"]`,
		`"text`:                 `"text"`,
		`12`:                    `12`,
		` { "a" : [ ] } `:       `{"a":[]}`,
		`{"a"]`:                 `{}`,
		`{"a":1]`:               `{"a":1}`,
		`{"emoji":"😀`:           `{"emoji":"😀"}`,
	} {
		for _, step := range []int{1, 3, len(in) + 1} {
			var p loop.ArgumentsPreview
			for i := 0; i < len(in); i += step {
				p.Append(in[i:min(i+step, len(in))])
				if got := p.JSON(); !json.Valid(got) {
					t.Fatalf("%s: %s is no JSON", in[:i+1], got)
				}
			}
			if got := string(p.JSON()); got != want {
				t.Errorf("%s by %d:\n got %s\nwant %s", in, step, got, want)
			}
		}
	}
}

// TestArgumentsPreviewOfWholeJSON: whole JSON previews as itself, compacted.
func TestArgumentsPreviewOfWholeJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := map[string]any{}
		for range rapid.IntRange(0, 5).Draw(t, "members") {
			v[rapid.String().Draw(t, "key")] = rapid.SampledFrom([]any{1.5, "s\\\"\n", nil, true, []any{}, []any{1.0, "x", map[string]any{"y": false}}}).Draw(t, "value")
		}
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		var p loop.ArgumentsPreview
		for len(b) > 0 && !p.Whole() {
			n := rapid.IntRange(1, len(b)).Draw(t, "piece")
			p.Append(string(b[:n]))
			b = b[n:]
			if !json.Valid(p.JSON()) {
				t.Fatalf("no JSON: %s", p.JSON())
			}
		}
		want, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, p.JSON()); err != nil {
			t.Fatal(err)
		}
		if !p.Whole() || !bytes.Equal(compact.Bytes(), want) {
			t.Fatalf("got %s, want %s", p.JSON(), want)
		}
	})
}

func FuzzArgumentsPreview(f *testing.F) {
	f.Add(`{"a": [1, "x\u00e9"], "b": tru`, 3)
	f.Add(`{"k\\u0": -1.5e3, 'x'`, 1)
	f.Fuzz(func(t *testing.T, in string, step int) {
		if step < 1 || step > 1000 {
			return
		}
		var p loop.ArgumentsPreview
		for i := 0; i < len(in); i += step {
			p.Append(in[i:min(i+step, len(in))])
			if got := p.JSON(); !json.Valid(got) {
				t.Fatalf("%q: %q is no JSON", in, got)
			}
		}
		if json.Valid([]byte(in)) != p.Whole() && json.Valid([]byte(in)) {
			t.Fatalf("%q is whole JSON", in)
		}
	})
}
