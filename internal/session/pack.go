package session

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/pi-worker/pi-worker/loop"
)

// Deltas of one block that wait for the append before them travel as one line:
// a message_update whose delta is all of theirs together, with "sizes", which
// has a digit of base 36 for each of them, its length in bytes. Who doesn't
// know it reads one longer delta; readers of this package get each event back.
// A delta alone stays as it is.

const (
	maxPacked  = 35 // bytes of a delta: one digit
	lineEnd    = `"}}`
	sizesBegin = `","sizes":"`
	updateHead = `{"type":"message_update",`
	digits     = "0123456789abcdefghijklmnopqrstuvwxyz"
)

var deltaBegin = []byte(`"delta":"`)

// pack is the line at a segment's end that takes further deltas.
type pack struct {
	start int    // of the line
	head  int    // bytes of the line before its delta
	sizes []byte // a digit for each delta in it, empty: no line is open
}

// packable says how much of the event's line comes before its delta; 0 if
// nothing can be packed with it.
func packable(ev loop.Event, line []byte) (head int) {
	u, ok := ev.(*loop.MessageUpdate)
	if !ok || len(u.Update.Delta) > maxPacked || !utf8.ValidString(u.Update.Delta) ||
		!bytes.HasSuffix(line, []byte(lineEnd)) {
		return 0
	}
	switch u.Update.Type {
	case loop.UpdateTextDelta, loop.UpdateThinkingDelta, loop.UpdateToolCallDelta:
	default:
		return 0
	}
	i := bytes.Index(line, deltaBegin)
	if i < 0 || !bytes.HasPrefix(line, []byte(updateHead)) {
		return 0
	}
	head = i + len(deltaBegin)
	if hasField(line[head:]) {
		return 0
	}
	return head
}

// hasField says that something follows the string that begins here.
func hasField(s []byte) bool {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return string(s[i:]) != lineEnd
		}
	}
	return true
}

// reserve is by how much sealing the open line will make the segment grow.
func (p *pack) reserve() int {
	if len(p.sizes) == 0 {
		return 0
	}
	return len(sizesBegin) + len(p.sizes) + 1
}

// join moves the delta of the line that begins at start, the last one, into
// the open line before it, if it belongs there. Otherwise it seals the open
// line, and the last one is open if it can be.
func (seg *segment) join(ev loop.Event, start int) {
	p := &seg.pack
	line := seg.buf[start:]
	head := packable(ev, line)
	if head == 0 {
		seg.seal(start - 1)
		return
	}
	size := digits[len(ev.(*loop.MessageUpdate).Update.Delta)]
	if len(p.sizes) > 0 && p.head == head && bytes.Equal(seg.buf[p.start:p.start+head], line[:head]) {
		at := start - 1 - len(lineEnd) // over the end of the line before, and the newline
		seg.buf = seg.buf[:at+copy(seg.buf[at:], line[head:])]
		p.sizes = append(p.sizes, size)
		return
	}
	seg.seal(start - 1)
	p.start, p.head, p.sizes = len(seg.buf)-len(line), head, append(p.sizes[:0], size)
}

// seal writes the sizes into the open line, which ends before end.
func (seg *segment) seal(end int) {
	p := &seg.pack
	if len(p.sizes) > 1 {
		at, before, more := end-len(lineEnd), len(seg.buf), len(sizesBegin)+len(p.sizes)
		seg.buf = slices.Grow(seg.buf, more)[:before+more]
		copy(seg.buf[at+more:], seg.buf[at:before])
		copy(seg.buf[at:], sizesBegin)
		copy(seg.buf[at+len(sizesBegin):], p.sizes)
	}
	p.sizes = p.sizes[:0]
}

// unpack appends the lines that were packed into this one; itself, if none
// were.
func unpack(lines [][]byte, line []byte) ([][]byte, error) {
	mark := bytes.LastIndex(line, []byte(sizesBegin))
	if mark < 0 || !bytes.HasPrefix(line, []byte(updateHead)) || !bytes.HasSuffix(line, []byte(`"`+lineEnd[1:])) {
		return append(lines, line), nil
	}
	begin := bytes.Index(line[:mark], deltaBegin)
	if begin < 0 {
		return append(lines, line), nil
	}
	begin += len(deltaBegin)
	head, rest := line[:begin], line[begin:mark]
	for _, digit := range line[mark+len(sizesBegin) : len(line)-len(lineEnd)] {
		size := bytes.IndexByte([]byte(digits), digit)
		n, ok := escaped(rest, size)
		if !ok {
			return nil, errSizes
		}
		one := make([]byte, 0, len(head)+n+len(lineEnd))
		one = append(append(append(one, head...), rest[:n]...), lineEnd...)
		lines, rest = append(lines, one), rest[n:]
	}
	if len(rest) > 0 {
		return nil, errSizes
	}
	return lines, nil
}

var errSizes = errors.New("sizes of a message_update do not fit its delta")

// escaped says how many bytes of a JSON string's inside stand for size bytes
// of text.
func escaped(s []byte, size int) (n int, ok bool) {
	for size > 0 {
		switch {
		case n >= len(s):
			return 0, false
		case s[n] != '\\':
			n, size = n+1, size-1
		case n+1 < len(s) && s[n+1] != 'u':
			n, size = n+2, size-1
		default:
			r, width := unicodeEscape(s[n:])
			if width == 0 {
				return 0, false
			}
			n, size = n+width, size-utf8.RuneLen(r)
		}
	}
	return n, size == 0
}

// unicodeEscape reads \uXXXX, or two of them that are one character.
func unicodeEscape(s []byte) (r rune, width int) {
	hex := func(s []byte) rune {
		if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
			return -1
		}
		v, err := strconv.ParseUint(string(s[2:6]), 16, 16)
		if err != nil {
			return -1
		}
		return rune(v)
	}
	r = hex(s)
	if r < 0 {
		return 0, 0
	}
	if utf16.IsSurrogate(r) {
		if both := utf16.DecodeRune(r, hex(s[6:])); both != utf8.RuneError {
			return both, 12
		}
		return utf8.RuneError, 6
	}
	return r, 6
}
