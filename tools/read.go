package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/pi-worker/pi-worker/loop"
	"golang.org/x/text/encoding/unicode"
)

// sniffBytes is how much of a file's beginning tells text, image and binary
// apart.
const sniffBytes = 8192

type readArgs struct {
	Path   string `json:"path"`
	Offset number `json:"offset"`
	Limit  number `json:"limit"`
}

type readDetails struct {
	Truncation *truncation `json:"truncation,omitempty"`
}

func (w *Workspace) read(ctx context.Context, args json.RawMessage, _ updater) (loop.ToolResult, error) {
	in, err := unmarshalArgs[readArgs](args)
	if err != nil {
		return loop.ToolResult{}, err
	}
	win := window{path: in.Path}
	if win.limit, err = wholeNumber("limit", in.Limit, 0); err != nil {
		return loop.ToolResult{}, err
	}
	// Zero and negative offsets mean the start; only fractions are refused.
	if in.Offset != nil && *in.Offset >= 1 {
		if win.start, err = wholeNumber("offset", in.Offset, 1); err != nil {
			return loop.ToolResult{}, err
		}
		win.start--
	}
	rel, err := w.resolveRead(in.Path)
	if err != nil {
		return loop.ToolResult{}, err
	}
	if err := w.fetchOutput(ctx, rel); err != nil {
		return loop.ToolResult{}, err
	}
	return w.readFile(ctx, rel, &win)
}

func (w *Workspace) readFile(ctx context.Context, rel string, win *window) (loop.ToolResult, error) {
	f, info, err := w.open(rel)
	if err != nil {
		return loop.ToolResult{}, err
	}
	defer f.Close()
	head := make([]byte, sniffBytes)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return loop.ToolResult{}, hostError(err, rel)
	}
	head = head[:n]
	if mime := imageType(head); mime != "" {
		return w.readImage(ctx, f, info.Size(), head, mime, rel)
	}
	var src io.Reader = io.MultiReader(bytes.NewReader(head), f)
	src = io.LimitReader(src, w.opt.Limits.ReadBytes)
	switch {
	case bytes.HasPrefix(head, []byte{0xFF, 0xFE}), bytes.HasPrefix(head, []byte{0xFE, 0xFF}):
		src = unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder().Reader(src)
		win.notes = append(win.notes, "Decoded from UTF-16")
	case bytes.IndexByte(head, 0) >= 0:
		return loop.ToolResult{}, fmt.Errorf("Cannot read %s: it is a binary file of %s", display(rel), formatSize(int(info.Size())))
	}
	if info.Size() > w.opt.Limits.ReadBytes {
		win.notes = append(win.notes, fmt.Sprintf("The file has %s, only the first %s are read and counted",
			formatSize(int(info.Size())), formatSize(int(w.opt.Limits.ReadBytes))))
	}
	if err := win.fill(ctx, src); err != nil {
		return loop.ToolResult{}, hostError(err, rel)
	}
	return win.result()
}

// window takes the wanted lines of a text that streams by.
type window struct {
	path  string // as the model gave it
	start int    // first line, counted from 0
	limit int    // how many; 0: all
	notes []string

	line     int // of the next byte
	lastEnds bool
	empty    bool
	head     headCollector
}

// fill reads the whole text.
func (w *window) fill(ctx context.Context, src io.Reader) error {
	w.head = headCollector{maxLines: maxLines, maxBytes: maxBytes}
	var d decoder
	in, out := make([]byte, 64<<10), []byte(nil)
	for {
		if err := aborted(ctx); err != nil {
			return err
		}
		n, err := src.Read(in)
		out = d.appendTo(out[:0], in[:n], err == io.EOF)
		w.take(out)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take gives the collector what lies inside the window. The newline after the
// last wanted line is not part of it.
func (w *window) take(p []byte) {
	for len(p) > 0 && w.line < w.start {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			return
		}
		p = p[i+1:]
		w.line++
	}
	for len(p) > 0 && w.limit > 0 && w.line < w.start+w.limit {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			w.head.Write(p)
			return
		}
		w.line++
		if w.line == w.start+w.limit {
			w.head.Write(p[:i])
			w.lastEnds = true
		} else {
			w.head.Write(p[:i+1])
		}
		p = p[i+1:]
	}
	if len(p) == 0 {
		return
	}
	if w.limit == 0 {
		w.head.Write(p)
	} else {
		w.lastEnds = false
	}
	w.line += bytes.Count(p, []byte{'\n'})
	w.empty = p[len(p)-1] == '\n'
}

// result words what was found as pi does.
func (w *window) result() (loop.ToolResult, error) {
	total := w.line + 1 // with the empty line after a final newline
	if w.start >= total {
		return loop.ToolResult{}, fmt.Errorf("Offset %d is beyond end of file (%d lines total)", w.start+1, total)
	}
	t := w.head.end()
	text := t.Content
	var details any
	switch next := w.start + t.OutputLines + 1; {
	case t.FirstLineExceedsLimit:
		text = fmt.Sprintf("[Line %d is %s, exceeds %s limit. Use bash: sed -n '%dp' %s | head -c %d]",
			w.start+1, formatSize(w.head.firstLine), formatSize(maxBytes), w.start+1, shellQuote(w.path), maxBytes)
		details = readDetails{t}
	case t.Truncated:
		by := ""
		if t.TruncatedBy == byBytes {
			by = fmt.Sprintf(" (%s limit)", formatSize(maxBytes))
		}
		text += fmt.Sprintf("\n\n[Showing lines %d-%d of %d%s. Use offset=%d to continue.]",
			w.start+1, next-1, total, by, next)
		details = readDetails{t}
	case w.limit > 0 && w.start+w.limit < total && !w.lastEnds:
		text += fmt.Sprintf("\n\n[%d more lines in file. Use offset=%d to continue.]",
			total-w.start-w.limit, w.start+w.limit+1)
	case w.lastEnds:
		text += "\n"
	}
	if w.notes != nil {
		text += notice(w.notes)
	}
	return textResult(text, details), nil
}
