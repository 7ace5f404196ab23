package tools

import "unicode/utf8"

// decoder turns bytes into valid UTF-8 piece by piece. Each broken sequence
// becomes U+FFFD by the WHATWG rule: one for each longest prefix of a
// character, which is neither of Go's conversions.
type decoder struct {
	rest []byte // the beginning of a character that the next piece may end
}

// appendTo decodes p and appends the text to dst. end says that nothing
// follows.
func (d *decoder) appendTo(dst, p []byte, end bool) []byte {
	if len(d.rest) > 0 {
		p = append(d.rest, p...)
		d.rest = nil
	}
	for len(p) > 0 {
		if p[0] < utf8.RuneSelf {
			n := 1
			for n < len(p) && p[n] < utf8.RuneSelf {
				n++
			}
			dst, p = append(dst, p[:n]...), p[n:]
			continue
		}
		n, whole := sequence(p)
		switch {
		case whole:
			dst = append(dst, p[:n]...)
		case n == len(p) && !end && n < needed(p[0]):
			d.rest = append([]byte(nil), p...)
			return dst
		default:
			dst = utf8.AppendRune(dst, utf8.RuneError)
		}
		p = p[n:]
	}
	return dst
}

// needed is how long the character is that b begins; 1 if b begins none.
func needed(b byte) int {
	switch {
	case b >= 0xC2 && b <= 0xDF:
		return 2
	case b >= 0xE0 && b <= 0xEF:
		return 3
	case b >= 0xF0 && b <= 0xF4:
		return 4
	}
	return 1
}

// sequence gives the length of the character at the start of p, or of the
// longest beginning of one.
func sequence(p []byte) (n int, whole bool) {
	want := needed(p[0])
	if want == 1 {
		return 1, false
	}
	low, high := byte(0x80), byte(0xBF)
	switch p[0] {
	case 0xE0:
		low = 0xA0
	case 0xED:
		high = 0x9F
	case 0xF0:
		low = 0x90
	case 0xF4:
		high = 0x8F
	}
	for n = 1; n < want; n++ {
		if n == len(p) || p[n] < low || p[n] > high {
			return n, false
		}
		low, high = 0x80, 0xBF
	}
	return n, true
}

// decodeText is p as valid UTF-8.
func decodeText(p []byte) string {
	if utf8.Valid(p) {
		return string(p)
	}
	var d decoder
	return string(d.appendTo(make([]byte, 0, len(p)+16), p, true))
}
