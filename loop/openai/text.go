package openai

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// text grows by pieces of JSON strings. It decodes the escapes itself, because
// a provider may cut an emoji into two escapes and send them in two pieces:
// the first half is held until the next piece shows what it belongs to.
type text struct {
	b    strings.Builder
	high rune // a held high surrogate, 0 if there is none
}

// String is the text so far. It shares the builder's memory: nothing is
// copied, and later pieces don't change it.
func (t *text) String() string { return t.b.String() }

// add appends the inside of a JSON string and returns what that added.
func (t *text) add(raw []byte) string {
	from := t.b.Len()
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			t.plain(raw)
			break
		}
		if i > 0 {
			t.plain(raw[:i])
		}
		raw = raw[i+t.escape(raw[i:]):]
	}
	return t.b.String()[from:]
}

// addString appends text that is not escaped.
func (t *text) addString(s string) string {
	from := t.b.Len()
	t.flush()
	t.b.WriteString(s)
	return t.b.String()[from:]
}

// finish ends the text: a half that stayed alone is a replacement character.
func (t *text) finish() string {
	t.flush()
	return t.b.String()
}

func (t *text) flush() {
	if t.high != 0 {
		t.high = 0
		t.b.WriteRune(utf8.RuneError)
	}
}

func (t *text) plain(b []byte) {
	t.flush()
	if utf8.Valid(b) {
		t.b.Write(b)
		return
	}
	t.b.WriteString(strings.ToValidUTF8(string(b), "\uFFFD"))
}

// escape decodes the escape at the start of raw and returns its length. An
// unknown one stays as it is.
func (t *text) escape(raw []byte) int {
	if len(raw) < 2 {
		t.plain(raw)
		return len(raw)
	}
	c := raw[1]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return t.unicode(raw)
	default:
		t.plain(raw[:2])
		return 2
	}
	t.flush()
	t.b.WriteByte(c)
	return 2
}

func (t *text) unicode(raw []byte) int {
	r, ok := hex4(raw[2:])
	if !ok {
		t.plain(raw[:2])
		return 2
	}
	if t.high != 0 && utf16.DecodeRune(t.high, r) != utf8.RuneError {
		t.b.WriteRune(utf16.DecodeRune(t.high, r))
		t.high = 0
		return 6
	}
	t.flush()
	switch {
	case r >= 0xd800 && r < 0xdc00:
		t.high = r
	default:
		t.b.WriteRune(r) // a lone low half becomes a replacement character
	}
	return 6
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
