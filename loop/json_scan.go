package loop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// maxJSONDepth bounds the nesting of a value, as encoding/json does, so that
// hostile input cannot exhaust the stack.
const maxJSONDepth = 10000

// scanner reads one JSON value from front to back. The codec uses it instead
// of encoding/json because a log is decoded on every claim: it builds no
// maps, uses no reflection, and can hand out a value's bytes as they are.
//
// The first error sticks; afterwards every method returns its zero value, so
// callers check once, at the end.
type scanner struct {
	b     []byte
	i     int
	first bool // no member of the innermost open object or array was read yet
	depth int
	err   error
}

// fail records the first error.
func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// within prefixes an error that happened since mark said that there was none.
func (s *scanner) within(context string) {
	if s.err != nil {
		s.err = fmt.Errorf("%s: %w", context, s.err)
	}
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek returns the first byte of the next value, 0 at the end or after an error.
func (s *scanner) peek() byte {
	if s.err != nil {
		return 0
	}
	s.space()
	if s.i >= len(s.b) {
		return 0
	}
	return s.b[s.i]
}

func (s *scanner) unexpected(want string) {
	if s.err != nil {
		return
	}
	if s.i >= len(s.b) {
		s.fail("want %s, JSON ends", want)
		return
	}
	s.fail("want %s, got %q at offset %d", want, s.b[s.i], s.i)
}

// open enters an object ('{') or array ('[').
func (s *scanner) open(c byte) bool {
	if s.peek() != c {
		if c == '{' {
			s.unexpected("an object")
		} else {
			s.unexpected("an array")
		}
		return false
	}
	if s.depth++; s.depth > maxJSONDepth {
		s.fail("nested more than %d deep", maxJSONDepth)
		return false
	}
	s.i++
	s.first = true
	return true
}

// next reports whether another member or element follows, and leaves the
// object or array at its end, which is end.
func (s *scanner) next(end byte) bool {
	c := s.peek()
	if s.err != nil {
		return false
	}
	first := s.first
	s.first = false
	switch {
	case c == end:
		s.i++
		s.depth--
		return false
	case first:
		if s.i >= len(s.b) {
			s.unexpected("a value")
			return false
		}
		return true
	case c == ',':
		s.i++
		return true
	}
	s.unexpected("',' or '" + string(rune(end)) + "'")
	return false
}

// key reads a member's name and its colon. The result is valid until the
// input changes, or a copy if the name has escapes.
func (s *scanner) key() []byte {
	k := s.stringBytes()
	if s.peek() != ':' {
		s.unexpected("':'")
		return nil
	}
	s.i++
	return k
}

// rawString skips a string and returns what is between its quotes, and
// whether that is the string's value as it stands.
func (s *scanner) rawString() (body []byte, plain bool) {
	if s.peek() != '"' {
		s.unexpected("a string")
		return nil, false
	}
	start := s.i + 1
	plain = true
	for i := start; ; i++ {
		i += safePrefix(s.b[min(i, len(s.b)):])
		if i >= len(s.b) {
			break
		}
		switch c := s.b[i]; {
		case c == '"':
			s.i = i + 1
			return s.b[start:i], plain
		case c == '\\':
			plain = false
			i++
		case c < ' ':
			s.i = i
			s.fail("control character %q in a string at offset %d", c, i)
			return nil, false
		case c >= utf8.RuneSelf:
			// Only well-formed UTF-8 may be taken as it is.
			r, n := utf8.DecodeRune(s.b[i:])
			if r == utf8.RuneError && n == 1 {
				plain = false
			}
			i += n - 1
		}
	}
	s.i = len(s.b)
	s.fail("string has no end")
	return nil, false
}

// safePrefix counts the bytes at the front of b that stand for themselves.
func safePrefix(b []byte) int {
	for i, c := range b {
		if c >= utf8.RuneSelf || !safeByte[c] {
			return i
		}
	}
	return len(b)
}

// stringBytes reads a string; the result may point into the input.
func (s *scanner) stringBytes() []byte {
	body, plain := s.rawString()
	if s.err != nil || plain {
		return body
	}
	out, err := appendUnquoted(make([]byte, 0, len(body)), body)
	if err != nil {
		s.fail("%w", err)
		return nil
	}
	return out
}

// string reads a string, or null as "".
func (s *scanner) string() string {
	if s.null() {
		return ""
	}
	body, plain := s.rawString()
	if s.err != nil {
		return ""
	}
	if plain {
		return string(body)
	}
	out, err := appendUnquoted(make([]byte, 0, len(body)), body)
	if err != nil {
		s.fail("%w", err)
		return ""
	}
	return unsafe.String(unsafe.SliceData(out), len(out)) // out is not kept
}

// null skips a null and reports whether there was one.
func (s *scanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	return s.literal("null")
}

func (s *scanner) literal(word string) bool {
	if !bytes.HasPrefix(s.b[s.i:], unsafe.Slice(unsafe.StringData(word), len(word))) {
		s.unexpected("a value")
		return false
	}
	s.i += len(word)
	return true
}

// bool reads a boolean, or null as false.
func (s *scanner) bool() bool {
	switch s.peek() {
	case 't':
		return s.literal("true")
	case 'n':
		s.literal("null")
	case 'f':
		s.literal("false")
	default:
		s.unexpected("a boolean")
	}
	return false
}

// number skips a number and returns its text.
func (s *scanner) number() []byte {
	s.peek()
	start := s.i
	n, ok := numberEnd(s.b[min(start, len(s.b)):])
	if s.err != nil {
		return nil
	}
	if !ok {
		s.unexpected("a number")
		return nil
	}
	s.i += n
	return s.b[start:s.i]
}

// numberEnd returns the length of the JSON number that b begins with.
func numberEnd(b []byte) (int, bool) {
	i := 0
	digits := func() bool {
		start := i
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return 0, false
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return 0, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return 0, false
		}
	}
	return i, true
}

// float reads a number, or null as 0.
func (s *scanner) float() float64 {
	if s.null() {
		return 0
	}
	text := s.number()
	if s.err != nil {
		return 0
	}
	if len(text) == 1 { // most prices are 0
		return float64(text[0] - '0')
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		s.fail("number %s is out of range", text)
	}
	return f
}

// int reads a whole number, or null as 0.
func (s *scanner) int() int64 {
	if s.null() {
		return 0
	}
	text := s.number()
	if s.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err == nil {
		return n
	}
	// JavaScript writes large whole numbers as 1e21.
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
		s.fail("want a whole number, got %s", text)
		return 0
	}
	return int64(f)
}

// uint reads a whole number from 0, or null as 0.
func (s *scanner) uint() uint64 {
	if s.null() {
		return 0
	}
	text := s.number()
	if s.err != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		s.fail("want a whole number from 0, got %s", text)
	}
	return n
}

// skip passes over one value and checks that it is one.
func (s *scanner) skip() {
	switch c := s.peek(); {
	case c == '{':
		for s.open('{'); s.next('}'); {
			s.key()
			s.skip()
		}
	case c == '[':
		for s.open('['); s.next(']'); {
			s.skip()
		}
	case c == '"':
		if body, plain := s.rawString(); !plain && s.err == nil {
			if err := checkEscapes(body); err != nil {
				s.fail("%w", err)
			}
		}
	case c == 't':
		s.literal("true")
	case c == 'f':
		s.literal("false")
	case c == 'n':
		s.literal("null")
	case c == '-' || '0' <= c && c <= '9':
		s.number()
	default:
		s.unexpected("a value")
	}
}

// span passes over one value and returns its bytes, which point into the input.
func (s *scanner) span() []byte {
	s.peek()
	start := s.i
	s.skip()
	if s.err != nil {
		return nil
	}
	return s.b[start:s.i]
}

// raw reads one value and returns a copy of its bytes.
func (s *scanner) raw() json.RawMessage { return bytes.Clone(s.span()) }

// end checks that nothing but space follows.
func (s *scanner) end() {
	if s.peek(); s.err == nil && s.i < len(s.b) {
		s.fail("more data after the JSON value at offset %d", s.i)
	}
}

// validJSON reports whether b is exactly one JSON value.
func validJSON(b []byte) bool {
	s := scanner{b: b}
	s.skip()
	s.end()
	return s.err == nil
}
