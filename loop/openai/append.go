package openai

import (
	"strings"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Bytes that are no UTF-8 become
// replacement characters.
func appendString(dst []byte, s string) []byte { return appendQuoted(dst, s, false) }

// appendClean is appendString without the replacement characters: they stand
// for lone halves of surrogate pairs, which servers refuse or misread.
func appendClean(dst []byte, s string) []byte { return appendQuoted(dst, s, true) }

func appendQuoted(dst []byte, s string, clean bool) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || n != 1 && !clean {
				i += n
				continue
			}
			size = n
		}
		dst = append(dst, s[from:i]...)
		switch {
		case c < 0x20:
			dst = appendControl(dst, c)
		case c < utf8.RuneSelf:
			dst = append(dst, '\\', c)
		case !clean:
			dst = append(dst, "\uFFFD"...)
		}
		i += size
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}

func appendControl(dst []byte, c byte) []byte {
	switch c {
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// clean is s without replacement characters and bytes that are no UTF-8.
func clean(s string) string {
	if utf8.ValidString(s) && !strings.ContainsRune(s, utf8.RuneError) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
}

// blank reports whether s has nothing that a model could read.
func blank(s string) bool { return strings.TrimSpace(s) == "" }
