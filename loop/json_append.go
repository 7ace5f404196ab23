package loop

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"
)

// safeByte holds the ASCII bytes that a JSON string takes as they are. HTML
// characters are among them: nothing here is pasted into a page.
var safeByte = func() (t [utf8.RuneSelf]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string. Bytes that are no UTF-8 become
// U+FFFD. All control characters are escaped, so there is never a newline.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if safeByte[c] {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			dst = appendEscape(dst, c)
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\uFFFD"...)
			start = i + 1
		}
		i += n
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// appendFloat writes a number as JavaScript does; what JSON cannot say is 0.
func appendFloat(dst []byte, f float64) []byte {
	if f == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, '0')
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if n := len(dst); n >= 4 && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // e-09 is e-9
		dst = dst[:n-1]
	}
	return dst
}

// appendRaw appends JSON that somebody else wrote: byte for byte when it is
// JSON on one line of UTF-8, compacted when it has line breaks, and as a
// string of its text when it is no JSON at all.
func appendRaw(dst []byte, raw json.RawMessage) []byte {
	if !validJSON(raw) {
		return appendString(dst, string(raw))
	}
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return append(dst, bytes.Trim(raw, " \t")...)
	}
	return appendCompact(dst, raw)
}

// appendCompact appends valid JSON without the space between its tokens.
func appendCompact(dst, raw []byte) []byte {
	inString := false
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case inString && c == '\\':
			dst = append(dst, c, raw[i+1])
			i++
			continue
		case c == '"':
			inString = !inString
		case !inString && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// appendMembers appends the members of the JSON object raw, each after a
// comma; anything but an object is left out.
func appendMembers(dst []byte, raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return dst
	}
	start := len(dst)
	dst = append(dst, ',')
	dst = appendRaw(dst, raw)
	object := dst[start+1:]
	if len(object) < 2 || object[0] != '{' {
		return dst[:start]
	}
	inner := bytes.TrimSpace(object[1 : len(object)-1])
	if len(inner) == 0 {
		return dst[:start]
	}
	n := copy(object, inner)
	return dst[:start+1+n]
}

// stringField appends ,"name":"value" unless value is empty. name holds the
// comma, the quotes and the colon.
func stringField(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendString(append(dst, name...), value)
}

func intField(dst []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(dst, name...), value, 10)
}

func floatField(dst []byte, name string, value float64) []byte {
	return appendFloat(append(dst, name...), value)
}

func boolField(dst []byte, name string, value bool) []byte {
	return strconv.AppendBool(append(dst, name...), value)
}
