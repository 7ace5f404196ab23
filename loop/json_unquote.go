package loop

import (
	"bytes"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// checkEscapes checks the escapes of a string's body.
func checkEscapes(body []byte) error {
	for {
		i := bytes.IndexByte(body, '\\')
		if i < 0 {
			return nil
		}
		if i+1 >= len(body) {
			return fmt.Errorf("string ends in an escape")
		}
		n := 2
		switch body[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			if _, ok := hex4(body[i+2:]); !ok {
				return fmt.Errorf("bad escape \\u in a string")
			}
			n = 6
		default:
			return fmt.Errorf("bad escape \\%c in a string", body[i+1])
		}
		body = body[i+n:]
	}
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// appendUnquoted appends the value of a JSON string whose body (between the
// quotes) is given. Lone surrogates and bytes that are no UTF-8 become U+FFFD.
func appendUnquoted(dst, body []byte) ([]byte, error) {
	if err := checkEscapes(body); err != nil {
		return dst, err
	}
	for len(body) > 0 {
		c := body[0]
		switch {
		case c != '\\' && c < utf8.RuneSelf:
			n := max(1, safePrefix(body))
			dst = append(dst, body[:n]...)
			body = body[n:]
		case c != '\\':
			r, n := utf8.DecodeRune(body)
			dst = utf8.AppendRune(dst, r)
			body = body[n:]
		case body[1] == 'u':
			r, _ := hex4(body[2:])
			body = body[6:]
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if len(body) >= 6 && body[0] == '\\' && body[1] == 'u' {
					low, _ := hex4(body[2:])
					pair = utf16.DecodeRune(r, low)
				}
				if r = pair; r != utf8.RuneError {
					body = body[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, unescape[body[1]])
			body = body[2:]
		}
	}
	return dst, nil
}

var unescape = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}
