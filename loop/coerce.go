package loop

import (
	"encoding/json"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxCoerceDepth ends the descent into a schema that refers to itself.
const maxCoerceDepth = 64

// coercer brings arguments nearer to their schema before validation: "5" for
// a number becomes 5, true for a string "true". These are pi's rules, but a
// value other than a string that an alternative accepts as it is stays, null
// for an optional key means that the key is absent, and no value is made up
// for a required one.
type coercer struct {
	schema  *argSchema
	changed bool
}

// coerce gives the value that validation will see. Objects and lists are
// changed in place.
func (c *coercer) coerce(v, schema any, depth int) any {
	s, ok := schema.(map[string]any)
	if !ok || depth > maxCoerceDepth {
		return v
	}
	depth++
	if ref, ok := s["$ref"].(string); ok {
		v = c.coerce(v, c.resolve(ref), depth)
	}
	for _, sub := range list(s["allOf"]) {
		v = c.coerce(v, sub, depth)
	}
	v = c.alternatives(v, list(s["anyOf"]), depth)
	v = c.alternatives(v, list(s["oneOf"]), depth)
	types := typesOf(s)
	v = c.primitive(v, types)
	switch v := v.(type) {
	case map[string]any:
		if slices.Contains(types, "object") {
			c.object(v, s, depth)
		}
	case []any:
		if slices.Contains(types, "array") {
			c.array(v, s, depth)
		}
	}
	return v
}

// resolve follows a reference within the schema; nil if it leads nowhere.
func (c *coercer) resolve(ref string) any {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	at := c.schema.doc
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if part == "" {
			continue
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch v := at.(type) {
		case map[string]any:
			at = v[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			at = v[i]
		default:
			return nil
		}
	}
	return at
}

// alternatives takes the first branch that accepts the value as it is, or
// else the first that accepts it coerced. A string says little about what was
// meant, for some models write everything as one: it goes to the first branch
// that accepts it coerced, so that "5" is a number where number comes first.
func (c *coercer) alternatives(v any, branches []any, depth int) any {
	if _, ok := v.(string); !ok {
		for _, b := range branches {
			if c.schema.accepts(b, v) {
				return c.coerce(v, b, depth)
			}
		}
	}
	for _, b := range branches {
		try := coercer{schema: c.schema}
		candidate := try.coerce(cloneJSON(v), b, depth)
		if c.schema.accepts(b, candidate) {
			c.changed = c.changed || try.changed
			return candidate
		}
	}
	return v
}

func (c *coercer) object(v, schema map[string]any, depth int) {
	properties, _ := schema["properties"].(map[string]any)
	required := list(schema["required"])
	for key, sub := range properties {
		item, ok := v[key]
		if !ok {
			continue
		}
		if item == nil && !slices.Contains(required, any(key)) && !c.schema.accepts(sub, nil) {
			delete(v, key)
			c.changed = true
			continue
		}
		v[key] = c.coerce(item, sub, depth)
	}
	extra, ok := schema["additionalProperties"].(map[string]any)
	if !ok {
		return
	}
	for key, item := range v {
		if _, ok := properties[key]; !ok {
			v[key] = c.coerce(item, extra, depth)
		}
	}
}

func (c *coercer) array(v []any, schema map[string]any, depth int) {
	items := schema["items"]
	tuple, ok := items.([]any) // prefixItems are not coerced, as in pi
	for i := range v {
		switch {
		case i < len(tuple):
			v[i] = c.coerce(v[i], tuple[i], depth)
		case !ok:
			v[i] = c.coerce(v[i], items, depth)
		}
	}
}

// primitive changes a value that has none of the types to the first of them
// that it can become.
func (c *coercer) primitive(v any, types []string) any {
	if slices.ContainsFunc(types, func(t string) bool { return hasType(v, t) }) {
		if !slices.Contains(types, "integer") {
			return v
		}
		return c.plainInteger(v)
	}
	for _, t := range types {
		if out, ok := convert(v, t); ok {
			c.changed = true
			return out
		}
	}
	return v
}

// plainInteger writes 1e3 and 3.0 as integers, which tools decode into one.
func (c *coercer) plainInteger(v any) any {
	n, ok := v.(json.Number)
	if !ok || !strings.ContainsAny(string(n), ".eE") {
		return v
	}
	if plain, ok := integerText(n); ok {
		c.changed = true
		return plain
	}
	return v
}

// integerText writes a whole number without point and exponent; with either it
// must be below 2^53, where float64 is exact.
func integerText(n json.Number) (json.Number, bool) {
	if !strings.ContainsAny(string(n), ".eE") {
		return n, true
	}
	f, err := n.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return "", false
	}
	return json.Number(strconv.FormatInt(int64(f), 10)), true
}

func hasType(v any, t string) bool {
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	case json.Number:
		if t == "integer" {
			f, err := v.Float64()
			return err == nil && f == math.Trunc(f)
		}
		return t == "number"
	}
	return false
}

// decimal is what a string must look like to become a number.
var decimal = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$`)

// convert changes a primitive into one of type t, if that loses nothing.
func convert(v any, t string) (any, bool) {
	switch t {
	case "number", "integer":
		return toNumber(v, t)
	case "boolean":
		switch {
		case v == "true", isNumber(v, 1):
			return true, true
		case v == "false", isNumber(v, 0):
			return false, true
		}
	case "string":
		switch v := v.(type) {
		case bool:
			return strconv.FormatBool(v), true
		case json.Number:
			return numberText(v), true
		}
	case "null":
		if v == "" || v == false || isNumber(v, 0) {
			return nil, true
		}
	}
	return nil, false
}

func isNumber(v any, want float64) bool {
	n, ok := v.(json.Number)
	if !ok {
		return false
	}
	f, err := n.Float64()
	return err == nil && f == want
}

func toNumber(v any, t string) (any, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return json.Number("1"), true
		}
		return json.Number("0"), true
	case string:
		text := strings.TrimSpace(v)
		if !decimal.MatchString(text) {
			return nil, false
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, false
		}
		n := numberOf(text, f)
		if t != "integer" {
			return n, true
		}
		return integerText(n)
	}
	return nil, false
}

// numberOf keeps the digits of a string that is JSON's own spelling of a
// number, and writes any other as JSON does.
func numberOf(text string, f float64) json.Number {
	if json.Valid([]byte(text)) {
		return json.Number(text)
	}
	b, err := json.Marshal(f)
	if err != nil {
		return json.Number(text)
	}
	return json.Number(b)
}

// numberText is the string of a number: an integer keeps all its digits (it
// may be an id beyond 2^53), others are spelled as JavaScript does.
func numberText(n json.Number) string {
	if s := string(n); !strings.ContainsAny(s, ".eE") && s != "-0" {
		return s
	}
	f, err := n.Float64()
	if err != nil {
		return string(n)
	}
	if f == 0 {
		return "0"
	}
	b, err := json.Marshal(f)
	if err != nil {
		return string(n)
	}
	return string(b)
}

func typesOf(schema map[string]any) []string {
	switch t := schema["type"].(type) {
	case string:
		return []string{t}
	case []any:
		out := make([]string, 0, len(t))
		for _, v := range t {
			if s, ok := v.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func cloneJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for k, item := range out {
			out[k] = cloneJSON(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = cloneJSON(item)
		}
		return out
	}
	return v
}
