package main

import (
	"strings"
	"unicode/utf8"
)

// safeText makes text of a model or a tool harmless on a terminal: what could
// move the cursor, change colours, set the window's title or turn the reading
// direction is shown as a visible sign instead. Newlines and tabs stay.
func safeText(s string) string {
	if isSafe(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\r' && strings.HasPrefix(s[i+1:], "\n"):
			// Windows line end: the newline alone says it.
		case r == utf8.RuneError && size == 1, isUnsafe(r):
			b.WriteRune(visible(r))
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// safeLine is safeText in one line of at most limit runes; limit 0 is none.
func safeLine(s string, limit int) string {
	s = strings.Join(strings.Fields(safeText(s)), " ")
	if limit <= 0 || utf8.RuneCountInString(s) <= limit {
		return s
	}
	runes := []rune(s)
	return string(runes[:limit-1]) + "…"
}

func isSafe(s string) bool {
	for i, r := range s {
		if isUnsafe(r) {
			return false
		}
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return false
			}
		}
	}
	return true
}

func isUnsafe(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20, r >= 0x7f && r < 0xa0: // C0, DEL, C1
		return true
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // bidi
		return true
	case r == 0x2028 || r == 0x2029 || r == 0xfeff:
		return true
	}
	return false
}

// visible is the sign for an unsafe rune.
func visible(r rune) rune {
	switch {
	case r < 0x20:
		return '␀' + r
	case r == 0x7f:
		return '␡'
	}
	return utf8.RuneError
}
