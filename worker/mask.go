package worker

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/pi-worker/pi-worker/internal/secret"
	"github.com/pi-worker/pi-worker/loop"
)

// masker replaces known secret values; the zero value replaces nothing.
type masker struct{ known *secret.Mask }

func newMasker(secrets []string) masker { return masker{secret.New(secrets...)} }

func (m masker) text(s string) string { return m.known.Text(s) }

// add makes a value known that came later.
func (m masker) add(value string) {
	if m.known != nil {
		m.known.Add(value)
	}
}

func (m masker) err(err error) error {
	if m.known == nil || err == nil {
		return err
	}
	if text := m.text(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

func (m masker) result(r loop.ToolResult) loop.ToolResult {
	if m.known == nil {
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

// piece masks the next part of a tool's output, whose border may fall into a
// value. What is held back is in the result, which comes last and is whole.
func (m masker) piece(r loop.ToolResult, output *secret.Stream) loop.ToolResult {
	if m.known == nil || len(r.Content) != 1 {
		return m.result(r)
	}
	t, ok := r.Content[0].(*loop.Text)
	if !ok {
		return m.result(r)
	}
	r.Content = []loop.Block{&loop.Text{Text: output.Text(t.Text), Signature: t.Signature}}
	return m.result(r)
}

// answer masks the error text of a failed answer.
func (m masker) answer(a *loop.AssistantMessage) *loop.AssistantMessage {
	if m.known == nil || a == nil || a.ErrorMessage == "" {
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
