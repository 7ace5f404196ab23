package loop

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestValidateArguments(t *testing.T) {
	const refused = "refused"
	object := func(schema string) string {
		return `{"type":"object","properties":{"v":` + schema + `},"required":["v"]}`
	}
	tests := []struct{ name, schema, args, want string }{
		{"nothing to change comes back byte for byte", object(`{"type":"number"}`), `{ "v" : 1.50 }`, `{ "v" : 1.50 }`},
		{"string to number", object(`{"type":"number"}`), `{"v":" 42.5 "}`, `{"v":42.5}`},
		{"signed string to number", object(`{"type":"number"}`), `{"v":"+5"}`, `{"v":5}`},
		{"hex is not decimal", object(`{"type":"number"}`), `{"v":"0x10"}`, refused},
		{"infinity is no number", object(`{"type":"number"}`), `{"v":"Infinity"}`, refused},
		{"whole float to integer", object(`{"type":"integer"}`), `{"v":3.0}`, `{"v":3}`},
		{"exponent to integer", object(`{"type":"integer"}`), `{"v":1e3}`, `{"v":1000}`},
		{"fraction is no integer", object(`{"type":"integer"}`), `{"v":"3.5"}`, refused},
		{"long id keeps its digits", object(`{"type":"string"}`), `{"v":12345678901234567890}`, `{"v":"12345678901234567890"}`},
		{"one to boolean", object(`{"type":"boolean"}`), `{"v":1}`, `{"v":true}`},
		{"two is no boolean", object(`{"type":"boolean"}`), `{"v":2}`, refused},
		{"number out of range", object(`{"type":"number"}`), `{"v":1e400}`, refused},
		{"number that would take all memory", object(`{"type":"number","multipleOf":3}`), `{"v":1e999999999}`, refused},
		{"small number that would take all memory", object(`{"type":"number","multipleOf":3}`), `{"v":1e-999999999}`, refused},
		{"null for a required key is made up by nobody", object(`{"type":"string"}`), `{"v":null}`, refused},
		{"null for an optional key is absent", `{"type":"object","properties":{"v":{"type":"string"}}}`, `{"v":null}`, `{}`},
		{"null stays where it is allowed", `{"type":"object","properties":{"v":{"type":["string","null"]}}}`, `{"v":null}`, `{"v":null}`},
		{"number stays where a branch accepts it", object(`{"anyOf":[{"type":"string"},{"type":"number"}]}`), `{"v":5}`, `{"v":5}`},
		{"null stays where a branch accepts it", object(`{"anyOf":[{"type":"string"},{"type":"null"}]}`), `{"v":null}`, `{"v":null}`},
		{"string becomes a number where number comes first", object(`{"anyOf":[{"type":"number"},{"type":"string"}]}`), `{"v":"5"}`, `{"v":5}`},
		{"object encoded twice", object(`{"type":"string"}`), `"{\"v\":\"x\"}"`, `{"v":"x"}`},
		{"reference followed", `{"type":"object","properties":{"v":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"number"}}}`, `{"v":"5"}`, `{"v":5}`},
		{"reference to itself ends", `{"type":"object","properties":{"v":{"$ref":"#"}}}`, `{"v":{"v":{"v":{}}}}`, `{"v":{"v":{"v":{}}}}`},
		{"list items", object(`{"type":"array","items":{"type":"number"}}`), `{"v":["1",2,true]}`, `{"v":[1,2,1]}`},
		{"items as a list, draft 7", object(`{"type":"array","items":[{"type":"number"}]}`), `{"v":["1"]}`, `{"v":[1]}`},
		{"a pattern that Go lacks accepts", object(`{"type":"string","pattern":"^(?!x)"}`), `{"v":"y"}`, `{"v":"y"}`},
		{"no file is read for a schema", object(`{"$ref":"file:///etc/hostname"}`), `{"v":1}`, refused},
		{"required as in draft 3", object(`{"type":"number","required":true}`), `{"v":"5"}`, `{"v":5}`},
		{"the rest of a wrong schema is checked", object(`{"type":"number","exclusiveMinimum":true,"minimum":3}`), `{"v":2}`, refused},
		{"a type that does not exist", object(`{"type":"any"}`), `{"v":[1]}`, `{"v":[1]}`},
		{"a property named as a keyword", `{"type":"object","properties":{"required":{"type":"number","enum":"x"}},"required":["required"]}`, `{"required":"5"}`, `{"required":5}`},
		{"an unknown dialect", `{"$schema":"https://example.com/own","type":"object","properties":{"v":{"type":"number"}}}`, `{"v":"x"}`, refused},
		{"a reference that leads nowhere", object(`{"$ref":"#/$defs/gone"}`), `{"v":1}`, `{"v":1}`},
		{"text behind the value", object(`{}`), `{"v":1} {}`, refused},
		{"no schema accepts", ``, `{"v":1}`, `{"v":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := &ToolSpec{Name: "t", Parameters: json.RawMessage(tt.schema)}
			got, err := validateArguments(spec, json.RawMessage(tt.args))
			if tt.want == refused {
				if err == nil {
					t.Fatalf("accepted as %s", got)
				}
				if !strings.HasPrefix(err.Error(), "Validation failed for tool \"t\":\n  - ") {
					t.Errorf("error text %q", err)
				}
				return
			}
			if err != nil || string(got) != tt.want {
				t.Fatalf("got %s, error %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestValidationErrorIsOfASaneSize(t *testing.T) {
	args, err := json.Marshal(map[string]string{"v": strings.Repeat("é", 100_000)})
	if err != nil {
		t.Fatal(err)
	}
	spec := &ToolSpec{Name: "t", Parameters: json.RawMessage(`{"type":"object","properties":{"v":{"type":"number"}}}`)}
	_, err = validateArguments(spec, args)
	if err == nil {
		t.Fatal("accepted")
	}
	if n := len(err.Error()); n > maxReceivedArgs+500 {
		t.Errorf("the error has %d bytes", n)
	}
}

func TestSchemaIsCompiledOnce(t *testing.T) {
	raw := json.RawMessage(`{"type":"object","title":"compiled once"}`)
	a, err := compileSchema(raw)
	if err != nil {
		t.Fatal(err)
	}
	b, err := compileSchema(append(json.RawMessage(nil), raw...))
	if err != nil || a != b {
		t.Fatalf("a second schema was compiled, error %v", err)
	}
}

// TestCoercionIsIdempotent: what validation accepted it accepts again, and
// changes no more.
func TestCoercionIsIdempotent(t *testing.T) {
	types := []string{"string", "number", "integer", "boolean", "null", "object", "array"}
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(types)
		schema := fmt.Sprintf(`{"type":"object","properties":{"a":{"type":%q},"b":{"anyOf":[{"type":%q},{"type":%q}]},"c":{"type":[%q,%q]}}}`,
			kind.Draw(t, "a"), kind.Draw(t, "b1"), kind.Draw(t, "b2"), "string", kind.Filter(func(s string) bool { return s != "string" }).Draw(t, "c"))
		value := rapid.SampledFrom([]string{`"x"`, `"5"`, `" 7.0 "`, `5`, `3.0`, `1e2`, `true`, `false`, `null`, `{}`, `[]`, `""`, `0`, `"true"`})
		args := fmt.Sprintf(`{"a":%s,"b":%s,"c":%s}`, value.Draw(t, "va"), value.Draw(t, "vb"), value.Draw(t, "vc"))
		spec := &ToolSpec{Name: "t", Parameters: json.RawMessage(schema)}
		once, err := validateArguments(spec, json.RawMessage(args))
		if err != nil {
			return
		}
		twice, err := validateArguments(spec, once)
		if err != nil || string(twice) != string(once) {
			t.Fatalf("%s with %s: %s, then %s, error %v", schema, args, once, twice, err)
		}
	})
}

func BenchmarkValidateArguments(b *testing.B) {
	spec := &ToolSpec{Name: "t", Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"]}`)}
	args := json.RawMessage(`{"path":"/etc/hostname","limit":"20"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := validateArguments(spec, args); err != nil {
			b.Fatal(err)
		}
	}
}
