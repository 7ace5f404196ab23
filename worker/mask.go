package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/pi-worker/pi-worker/loop"
)

// masked stands in events and requests where a secret value stood.
const masked = "[secret]"

// shortestSecret keeps values like "1" or "yes" from turning every text into
// holes.
const shortestSecret = 6

// masker replaces known secret values; the zero value replaces nothing.
type masker struct{ r *strings.Replacer }

func newMasker(secrets []string) masker {
	secrets = slices.Clone(secrets)
	// The longest first, so that a secret that begins with another one does
	// not leave its tail behind.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, s := range secrets {
		if len(s) < shortestSecret {
			continue
		}
		pairs = append(pairs, s, masked)
		if quoted, err := json.Marshal(s); err == nil && !bytes.Equal(quoted[1:len(quoted)-1], []byte(s)) {
			pairs = append(pairs, string(quoted[1:len(quoted)-1]), masked)
		}
	}
	if pairs == nil {
		return masker{}
	}
	return masker{strings.NewReplacer(pairs...)}
}

func (m masker) text(s string) string {
	if m.r == nil {
		return s
	}
	return m.r.Replace(s)
}

func (m masker) err(err error) error {
	if m.r == nil || err == nil {
		return err
	}
	if text := m.text(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

func (m masker) result(r loop.ToolResult) loop.ToolResult {
	if m.r == nil {
		return r
	}
	content := slices.Clone(r.Content)
	for i, b := range content {
		if t, ok := b.(*loop.Text); ok {
			content[i] = &loop.Text{Text: m.text(t.Text), Signature: t.Signature}
		}
	}
	r.Content = content
	if r.Details != nil {
		r.Details = json.RawMessage(m.text(string(r.Details)))
	}
	return r
}

// answer masks the error text of a failed answer.
func (m masker) answer(a *loop.AssistantMessage) *loop.AssistantMessage {
	if m.r == nil || a == nil || a.ErrorMessage == "" {
		return a
	}
	clean := *a
	clean.ErrorMessage = m.text(a.ErrorMessage)
	if me, ok := errors.AsType[*loop.ModelError](a.Err); ok {
		e := *me
		e.Message = m.text(e.Message)
		clean.Err = &e
	}
	return &clean
}
