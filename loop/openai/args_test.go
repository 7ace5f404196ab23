package openai

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestArguments(t *testing.T) {
	for in, want := range map[string]string{
		"":                        `{}`,
		"  \n ":                   `{}`,
		`{"a": 1}`:                `{"a": 1}`,
		`{"a":1} `:                `{"a":1}`,
		`{"b":1e3,"a":-0.5}`:      `{"b":1e3,"a":-0.5}`,
		`{"q":"x",}`:              `{"q":"x"}`,
		`{"q":"x"}}`:              `{"q":"x"}`,
		`{"q":"x" /* c */}`:       `{"q":"x"}`,
		"{\"q\":1 // c\n}":        `{"q":1}`,
		"{\"q\":\"a\nb\tc\x01\"}": `{"q":"a\nb\tc\u0001"}`,
		`{"q":"\d \u12 \x"}`:      `{"q":"\\d \\u12 \\x"}`,
		`{"q":"\ud83d\ude00"}`:    `{"q":"\ud83d\ude00"}`,
		`"{\"q\":1}"`:             `{"q":1}`,
	} {
		got, why := arguments(in)
		if string(got) != want || why != "" {
			t.Errorf("%q: %s, %q; want %s", in, got, why, want)
		}
	}
}

func TestArgumentsThatMustNotRun(t *testing.T) {
	for in, want := range map[string]string{
		`{"n": 12`:               `{"n":12}`,
		`{"n": 12e`:              `{"n":12}`,
		`{"n": -`:                `{}`,
		`{"q": "a\`:              `{"q":"a"}`,
		`{"q": "a\u00`:           `{"q":"a"}`,
		`{"b": tr`:               `{"b":true}`,
		`{"q":`:                  `{}`,
		`{"q"`:                   `{}`,
		`{"q":1,`:                `{"q":1}`,
		`{"q":1 /* `:             `{"q":1}`,
		`{"a":[{"k":"x"},{"k":"`: `{"a":[{"k":"x"},{"k":""}]}`,
		`hello`:                  `{}`,
		`{'q':1}`:                `{}`,
		`{q:1}`:                  `{}`,
		`{"b": True, "n": None}`: `{}`,
		`{"a":1,"b": NaN}`:       `{"a":1}`,
		`{"a":1}{"b":2}`:         `{"a":1}`,
		`Sure: {"a":1}`:          `{}`,
		`{"n":1e400}`:            `{}`,
		`{"n":01}`:               `{}`,
		`[1,2`:                   `{}`,
		`[1,]`:                   `{}`,
		`[1,2]`:                  `{}`,
		`"text"`:                 `{}`,
		`false`:                  `{}`,
		`null`:                   `{}`,
	} {
		got, why := arguments(in)
		if string(got) != want || why == "" {
			t.Errorf("%q: %s, %q; want %s", in, got, why, want)
		}
	}
	deep := strings.Repeat(`{"a":`, 100_000)
	if got, why := arguments(deep); why == "" || !json.Valid(got) {
		t.Errorf("deep: %q", why)
	}
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"a":[1,"x\u00e4",true,null],"b":{}}`, `{"q":"C:\d",}`, `{"n":12`, `"{\"a\":1}"`, `{"a":1 /* */}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var txt text
		txt.addString(strings.ToValidUTF8(s, "\uFFFD"))
		s = txt.finish()
		args, why := arguments(s)
		if !json.Valid(args) {
			t.Fatalf("%q: %s is not JSON", s, args)
		}
		if why != "" && !isObject(args) {
			t.Fatalf("%q: %s is no object", s, args)
		}
		if json.Valid([]byte(s)) && why != "" && !strings.Contains(why, "out of range") && !strings.Contains(why, "not an object") && !strings.Contains(why, "deep") {
			t.Fatalf("%q is JSON, but %s", s, why)
		}
		// What was cut anywhere is never taken for whole.
		if trimmed := strings.TrimSpace(s); why == "" && isObject(args) && strings.HasSuffix(trimmed, "}") && json.Valid([]byte(trimmed)) {
			if _, why := arguments(trimmed[:len(trimmed)-1]); why == "" {
				t.Fatalf("%q without its end may run", trimmed)
			}
		}
	})
}

func FuzzChatChunk(f *testing.F) {
	for _, s := range []string{
		delta(`{"content":"a\ud83d"}`), delta(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"t","arguments":"{}"}}]}`), stop,
		delta(`{"reasoning":"r","reasoning_details":[{"type":"reasoning.text","text":"x"}]}`), `{"error":{"message":"x"}}`, `null`, `[]`,
		`{"choices":[null,{"index":1,"delta":{}}],"usage":{"prompt_tokens":1e99,"cost":-1}}`,
		added(0, callItem(1, "{")), doneItem(0, callItem(1, "{}")), completed, `{"type":"response.output_text.delta","delta":"x"}`,
	} {
		f.Add([]byte(s), []byte(s))
	}
	yes := true
	var models []*Model
	for _, api := range []string{ChatCompletions, Responses} {
		m, err := New(Config{API: api, Info: loopInfo, Compat: &Compat{ReasoningDetails: &yes}})
		if err != nil {
			f.Fatal(err)
		}
		models = append(models, m)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, m := range models {
			checkDecoder(t, m, a, b)
		}
	})
}
