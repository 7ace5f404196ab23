package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// arguments judges the text of a tool call's arguments when the answer is
// over. The JSON is what can be shown and sent back, an object if nothing
// could be read; incomplete says why the call must not be run, "" if it may.
//
// Raw control characters, unknown escapes, comments, a trailing comma and
// surplus closing brackets are repaired: there the meaning is certain. What is
// missing is never made up, because {"n": 12 may have been 1200.
func arguments(s string) (args json.RawMessage, incomplete string) {
	s = strings.TrimSpace(s)
	if s == "" {
		return json.RawMessage("{}"), ""
	}
	a := argScan{s: s}
	st := a.value(0)
	if st == whole {
		st = a.rest()
	}
	if st == whole {
		args = json.RawMessage(s)
		if a.repaired {
			args = json.RawMessage(a.out)
		}
		if args = unwrap(args); !isObject(args) {
			// Servers take only an object back.
			return json.RawMessage("{}"), "the arguments are not an object: " + shown(string(oneLine(args)))
		}
		return oneLine(args), ""
	}
	if len(a.out) > 0 {
		args = oneLine(json.RawMessage(a.out))
	}
	if !isObject(args) || !json.Valid(args) {
		args = json.RawMessage("{}")
	}
	if st == cut {
		return args, fmt.Sprintf("the arguments end in the middle, after %d bytes", len(s))
	}
	return args, "the arguments are not JSON: " + a.why
}

// shown is a text as an error quotes it.
func shown(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// preview is what can be read of arguments that are still coming, an object.
func preview(s string) json.RawMessage {
	args, _ := arguments(s)
	if !isObject(args) {
		return json.RawMessage("{}")
	}
	return args
}

// oneLine compacts arguments that have line breaks. A log has one event a
// line, so they would come back from it compacted: this way a request has the
// same bytes before and after a restart.
func oneLine(args json.RawMessage) json.RawMessage {
	if !bytes.ContainsAny(args, "\n\r") {
		return args
	}
	var b bytes.Buffer
	if err := json.Compact(&b, args); err != nil {
		return args // not whole: it is replaced by an empty object
	}
	return b.Bytes()
}

// unwrap opens an object that was encoded twice.
func unwrap(args json.RawMessage) json.RawMessage {
	if len(args) < 4 || args[0] != '"' {
		return args
	}
	if inner := strings.TrimSpace(str(args)); strings.HasPrefix(inner, "{") && json.Valid([]byte(inner)) {
		return json.RawMessage(inner)
	}
	return args
}

type state int

const (
	whole state = iota
	cut         // the text ends before the value does
	bad         // the text is no JSON
)

// argScan copies the JSON at s to out and repairs it on the way. What it has
// written is JSON whatever the state.
type argScan struct {
	s        string
	i        int
	out      []byte
	repaired bool
	why      string
}

func (a *argScan) bad(format string, args ...any) state {
	if a.why == "" {
		a.why = fmt.Sprintf(format, args...)
	}
	return bad
}

func (a *argScan) unexpected() state {
	r, _ := utf8.DecodeRuneInString(a.s[a.i:])
	return a.bad("unexpected %q at byte %d", r, a.i)
}

// space passes over white space and comments; false means the end of the text.
func (a *argScan) space() bool {
	for a.i < len(a.s) {
		rest := a.s[a.i:]
		switch {
		case rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\n' || rest[0] == '\r':
			a.i++
		case strings.HasPrefix(rest, "/*"):
			a.comment(rest, "*/")
		case strings.HasPrefix(rest, "//"):
			a.comment(rest, "\n")
		default:
			return true
		}
	}
	return false
}

func (a *argScan) comment(rest, end string) {
	a.repaired = true
	if j := strings.Index(rest[2:], end); j >= 0 {
		a.i += 2 + j + len(end)
		return
	}
	a.i = len(a.s)
}

// rest allows nothing after the value but closing brackets.
func (a *argScan) rest() state {
	for a.space() {
		if c := a.s[a.i]; c != '}' && c != ']' {
			return a.unexpected()
		}
		a.repaired = true
		a.i++
	}
	return whole
}

func (a *argScan) value(depth int) state {
	if !a.space() {
		return cut
	}
	switch c := a.s[a.i]; {
	case c == '{', c == '[':
		if depth >= maxDepth {
			return a.bad("nested more than %d deep", maxDepth)
		}
		return a.container(c, depth+1)
	case c == '"':
		return a.str()
	case c == 't':
		return a.literal("true")
	case c == 'f':
		return a.literal("false")
	case c == 'n':
		return a.literal("null")
	case c == '-' || c >= '0' && c <= '9':
		return a.number()
	}
	return a.unexpected()
}

// container copies an object or array, and closes it if it is cut.
func (a *argScan) container(open byte, depth int) state {
	end := open + 2
	a.i++
	a.out = append(a.out, open)
	st := a.items(open, end, depth)
	a.out = append(a.out, end)
	return st
}

func (a *argScan) items(open, end byte, depth int) state {
	for n := 0; ; n++ {
		if !a.space() {
			return cut
		}
		if a.s[a.i] == end {
			a.i++
			return whole
		}
		if n > 0 {
			if a.s[a.i] != ',' {
				return a.unexpected()
			}
			a.i++
			if !a.space() {
				return cut
			}
			if a.s[a.i] == end {
				a.repaired = true // a trailing comma
				a.i++
				return whole
			}
		}
		if st := a.item(open, n, depth); st != whole {
			return st
		}
	}
}

// item copies one field or element, or none of it if its value has nothing to
// show.
func (a *argScan) item(open byte, n, depth int) state {
	mark := len(a.out)
	if n > 0 {
		a.out = append(a.out, ',')
	}
	if open == '{' {
		if st := a.name(); st != whole {
			a.out = a.out[:mark]
			return st
		}
	}
	before := len(a.out)
	st := a.value(depth)
	if len(a.out) == before {
		a.out = a.out[:mark]
	}
	return st
}

func (a *argScan) name() state {
	if a.s[a.i] != '"' {
		return a.unexpected()
	}
	if st := a.str(); st != whole {
		return st
	}
	if !a.space() {
		return cut
	}
	if a.s[a.i] != ':' {
		return a.unexpected()
	}
	a.i++
	a.out = append(a.out, ':')
	return whole
}

func (a *argScan) literal(word string) state {
	rest := a.s[a.i:]
	switch {
	case strings.HasPrefix(rest, word):
		a.i += len(word)
		a.out = append(a.out, word...)
		return whole
	case strings.HasPrefix(word, rest):
		a.i = len(a.s)
		a.out = append(a.out, word...)
		return cut
	}
	return a.unexpected()
}

func (a *argScan) number() state {
	start := a.i
	for a.i < len(a.s) && strings.IndexByte("+-.0123456789eE", a.s[a.i]) >= 0 {
		a.i++
	}
	num := a.s[start:a.i]
	if json.Valid([]byte(num)) {
		if _, err := strconv.ParseFloat(num, 64); err != nil {
			return a.bad("the number at byte %d is out of range", start)
		}
		a.out = append(a.out, num...)
		return whole
	}
	if a.i < len(a.s) {
		a.i = start
		return a.unexpected()
	}
	for num != "" && !json.Valid([]byte(num)) {
		num = num[:len(num)-1]
	}
	a.out = append(a.out, num...)
	return cut
}

func (a *argScan) str() state {
	a.i++
	a.out = append(a.out, '"')
	st := a.chars()
	a.out = append(a.out, '"')
	return st
}

func (a *argScan) chars() state {
	for a.i < len(a.s) {
		switch c := a.s[a.i]; {
		case c == '"':
			a.i++
			return whole
		case c == '\\':
			if st := a.escape(); st != whole {
				return st
			}
		case c < 0x20:
			a.repaired = true
			a.out = appendControl(a.out, c)
			a.i++
		default:
			a.out = append(a.out, c)
			a.i++
		}
	}
	return cut
}

// escape copies an escape; the backslash of an unknown one is meant as such.
func (a *argScan) escape() state {
	rest := a.s[a.i:]
	if len(rest) < 2 {
		a.i = len(a.s)
		return cut
	}
	n := 2
	switch rest[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		if len(rest) < 6 && strings.Trim(rest[2:], "0123456789abcdefABCDEF") == "" {
			a.i = len(a.s)
			return cut
		}
		if _, ok := hex4([]byte(rest[2:min(len(rest), 6)])); ok {
			n = 6
			break
		}
		fallthrough
	default:
		a.repaired = true
		a.out = append(a.out, '\\', '\\')
		a.i++
		return whole
	}
	a.out = append(a.out, rest[:n]...)
	a.i += n
	return whole
}
