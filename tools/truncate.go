package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// What a result holds at most. They are pi's numbers.
const (
	maxLines = 2000
	maxBytes = 50 * 1024
	// noMaxLines is what details say where only bytes count.
	noMaxLines = 1<<53 - 1
)

// truncation says what of a text was left out; it goes into a result's details.
type truncation struct {
	Content               string  `json:"content"`
	Truncated             bool    `json:"truncated"`
	TruncatedBy           *string `json:"truncatedBy"` // "lines", "bytes"
	TotalLines            int     `json:"totalLines"`
	TotalBytes            int     `json:"totalBytes"`
	OutputLines           int     `json:"outputLines"`
	OutputBytes           int     `json:"outputBytes"`
	LastLinePartial       bool    `json:"lastLinePartial"`
	FirstLineExceedsLimit bool    `json:"firstLineExceedsLimit"`
	MaxLines              int     `json:"maxLines"`
	MaxBytes              int     `json:"maxBytes"`
}

var byLines, byBytes = new("lines"), new("bytes")

// formatSize writes a number of bytes as pi does: 12B, 1.5KB, 2.0MB.
func formatSize(n int) string {
	switch {
	case n < 1024:
		return fmt.Sprintf("%dB", n)
	case n < 1024*1024:
		return fmt.Sprintf("%.1fKB", float64(n)/1024)
	}
	return fmt.Sprintf("%.1fMB", float64(n)/(1024*1024))
}

// formatNumber writes a number the way JavaScript does for ordinary sizes.
func formatNumber(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// headCollector takes a text piece by piece, keeps its first whole lines within
// the limits and counts the rest.
type headCollector struct {
	maxLines, maxBytes int

	kept      bytes.Buffer // whole lines that fit, without the last newline
	keptLines int
	line      bytes.Buffer // the line that is not ended, while it may still fit
	lineBytes int          // its whole length
	full      *string      // why no more is kept; nil: still room

	firstLine  int // length of the first line
	newlines   int
	totalBytes int
}

// Write never fails.
func (h *headCollector) Write(p []byte) (int, error) {
	n := len(p)
	h.totalBytes += n
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			h.add(p)
			return n, nil
		}
		h.add(p[:i])
		h.endLine()
		h.newlines++
		p = p[i+1:]
	}
}

func (h *headCollector) add(p []byte) {
	h.lineBytes += len(p)
	if h.full == nil && h.line.Len() <= h.maxBytes {
		h.line.Write(p[:min(len(p), h.maxBytes+1)])
	}
}

func (h *headCollector) endLine() {
	if h.newlines == 0 {
		h.firstLine = h.lineBytes
	}
	if h.full == nil {
		h.keep()
	}
	h.line.Reset()
	h.lineBytes = 0
}

func (h *headCollector) keep() {
	need := h.lineBytes
	if h.keptLines > 0 {
		need++
	}
	switch {
	case h.keptLines >= h.maxLines:
		h.full = byLines
	case h.kept.Len()+need > h.maxBytes:
		h.full = byBytes
	default:
		if h.keptLines > 0 {
			h.kept.WriteByte('\n')
		}
		h.kept.Write(h.line.Bytes())
		h.keptLines++
	}
}

// end closes the text. What fits whole is whole again, the empty line after a
// final newline included: that line is not counted against the limit.
func (h *headCollector) end() *truncation {
	lastEmpty := h.newlines > 0 && h.lineBytes == 0
	if h.newlines == 0 {
		h.firstLine = h.lineBytes
	}
	if h.full == nil && lastEmpty && h.kept.Len() < h.maxBytes {
		h.kept.WriteByte('\n')
		h.keptLines++
	} else if h.full == nil {
		h.keep()
	}
	t := &truncation{
		Content: h.kept.String(), Truncated: h.full != nil, TruncatedBy: h.full,
		TotalLines: h.newlines + 1, TotalBytes: h.totalBytes,
		OutputLines: h.keptLines, OutputBytes: h.kept.Len(),
		MaxLines: h.maxLines, MaxBytes: h.maxBytes,
	}
	if h.firstLine > h.maxBytes {
		t.FirstLineExceedsLimit = true
		t.Content, t.OutputLines, t.OutputBytes, t.TruncatedBy = "", 0, 0, byBytes
	}
	return t
}

// truncateHead keeps the first whole lines of text.
func truncateHead(text string, lines int) *truncation {
	h := headCollector{maxLines: lines, maxBytes: maxBytes}
	h.Write([]byte(text))
	return h.end()
}

// mustJSON encodes values of this package's own types, which cannot fail.
func mustJSON(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// shellQuote makes s one word for a shell.
func shellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/+,:@%-") == "" && s[0] != '-' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
