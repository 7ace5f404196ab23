package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors that a [KeyError] answers to.
var (
	ErrUnknownKey = errors.New("no such key")
	ErrValue      = errors.New("value is not allowed")
	ErrConflict   = errors.New("keys contradict each other")
)

// KeyError is one trouble with one key.
type KeyError struct {
	Key     string
	Value   string // as written, masked; "" where it is not shown
	Allowed string // what may be written; for unknown keys the nearest one, "" none near
	Origin  Origin
	Err     error // ErrUnknownKey, ErrValue, ErrConflict or what reading a file gave
}

func (e *KeyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "config: %s: ", e.Key)
	if e.Value != "" {
		fmt.Fprintf(&b, "%q: ", e.Value)
	}
	fmt.Fprintf(&b, "%v (from %s)", e.Err, e.Origin)
	switch {
	case e.Allowed == "":
	case errors.Is(e.Err, ErrUnknownKey):
		fmt.Fprintf(&b, "; did you mean %s?", e.Allowed)
	default:
		fmt.Fprintf(&b, "; want %s", e.Allowed)
	}
	return b.String()
}

func (e *KeyError) Unwrap() error { return e.Err }

// nearest gives the name that needs the fewest changes to become the word, ""
// if none is near. Names with dots are compared whole and by their last part.
func nearest(word string, names []string) string {
	best, least := "", len(word)/3+2
	for _, name := range names {
		d := distance(word, name)
		if i := strings.LastIndexByte(name, '.'); i >= 0 && lastPart(word) != word {
			// A right key in the wrong group is nearer than it looks.
			if name[i+1:] == lastPart(word) {
				d = min(d, 2)
			}
		} else if i >= 0 {
			d = min(d, distance(word, name[i+1:])+1)
		}
		if d < least {
			best, least = name, d
		}
	}
	return best
}

func lastPart(s string) string { return s[strings.LastIndexByte(s, '.')+1:] }

// distance is Levenshtein's, over bytes; a swap of neighbours counts one.
func distance(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = slices.Min([]int{prev[j] + 1, row[j-1] + 1, prev[j-1] + change})
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
