package loop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

const (
	// maxReceivedArgs bounds the arguments that a validation error repeats
	// to the model, in bytes.
	maxReceivedArgs = 4096
	// maxSchemas bounds the compiled schemas that are kept.
	maxSchemas = 1024
	// maxExponent bounds a number's decimal exponent: the validator computes
	// exactly, so 1e999999999 would take all memory.
	maxExponent = 400
)

// argumentsError says why a call's arguments do not fit its tool. Its first
// line is pi's, word for word.
type argumentsError struct {
	tool     string
	problems []string
	received json.RawMessage
}

func (e *argumentsError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Validation failed for tool %q:", e.tool)
	for _, p := range e.problems {
		b.WriteString("\n  - " + p)
	}
	b.WriteString("\n\nReceived arguments:\n")
	var indented bytes.Buffer
	if json.Indent(&indented, e.received, "", "  ") != nil {
		indented.Reset()
		indented.Write(e.received)
	}
	if n := indented.Len(); n > maxReceivedArgs {
		b.WriteString(strings.ToValidUTF8(string(indented.Bytes()[:maxReceivedArgs]), ""))
		fmt.Fprintf(&b, "\n[%d more bytes]", n-maxReceivedArgs)
	} else {
		b.Write(indented.Bytes())
	}
	return b.String()
}

// validateArguments coerces a call's arguments as pi does and checks them
// against the tool's schema. What needs no change comes back byte for byte.
func validateArguments(spec *ToolSpec, args json.RawMessage) (json.RawMessage, error) {
	refuse := func(problems ...string) (json.RawMessage, error) {
		return nil, &argumentsError{tool: spec.Name, problems: problems, received: args}
	}
	value, err := decodeJSON(args)
	if err != nil {
		return refuse("root: must be JSON: " + err.Error())
	}
	// Some models encode the object a second time, as a string.
	if text, ok := value.(string); ok {
		if inner, err := decodeJSON([]byte(text)); err == nil {
			if _, ok := inner.(map[string]any); ok {
				value, args = inner, json.RawMessage(text)
			}
		}
	}
	if path := numberOutOfRange(value, nil); path != nil {
		return refuse(*path + ": number out of range")
	}
	schema, err := compileSchema(spec.Parameters)
	if err != nil {
		return refuse("root: the tool's own schema is invalid: " + err.Error())
	}
	c := coercer{schema: schema}
	coerced := c.coerce(value, schema.doc, 0)
	if problems := schema.check(coerced); len(problems) > 0 {
		return refuse(problems...)
	}
	if !c.changed {
		return args, nil
	}
	out, err := encodeJSON(coerced)
	if err != nil {
		return refuse("root: " + err.Error())
	}
	return out, nil
}

// decodeJSON reads one JSON value, keeping numbers as they are written.
func decodeJSON(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("text after the value")
	}
	return v, nil
}

func encodeJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// numberOutOfRange finds a number that no float64 holds; nil if there is none.
func numberOutOfRange(v any, path []string) *string {
	switch v := v.(type) {
	case json.Number:
		if _, err := v.Float64(); err != nil || hugeExponent(string(v)) {
			p := dotted(path)
			return &p
		}
	case []any:
		for i, item := range v {
			if p := numberOutOfRange(item, append(path, strconv.Itoa(i))); p != nil {
				return p
			}
		}
	case map[string]any:
		for k, item := range v {
			if p := numberOutOfRange(item, append(path, k)); p != nil {
				return p
			}
		}
	}
	return nil
}

func hugeExponent(number string) bool {
	i := strings.IndexAny(number, "eE")
	if i < 0 {
		return false
	}
	exp, err := strconv.Atoi(number[i+1:])
	return err != nil || exp > maxExponent || exp < -maxExponent
}

// dotted is pi's form of a path: "o.list.1", "root" for the whole.
func dotted(path []string) string {
	if len(path) == 0 {
		return "root"
	}
	return strings.Join(path, ".")
}

// argSchema is a tool's compiled schema. Sub-schemas, which coercion needs to
// try alternatives, are compiled when they are first asked for.
type argSchema struct {
	doc      any
	compiled *jsonschema.Schema // nil: accepts anything

	mu  sync.Mutex
	sub map[string]*jsonschema.Schema // by JSON; nil value: does not compile
}

// schemas keeps compiled schemas by their text. It is a cache only: dropping
// it costs time, nothing else.
var schemas struct {
	sync.Mutex
	m map[string]*argSchema
}

func compileSchema(raw json.RawMessage) (*argSchema, error) {
	schemas.Lock()
	defer schemas.Unlock()
	if s, ok := schemas.m[string(raw)]; ok {
		return s, nil
	}
	s, err := newArgSchema(raw)
	if err != nil {
		return nil, err
	}
	if schemas.m == nil || len(schemas.m) >= maxSchemas {
		schemas.m = map[string]*argSchema{}
	}
	schemas.m[string(raw)] = s
	return s, nil
}

func newArgSchema(raw json.RawMessage) (*argSchema, error) {
	s := &argSchema{sub: map[string]*jsonschema.Schema{}}
	if len(bytes.TrimSpace(raw)) == 0 {
		return s, nil
	}
	doc, err := decodeJSON(raw)
	if err != nil {
		return nil, err
	}
	s.doc = doc
	if s.compiled, err = compileDoc(doc); err == nil {
		return s, nil
	}
	s.doc = lenientSchema(s, doc)
	if compiled, again := compileDoc(s.doc); again == nil {
		s.compiled, err = compiled, nil
	}
	return s, err
}

// compileDoc compiles by the newest draft, or by draft 7 where a schema is
// valid only there (items as a list).
func compileDoc(doc any) (*jsonschema.Schema, error) {
	var first error
	for _, draft := range []*jsonschema.Draft{jsonschema.Draft2020, jsonschema.Draft7} {
		c := jsonschema.NewCompiler()
		c.DefaultDraft(draft)
		c.AssertFormat()
		c.UseLoader(noLoader{})
		c.UseRegexpEngine(lenientRegexp)
		err := c.AddResource(schemaURL, doc)
		if err == nil {
			var s *jsonschema.Schema
			if s, err = c.Compile(schemaURL); err == nil {
				return s, nil
			}
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

const schemaURL = "tool:parameters"

// noLoader keeps a schema from reading files or the network.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to %s: only references within the schema are followed", url)
}

// lenientRegexp accepts any string for the patterns that Go's syntax lacks,
// such as lookahead: the model should not be refused for that.
func lenientRegexp(pattern string) (jsonschema.Regexp, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return anyMatch(pattern), nil
	}
	return re, nil
}

type anyMatch string

func (a anyMatch) String() string        { return string(a) }
func (anyMatch) MatchString(string) bool { return true }

// check lists what is wrong with a value; nothing means that it is valid.
func (s *argSchema) check(v any) []string {
	if s.compiled == nil {
		return nil
	}
	err := s.compiled.Validate(v)
	if err == nil {
		return nil
	}
	ve, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []string{"root: " + err.Error()}
	}
	var out []string
	describe(ve, &out)
	return out
}

// accepts says whether a sub-schema takes the value as it is. One that does
// not compile takes nothing.
func (s *argSchema) accepts(sub, v any) bool {
	compiled := s.subSchema(sub)
	return compiled != nil && compiled.Validate(v) == nil
}

func (s *argSchema) subSchema(sub any) *jsonschema.Schema {
	key, err := json.Marshal(sub)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	compiled, ok := s.sub[string(key)]
	if !ok {
		compiled, _ = compileDoc(s.withDefinitions(sub))
		s.sub[string(key)] = compiled
	}
	return compiled
}

// withDefinitions gives a sub-schema the definitions of the whole, so that its
// references hold.
func (s *argSchema) withDefinitions(sub any) any {
	root, _ := s.doc.(map[string]any)
	obj, ok := sub.(map[string]any)
	if !ok {
		return sub
	}
	out := make(map[string]any, len(obj)+2)
	for _, k := range []string{"$defs", "definitions", "$schema"} {
		if v, ok := root[k]; ok {
			out[k] = v
		}
	}
	for k, v := range obj {
		out[k] = v
	}
	return out
}

// describe writes one line for each leaf of a validation error, and one for a
// failed alternative after its branches.
func describe(e *jsonschema.ValidationError, out *[]string) {
	for _, cause := range e.Causes {
		describe(cause, out)
	}
	path := dotted(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.AnyOf:
		*out = append(*out, path+": must match a schema in anyOf")
	case *kind.OneOf:
		*out = append(*out, path+": must match exactly one schema in oneOf")
	case *kind.Required:
		*out = append(*out, path+": must have required properties "+strings.Join(k.Missing, ", "))
	case *kind.Type:
		*out = append(*out, path+": must be "+strings.Join(k.Want, " or "))
	default:
		if len(e.Causes) > 0 {
			return
		}
		// The library's words, without its own form of the path.
		leaf := jsonschema.ValidationError{ErrorKind: e.ErrorKind}
		_, words, ok := strings.Cut(leaf.Error(), ": ")
		if !ok {
			words = leaf.Error()
		}
		*out = append(*out, path+": "+words)
	}
}
