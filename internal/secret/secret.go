// Package secret keeps known values out of what a program says.
//
//	mask := secret.New(key, password)
//	log := slog.New(slog.NewJSONHandler(mask.Writer(os.Stderr), nil))
//	event.Text = mask.Text(event.Text)
//	mask.Add(newKey) // from here on
//
// It knows values, not patterns: what is not told to it passes, and so does a
// value in another encoding than plain text or a JSON string.
package secret

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Placeholder stands where a secret value stood.
const Placeholder = "[secret]"

// Shortest is the length in bytes of the shortest value that is masked: "1" or
// "yes" would turn every text into holes.
const Shortest = 6

// Mask replaces known values; nil replaces nothing. It is safe for concurrent
// use.
type Mask struct {
	mu sync.Mutex // of those who add
	at atomic.Pointer[known]
}

// known are the values at one moment.
type known struct {
	values   []string // as they are searched for, the longest first
	replacer *strings.Replacer
}

// New makes a mask of values.
func New(values ...string) *Mask {
	m := &Mask{}
	m.Add(values...)
	return m
}

// Add makes more values known.
func (m *Mask) Add(values ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	if k := m.at.Load(); k != nil {
		all = slices.Clone(k.values)
	}
	before := len(all)
	for _, v := range values {
		if len(v) < Shortest || slices.Contains(all, v) {
			continue
		}
		all = append(all, v)
		if quoted, err := json.Marshal(v); err == nil && !bytes.Equal(quoted[1:len(quoted)-1], []byte(v)) {
			all = append(all, string(quoted[1:len(quoted)-1]))
		}
	}
	if len(all) == before {
		return
	}
	// The longest first, so that a secret that begins with another one does
	// not leave its tail behind.
	slices.SortStableFunc(all, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(all))
	for _, v := range all {
		pairs = append(pairs, v, Placeholder)
	}
	m.at.Store(&known{all, strings.NewReplacer(pairs...)})
}

// Text is s without the values.
func (m *Mask) Text(s string) string {
	if m == nil {
		return s
	}
	k := m.at.Load()
	if k == nil {
		return s
	}
	return k.replacer.Replace(s)
}

// Values are those that are known, as they are searched for.
func (m *Mask) Values() []string {
	if m == nil {
		return nil
	}
	if k := m.at.Load(); k != nil {
		return slices.Clone(k.values)
	}
	return nil
}

// Stream masks a text that comes in pieces, whose borders may fall into a
// value. It is one text's, and not safe for concurrent use.
type Stream struct {
	mask *Mask
	held string // the end of what came, which may be the beginning of a value
}

// Stream begins a text.
func (m *Mask) Stream() *Stream { return &Stream{mask: m} }

// Text gives what is certain after the next piece; "" if nothing is.
func (s *Stream) Text(piece string) string {
	if s.mask == nil || s.mask.at.Load() == nil {
		return piece
	}
	text := s.held + piece
	cut := len(text)
	for _, v := range s.mask.at.Load().values {
		// The longest end of the text that begins this value.
		for n := min(len(v)-1, len(text)); n > len(text)-cut; n-- {
			if strings.HasSuffix(text, v[:n]) {
				cut = len(text) - n
				break
			}
		}
	}
	// A whole value that reaches beyond the cut stays whole.
	out := s.mask.Text(text)
	if s.mask.Text(text[:cut])+text[cut:] != out && cut < len(text) {
		s.held = ""
		return out
	}
	s.held = text[cut:]
	return s.mask.Text(text[:cut])
}

// Rest gives what is held back, at the text's end.
func (s *Stream) Rest() string {
	held := s.held
	s.held = ""
	return s.mask.Text(held)
}

// Writer masks what is written to w; each Write must be whole, as a logger's
// lines are.
func (m *Mask) Writer(w io.Writer) io.Writer { return &writer{m, w} }

type writer struct {
	mask *Mask
	w    io.Writer
}

func (w *writer) Write(p []byte) (int, error) {
	if w.mask.at.Load() == nil {
		return w.w.Write(p)
	}
	if _, err := io.WriteString(w.w, w.mask.Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
