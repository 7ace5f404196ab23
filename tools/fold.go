package tools

import (
	"bytes"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// mapped is a changed form of a text that knows where each of its bytes comes
// from: those from..to of the original became the byte.
type mapped struct {
	text []byte
	// from and to are nil when the text is the original. They have one entry
	// for each byte of text.
	from, to []int32
}

// start and end give the original's range of text[i:j].
func (m *mapped) start(i int) int {
	if m.from == nil {
		return i
	}
	if i == len(m.text) {
		if i == 0 {
			return 0
		}
		return int(m.to[i-1])
	}
	return int(m.from[i])
}

func (m *mapped) end(j int) int {
	if m.to == nil {
		return j
	}
	if j == 0 {
		return m.start(0)
	}
	return int(m.to[j-1])
}

func (m *mapped) add(text []byte, from, to int) {
	for range text {
		m.from = append(m.from, int32(from))
		m.to = append(m.to, int32(to))
	}
	m.text = append(m.text, text...)
}

// unixLines is text with LF in place of CRLF.
func unixLines(text []byte) *mapped {
	if !bytes.Contains(text, []byte("\r\n")) {
		return &mapped{text: text}
	}
	m := &mapped{
		text: make([]byte, 0, len(text)), from: make([]int32, 0, len(text)), to: make([]int32, 0, len(text)),
	}
	for i := 0; i < len(text); i++ {
		n := 1
		if text[i] == '\r' && i+1 < len(text) && text[i+1] == '\n' {
			n = 2
		}
		m.text = append(m.text, text[i+n-1])
		m.from = append(m.from, int32(i))
		m.to = append(m.to, int32(i+n))
		i += n - 1
	}
	return m
}

// fold is the form in which texts are compared that are not the same byte for
// byte: compatibility forms composed (NFKC), no white space at the ends of
// lines, and plain quotes, dashes and spaces.
func fold(text []byte) *mapped {
	m := &mapped{
		text: make([]byte, 0, len(text)), from: make([]int32, 0, len(text)), to: make([]int32, 0, len(text)),
	}
	var plain []byte
	for i := 0; i < len(text); {
		n := norm.NFKC.NextBoundary(text[i:], true)
		if n <= 0 {
			n = 1
		}
		segment := text[i : i+n]
		if n == 1 && segment[0] < utf8.RuneSelf {
			if segment[0] == '\n' {
				m.trimLine()
			}
			m.add(segment, i, i+n)
		} else {
			plain = plain[:0]
			for _, r := range string(norm.NFKC.Bytes(segment)) {
				plain = utf8.AppendRune(plain, plainRune(r))
			}
			if !utf8.Valid(segment) {
				plain = append(plain[:0], segment...)
			}
			m.add(plain, i, i+n)
		}
		i += n
	}
	m.trimLine()
	return m
}

// trimLine drops the white space at the end, JavaScript's set. It belongs to
// the last character of its line then, so that a match which ends there takes
// it along.
func (m *mapped) trimLine() {
	n := len(bytes.TrimRightFunc(m.text, func(r rune) bool { return r != '\n' && jsSpace(r) }))
	if n > 0 && n < len(m.text) && m.text[n-1] != '\n' {
		end, last := m.to[len(m.to)-1], m.to[n-1]
		for i := n - 1; i >= 0 && m.to[i] == last; i-- {
			m.to[i] = end
		}
	}
	m.text, m.from, m.to = m.text[:n], m.from[:n], m.to[:n]
}

func jsSpace(r rune) bool {
	switch r {
	case '\t', '\v', '\f', '\r', ' ', 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF:
		return true
	}
	return r >= 0x2000 && r <= 0x200A
}

func plainRune(r rune) rune {
	switch {
	case r >= 0x2018 && r <= 0x201B:
		return '\''
	case r >= 0x201C && r <= 0x201F:
		return '"'
	case r >= 0x2010 && r <= 0x2015, r == 0x2212:
		return '-'
	case r == 0xA0, r >= 0x2002 && r <= 0x200A, r == 0x202F, r == 0x205F, r == 0x3000:
		return ' '
	}
	return r
}
