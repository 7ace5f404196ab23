package openai

import (
	"crypto/rand"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
)

// newCallID makes up the id of a call whose provider sent none, or one twice.
func newCallID() string { return "call_" + rand.Text()[:24] }

// shortHash is pi's short, stable stand-in for an id that another endpoint
// made (the cyrb53 mixing, both halves in base 36).
func shortHash(s string) string {
	h1, h2 := uint32(0xdeadbeef), uint32(0x41c6ce57)
	for _, c := range utf16.Encode([]rune(s)) {
		h1 = (h1 ^ uint32(c)) * 2654435761
		h2 = (h2 ^ uint32(c)) * 1597334677
	}
	h1 = (h1^h1>>16)*2246822507 ^ (h2^h2>>13)*3266489909
	h2 = (h2^h2>>16)*2246822507 ^ (h1^h1>>13)*3266489909
	return strconv.FormatUint(uint64(h2), 36) + strconv.FormatUint(uint64(h1), 36)
}

// idPart keeps what every server takes in an id, at most n characters.
func idPart(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), n)]
}

// mistralID is a call id as Mistral wants it: nine letters and digits.
func mistralID(id string) string {
	const n = 9
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, id)
	if len(plain) == n {
		return plain
	}
	// Not the first nine: ids of one server often begin alike.
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = bits.RotateLeft64((h^uint64(id[i]))*1099511628211, 5)
	}
	s := strconv.FormatUint(h, 36) + "000000000"
	return s[:n]
}
