package loop

import (
	"encoding/json"
)

// ArgumentsPreview makes JSON of tool arguments while they are streamed: what
// was read so far, with the missing ends made up, as pi does. It is for
// showing only; a call is run with whole JSON or not at all. The zero value is
// ready.
//
// Raw control characters in strings and escapes that JSON does not know are
// repaired; at any other fault the preview stays what it was. Each piece
// costs its own length, not that of the whole.
type ArgumentsPreview struct {
	out     []byte // committed: valid JSON once the open brackets are closed
	pending []byte // read, but not yet to be shown: a key, a number, an escape
	stack   []byte // open brackets
	state   previewState
	bad     bool // not JSON from here on
}

type previewState uint8

const (
	previewValue  previewState = iota // a value may begin
	previewFirst                      // a value or ']' may follow
	previewKey                        // a key or '}' may follow
	previewName                       // in a key
	previewColon                      // ':' must follow
	previewString                     // in a string value
	previewScalar                     // in a number or a literal
	previewAfter                      // ',' or an end must follow
	previewDone                       // the value is whole
)

// Append reads a piece of the arguments.
func (p *ArgumentsPreview) Append(delta string) {
	for i := 0; i < len(delta) && !p.bad; i++ {
		p.read(delta[i])
	}
}

// Whole reports whether the pieces so far are one whole JSON value, perhaps
// after repairs of strings.
func (p *ArgumentsPreview) Whole() bool {
	return !p.bad && (p.state == previewDone || p.state == previewScalar && len(p.stack) == 0 && validJSON(p.pending))
}

// JSON returns the preview, "{}" if there is nothing to show. It is valid
// until the next call.
func (p *ArgumentsPreview) JSON() json.RawMessage {
	n := len(p.out)
	b := p.out
	if !p.bad || p.state != previewScalar {
		b = p.appendTail(b)
	}
	for i := len(p.stack) - 1; i >= 0; i-- {
		b = append(b, p.stack[i]+2) // '{' and '[' are two below '}' and ']'
	}
	p.out = b[:n] // keeps the room
	if len(b) == 0 {
		return json.RawMessage("{}")
	}
	return b
}

// appendTail closes an open string or shows a scalar as far as it makes sense.
func (p *ArgumentsPreview) appendTail(b []byte) []byte {
	switch p.state {
	case previewString:
		return append(b, '"')
	case previewScalar:
		start := scalarStart(p.pending)
		for _, word := range [...]string{"true", "false", "null"} {
			if got := p.pending[start:]; len(got) <= len(word) && string(got) == word[:len(got)] {
				return append(append(b, p.pending[:start]...), word...)
			}
		}
		if validJSON(p.pending[start:]) {
			return append(b, p.pending...)
		}
	}
	return b
}

// scalarStart returns where the scalar begins in pending, which may have a
// comma, a key and a colon before it.
func scalarStart(pending []byte) int {
	for i := len(pending) - 1; i >= 0; i-- {
		if c := pending[i]; c == ':' || c == ',' {
			return i + 1
		}
	}
	return 0
}

func (p *ArgumentsPreview) commit(c ...byte) {
	p.out = append(append(p.out, p.pending...), c...)
	p.pending = p.pending[:0]
}

func (p *ArgumentsPreview) read(c byte) {
	switch p.state {
	case previewName, previewString:
		p.readString(c)
		return
	case previewScalar:
		if scalarByte(c) {
			p.pending = append(p.pending, c)
			return
		}
		if !validJSON(p.pending[scalarStart(p.pending):]) {
			p.bad = true
			return
		}
		p.commit()
		p.ended()
	}
	switch c {
	case ' ', '\t', '\n', '\r':
		return
	}
	p.readToken(c)
}

func (p *ArgumentsPreview) readToken(c byte) {
	switch p.state {
	case previewDone: // whatever follows the value does not count for the preview
		p.bad = true
	case previewColon:
		p.expect(c == ':', previewValue, c)
	case previewKey:
		if c == '}' {
			p.close(c)
			return
		}
		p.expect(c == '"', previewName, c)
	case previewAfter:
		switch {
		case c == ',' && p.stack[len(p.stack)-1] == '{':
			p.pending = append(p.pending, c)
			p.state = previewKey
		case c == ',':
			p.pending = append(p.pending, c)
			p.state = previewValue
		default:
			p.close(c)
		}
	case previewFirst:
		if c == ']' {
			p.close(c)
			return
		}
		p.value(c)
	default:
		p.value(c)
	}
}

func (p *ArgumentsPreview) expect(ok bool, next previewState, c byte) {
	if p.bad = !ok; ok {
		p.pending = append(p.pending, c)
		p.state = next
	}
}

func (p *ArgumentsPreview) value(c byte) {
	switch {
	case c == '{' || c == '[':
		if len(p.stack) >= maxJSONDepth {
			p.bad = true
			return
		}
		p.commit(c)
		p.stack = append(p.stack, c)
		p.state = previewKey
		if c == '[' {
			p.state = previewFirst
		}
	case c == '"':
		p.commit(c)
		p.state = previewString
	case scalarByte(c):
		p.pending = append(p.pending, c)
		p.state = previewScalar
	default:
		p.bad = true
	}
}

func (p *ArgumentsPreview) close(c byte) {
	n := len(p.stack)
	if n == 0 || p.stack[n-1]+2 != c {
		p.bad = true
		return
	}
	p.pending = p.pending[:0] // a comma before the end is forgiven
	p.stack = p.stack[:n-1]
	p.commit(c)
	p.ended()
}

// ended follows a whole value.
func (p *ArgumentsPreview) ended() {
	p.state = previewAfter
	if len(p.stack) == 0 {
		p.state = previewDone
	}
}

// readString reads a byte of a string. A key waits in pending; a value is
// committed at once, but for an escape that is not whole yet.
func (p *ArgumentsPreview) readString(c byte) {
	if start := p.openEscape(); start >= 0 {
		p.readEscape(c, start)
		return
	}
	switch {
	case c == '\\':
		p.pending = append(p.pending, c)
	case c == '"' && p.state == previewName:
		p.pending = append(p.pending, c)
		p.state = previewColon
	case c == '"':
		p.commit(c)
		p.ended()
	case c < ' ':
		p.pending = appendEscape(p.pending, c)
		p.endEscape()
	default:
		p.pending = append(p.pending, c)
		p.endEscape()
	}
}

// endEscape commits what is pending of a string value.
func (p *ArgumentsPreview) endEscape() {
	if p.state == previewString {
		p.commit()
	}
}

// openEscape returns where an unfinished escape begins in pending, or -1.
func (p *ArgumentsPreview) openEscape() int {
	b := p.pending
	if p.state == previewString {
		if len(b) > 0 {
			return 0
		}
		return -1
	}
	// In a key whole escapes stay in pending: look at its last bytes only.
	for back := 1; back <= 5 && back <= len(b); back++ {
		i := len(b) - back
		if b[i] != '\\' {
			continue
		}
		slashes := 0
		for j := i; j >= 0 && b[j] == '\\'; j-- {
			slashes++
		}
		open := slashes%2 == 1 && (back == 1 || b[i+1] == 'u')
		if !open {
			return -1
		}
		return i
	}
	return -1
}

func (p *ArgumentsPreview) readEscape(c byte, start int) {
	n := len(p.pending) - start // bytes of the escape so far
	switch {
	case n == 1 && c == 'u':
		p.pending = append(p.pending, c)
	case n == 1 && unescape[c] != 0:
		p.pending = append(p.pending, c)
		p.endEscape()
	case n > 1 && isHex(c):
		p.pending = append(p.pending, c)
		if n == 5 {
			p.endEscape()
		}
	default:
		p.repairEscape(start)
		p.endEscape()
		p.readString(c)
	}
}

// repairEscape takes the backslash of a bad escape literally.
func (p *ArgumentsPreview) repairEscape(start int) {
	p.pending = append(p.pending, 0)
	copy(p.pending[start+1:], p.pending[start:])
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func scalarByte(c byte) bool {
	return '0' <= c && c <= '9' || c == '-' || c == '+' || c == '.' || 'a' <= c && c <= 'z' || c == 'E'
}

func (p *ArgumentsPreview) clone() *ArgumentsPreview {
	c := *p
	c.out = append([]byte(nil), p.out...)
	c.pending = append([]byte(nil), p.pending...)
	c.stack = append([]byte(nil), p.stack...)
	return &c
}
