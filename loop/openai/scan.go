package openai

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds the nesting of JSON that a provider may send.
const maxDepth = 1000

var errJSON = errors.New("not JSON")

// parser walks over JSON once, in place. After a fault err is set and every
// method returns at once, so that callers look at err at the end.
//
//	p := parser{b: data}
//	for ok := p.enter('{'); ok; ok = p.more('}') {
//		switch string(p.key()) {
//		case "id":
//			id = p.raw()
//		default:
//			p.skip()
//		}
//	}
type parser struct {
	b     []byte
	i     int
	depth int
	err   error
}

func (p *parser) fail() {
	if p.err == nil {
		p.err = errJSON
	}
	p.i = len(p.b)
}

func (p *parser) space() {
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

// peek is the first byte of the next value, 0 at the end.
func (p *parser) peek() byte {
	if p.i < len(p.b) && p.b[p.i] > ' ' {
		return p.b[p.i]
	}
	p.space()
	if p.i < len(p.b) {
		return p.b[p.i]
	}
	return 0
}

// enter goes into an object or array; false means that there is nothing in it.
func (p *parser) enter(open byte) bool {
	if p.peek() != open {
		p.fail()
		return false
	}
	p.i++
	if p.depth++; p.depth > maxDepth {
		p.fail()
		return false
	}
	if c := p.peek(); c == open+2 { // '{' and '}', '[' and ']'
		p.i++
		p.depth--
		return false
	}
	return true
}

// more goes on after a value; false means that the object or array is over.
func (p *parser) more(end byte) bool {
	if p.err != nil {
		return false
	}
	switch p.peek() {
	case ',':
		p.i++
		return true
	case end:
		p.i++
		p.depth--
		return false
	}
	p.fail()
	return false
}

// key is a field's name, unescaped.
func (p *parser) key() []byte {
	raw, plain := p.quoted()
	if p.peek() != ':' {
		p.fail()
		return nil
	}
	p.i++
	if plain {
		return raw
	}
	var t text
	t.add(raw)
	return []byte(t.finish())
}

// str is a string's inside, as it is written.
func (p *parser) str() []byte {
	raw, _ := p.quoted()
	return raw
}

// quoted is str; plain says that nothing in it is escaped.
func (p *parser) quoted() (raw []byte, plain bool) {
	if p.peek() != '"' {
		p.fail()
		return nil, true
	}
	start := p.i + 1
	// Most strings are short: a call for each would cost more than the bytes.
	near := p.b[start:min(len(p.b), start+24)]
	for j, c := range near {
		if c == '"' {
			p.i = start + j + 1
			return near[:j:j], true
		}
		if c == '\\' {
			break
		}
	}
	plain = true
	for i := start; i < len(p.b); plain = false {
		j := bytes.IndexByte(p.b[i:], '"')
		if j < 0 {
			break
		}
		k := bytes.IndexByte(p.b[i:i+j], '\\')
		if k < 0 {
			p.i = i + j + 1
			return p.b[start : i+j], plain
		}
		i += k + 2
	}
	p.fail()
	return nil, true
}

// raw is the next value as it is written; nil if there is none.
func (p *parser) raw() []byte {
	p.space()
	start := p.i
	p.skip()
	if p.err != nil {
		return nil
	}
	return p.b[start:p.i]
}

// skip passes over the next value.
func (p *parser) skip() {
	switch c := p.peek(); c {
	case '"':
		p.str()
	case '{':
		for ok := p.enter('{'); ok; ok = p.more('}') {
			p.str()
			if p.peek() != ':' {
				p.fail()
				return
			}
			p.i++
			p.skip()
		}
	case '[':
		for ok := p.enter('['); ok; ok = p.more(']') {
			p.skip()
		}
	case 't':
		p.literal("true")
	case 'f':
		p.literal("false")
	case 'n':
		p.literal("null")
	default:
		p.number()
	}
}

func (p *parser) literal(s string) {
	if len(p.b)-p.i < len(s) || string(p.b[p.i:p.i+len(s)]) != s {
		p.fail()
		return
	}
	p.i += len(s)
}

// number passes over what looks like a number; its grammar is checked only
// where it is used.
func (p *parser) number() {
	start := p.i
	for p.i < len(p.b) {
		switch c := p.b[p.i]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			p.i++
			continue
		}
		break
	}
	if p.i == start {
		p.fail()
	}
}

// done says whether the value that was read is all there is.
func (p *parser) done() bool { return p.err == nil && p.peek() == 0 && p.i >= len(p.b) }

// Values as parser.raw gives them.

func isNull(raw []byte) bool   { return len(raw) == 0 || raw[0] == 'n' }
func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }
func isArray(raw []byte) bool  { return len(raw) > 0 && raw[0] == '[' }

// inside is what is between a string's quotes, and whether raw is a string.
func inside(raw []byte) ([]byte, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return nil, false
	}
	return raw[1 : len(raw)-1], true
}

// str is a string value, "" if raw is something else.
func str(raw []byte) string {
	in, ok := inside(raw)
	if !ok {
		return ""
	}
	if bytes.IndexByte(in, '\\') < 0 && utf8.Valid(in) {
		return string(in)
	}
	var t text
	t.add(in)
	return t.finish()
}

// integer is a count; 0 if raw is no number.
func integer(raw []byte) int64 {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n
	}
	return int64(number(raw))
}

// number is a number; 0 if raw is none.
func number(raw []byte) float64 {
	if len(raw) > 0 && raw[0] == '"' {
		return 0
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != f || f > 1e18 || f < -1e18 {
		return 0
	}
	return f
}

// get is the value of a field of an object, nil if there is none.
func get(obj []byte, path ...string) []byte {
	for _, name := range path {
		obj = field(obj, name)
	}
	return obj
}

func field(obj []byte, name string) []byte {
	if !isObject(obj) {
		return nil
	}
	var found []byte
	p := parser{b: obj}
	for ok := p.enter('{'); ok; ok = p.more('}') {
		if string(p.key()) == name {
			found = p.raw() // the last one counts
		} else {
			p.skip()
		}
	}
	return found
}

// elements calls f with each element of an array, until it says false.
func elements(arr []byte, f func(raw []byte) bool) {
	if !isArray(arr) {
		return
	}
	p := parser{b: arr}
	for ok := p.enter('['); ok; ok = p.more(']') {
		raw := p.raw()
		if raw == nil || !f(raw) {
			return
		}
	}
}
