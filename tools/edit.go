package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pi-worker/pi-worker/loop"
)

var utf8BOM = []byte("\uFEFF")

type editArgs struct {
	Path  string    `json:"path"`
	Edits []oneEdit `json:"edits"`
}

type oneEdit struct {
	OldText string `json:"oldText"`
	NewText string `json:"newText"`
}

type editDetails struct {
	Diff             string `json:"diff"`
	FirstChangedLine int    `json:"firstChangedLine,omitempty"`
}

// prepareEdit accepts the forms that models write: edits as JSON in a string,
// one edit in place of the list, and the pair at the top level. The arguments
// given are not changed.
func prepareEdit(args json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(args, &m) != nil || m == nil {
		return args
	}
	edits, changed := m["edits"], false
	var text string
	if json.Unmarshal(edits, &text) == nil && json.Valid([]byte(text)) {
		edits, changed = json.RawMessage(text), true
	}
	if bytes.HasPrefix(bytes.TrimSpace(edits), []byte("{")) {
		edits, changed = slices.Concat([]byte("["), edits, []byte("]")), true
	}
	var one oneEdit
	if json.Unmarshal(m["oldText"], &one.OldText) == nil && json.Unmarshal(m["newText"], &one.NewText) == nil {
		var list []json.RawMessage
		_ = json.Unmarshal(edits, &list)
		edits, changed = mustJSON(append(list, mustJSON(one))), true
		delete(m, "oldText")
		delete(m, "newText")
	}
	if !changed {
		return args
	}
	m["edits"] = edits
	return mustJSON(m)
}

func (w *Workspace) edit(ctx context.Context, args json.RawMessage, _ updater) (loop.ToolResult, error) {
	in, err := unmarshalArgs[editArgs](args)
	if err != nil {
		return loop.ToolResult{}, err
	}
	if len(in.Edits) == 0 {
		return loop.ToolResult{}, errors.New("Edit tool input is invalid. edits must contain at least one replacement.")
	}
	rel, err := w.resolve(in.Path, false)
	if err != nil {
		return loop.ToolResult{}, editError(err, in.Path)
	}
	w.writing.Lock()
	defer w.writing.Unlock()
	before, err := w.readWhole(rel)
	if err != nil {
		return loop.ToolResult{}, editError(err, in.Path)
	}
	e := editing{path: in.Path, edits: in.Edits}
	after, err := e.apply(before)
	if err != nil {
		return loop.ToolResult{}, err
	}
	if int64(len(after)) > w.opt.Limits.WriteBytes {
		return loop.ToolResult{}, fmt.Errorf("The new content has %s, over the limit of %s",
			formatSize(len(after)), formatSize(int(w.opt.Limits.WriteBytes)))
	}
	if err := w.replace(ctx, rel, after); err != nil {
		return loop.ToolResult{}, editError(err, in.Path)
	}
	var details editDetails
	details.Diff, details.FirstChangedLine = e.diff(before)
	return textResult(fmt.Sprintf("Successfully replaced %d block(s) in %s.", len(in.Edits), in.Path), details), nil
}

// editError has pi's words for a file that cannot be edited.
func editError(err error, given string) error {
	if p, ok := errors.AsType[*pathError](err); ok && p.code != "EISDIR" && p.code != "EINVAL" {
		return fmt.Errorf("Could not edit file: %s. Error code: %s.", given, p.code)
	}
	return err
}

// readWhole reads a regular file within the limit.
func (w *Workspace) readWhole(rel string) ([]byte, error) {
	f, info, err := w.open(rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	limit := w.opt.Limits.ReadBytes
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, hostError(err, rel)
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("The file %s has %s, over the limit of %s",
			display(rel), formatSize(int(info.Size())), formatSize(int(limit)))
	}
	return content, nil
}

// editing is one call: edits that are all matched against the same text.
type editing struct {
	path  string
	edits []oneEdit
	found []replacement // by position in the file
}

// replacement is a stretch of the original and what takes its place. The bytes
// around it stay as they are.
type replacement struct {
	edit     int // index in the call
	from, to int
	text     []byte // with the file's line ends
	// shown are the old and the new text of the stretch in the diff.
	shownOld, shownNew []byte
}

// apply gives the new content.
func (e *editing) apply(before []byte) ([]byte, error) {
	for i, edit := range e.edits {
		if edit.OldText == "" {
			return nil, fmt.Errorf("%s must not be empty in %s.", e.name(i, "oldText", ".oldText"), e.path)
		}
	}
	start := 0
	if bytes.HasPrefix(before, utf8BOM) {
		start = len(utf8BOM)
	}
	m := matcher{file: before, start: start, lines: unixLines(before[start:])}
	for i, edit := range e.edits {
		r, n := m.find(&edit)
		switch {
		case n == 0:
			return nil, fmt.Errorf("Could not find %s in %s. The %s must match exactly including all whitespace and newlines.",
				e.name(i, "the exact text", ""), e.path, e.word("old text", "oldText"))
		case n > 1:
			return nil, fmt.Errorf("Found %d occurrences of %s in %s. %s must be unique. Please provide more context to make it unique.",
				n, e.name(i, "the text", ""), e.path, e.word("The text", "Each oldText"))
		}
		r.edit = i
		e.found = append(e.found, r)
	}
	slices.SortStableFunc(e.found, func(a, b replacement) int { return a.from - b.from })
	for i := range e.found[1:] {
		if a, b := e.found[i], e.found[i+1]; a.to > b.from {
			return nil, fmt.Errorf("edits[%d] and edits[%d] overlap in %s. Merge them into one edit or target disjoint regions.",
				a.edit, b.edit, e.path)
		}
	}
	after := e.build(before, func(r *replacement) []byte { return r.text })
	if bytes.Equal(after, before) {
		return nil, fmt.Errorf("No changes made to %s. The %s produced identical content.%s", e.path,
			e.word("replacement", "replacements"),
			e.word(" This might indicate an issue with special characters or the text not existing as expected.", ""))
	}
	return after, nil
}

// name is how a message calls an edit, word how it speaks of one or several.
func (e *editing) name(i int, one, suffix string) string {
	if len(e.edits) == 1 {
		return one
	}
	return fmt.Sprintf("edits[%d]%s", i, suffix)
}

func (e *editing) word(one, several string) string {
	if len(e.edits) == 1 {
		return one
	}
	return several
}

func (e *editing) build(before []byte, text func(*replacement) []byte) []byte {
	var out []byte
	at := 0
	for i := range e.found {
		r := &e.found[i]
		out = append(append(out, before[at:r.from]...), text(r)...)
		at = r.to
	}
	return append(out, before[at:]...)
}

// diff shows the change, with LF for every line end and without the byte order
// mark.
func (e *editing) diff(before []byte) (string, int) {
	show := func(text func(*replacement) []byte) string {
		b := bytes.TrimPrefix(e.build(before, text), utf8BOM)
		return strings.ReplaceAll(decodeText(b), "\r\n", "\n")
	}
	return formatDiff(
		show(func(r *replacement) []byte { return r.shownOld }),
		show(func(r *replacement) []byte { return r.shownNew }))
}

// matcher finds texts in a file: exactly but for the line ends or, where that
// fails, in folded form. Matches are counted the same way as they are made.
type matcher struct {
	file   []byte
	start  int     // length of the byte order mark
	lines  *mapped // of the rest, with LF
	folded *mapped // of lines; made when it is needed
}

// find gives the only place of an edit's old text, and how many there are.
func (m *matcher) find(edit *oneEdit) (replacement, int) {
	old := unixText(edit.OldText)
	if n := bytes.Count(m.lines.text, old); n > 0 {
		i := bytes.Index(m.lines.text, old)
		return m.replacement(i, i+len(old), edit, nil, nil, nil), n
	}
	if m.folded == nil {
		m.folded = fold(m.lines.text)
	}
	old = fold(old).text
	if len(old) == 0 {
		return replacement{}, 0
	}
	n := bytes.Count(m.folded.text, old)
	if n != 1 {
		return replacement{}, n
	}
	i := bytes.Index(m.folded.text, old)
	j := i + len(old)
	// A match may begin or end inside what was one character: the rest of it
	// stays, in its plain form.
	from, to := i, j
	for from > 0 && m.folded.start(from-1) == m.folded.start(i) && m.folded.end(from) == m.folded.end(i+1) {
		from--
	}
	for to < len(m.folded.text) && m.folded.end(to+1) == m.folded.end(j) {
		to++
	}
	return m.replacement(m.folded.start(i), m.folded.end(j), edit,
		m.folded.text[from:i], m.folded.text[j:to], m.folded.text[from:to]), 1
}

// replacement makes one of a range of m.lines. head and tail stay around the
// new text; shown is the old text for the diff, nil for the original.
func (m *matcher) replacement(from, to int, edit *oneEdit, head, tail, shown []byte) replacement {
	r := replacement{from: m.start + m.lines.start(from), to: m.start + m.lines.end(to)}
	text := slices.Concat(head, unixText(edit.NewText), tail)
	r.shownOld, r.shownNew = shown, text
	if shown == nil {
		r.shownOld = m.file[r.from:r.to]
	}
	r.text = text
	if m.crlf(r.from, r.to) {
		r.text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	}
	return r
}

// crlf says whether lines end in CRLF at a place of the file: inside it, else
// after it, else before it.
func (m *matcher) crlf(from, to int) bool {
	if i := bytes.IndexByte(m.file[from:to], '\n'); i >= 0 {
		return from+i > 0 && m.file[from+i-1] == '\r'
	}
	if i := bytes.IndexByte(m.file[to:], '\n'); i >= 0 {
		return to+i > 0 && m.file[to+i-1] == '\r'
	}
	i := bytes.LastIndexByte(m.file[:from], '\n')
	return i > 0 && m.file[i-1] == '\r'
}

func unixText(s string) []byte { return []byte(strings.ReplaceAll(s, "\r\n", "\n")) }
