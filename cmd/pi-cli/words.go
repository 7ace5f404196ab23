package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pi-worker/pi-worker/loop"
)

// argLimit is how many runes of a tool's arguments or result a line shows.
const argLimit = 60

// style is an ANSI colour or weight.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

func (r *renderer) paint(s style, text string) string {
	if !r.opts.Color || s == plain {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// textOf is the text of a message's block, if it is one.
func textOf(m *loop.AssistantMessage, index int) (string, bool) {
	if m == nil || index >= len(m.Content) {
		return "", false
	}
	text, ok := m.Content[index].(*loop.Text)
	if !ok {
		return "", false
	}
	return text.Text, true
}

// toolArgs shows a call's arguments: the value alone if there is one string.
func toolArgs(args []byte) string {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(args, &fields); err != nil {
		return safeLine(string(args), argLimit)
	}
	if len(fields) == 0 {
		return ""
	}
	if len(fields) == 1 {
		for _, raw := range fields {
			var text string
			if json.Unmarshal(raw, &text) == nil {
				return safeLine(text, argLimit)
			}
		}
	}
	var compact bytes.Buffer
	if json.Compact(&compact, args) != nil {
		return safeLine(string(args), argLimit)
	}
	return safeLine(compact.String(), argLimit)
}

// outcomeOf says in few words what a tool gave.
func outcomeOf(e *loop.ToolExecutionEnd) string {
	text, images := contentOf(e.Result.Content)
	if e.IsError {
		return firstLine(text, "error")
	}
	var parts []string
	switch lines := lineCount(text); {
	case lines == 1 && utf8.RuneCountInString(text) <= argLimit:
		parts = append(parts, safeLine(text, argLimit))
	case lines > 0:
		parts = append(parts, plural(lines, "line")+", "+size(len(text)))
	}
	if images > 0 {
		parts = append(parts, plural(images, "image"))
	}
	if len(parts) == 0 {
		return "ok"
	}
	return strings.Join(parts, ", ")
}

// contentOf joins the texts of a content and counts its images.
func contentOf(blocks []loop.Block) (text string, images int) {
	var texts []string
	for _, block := range blocks {
		switch b := block.(type) {
		case *loop.Text:
			texts = append(texts, b.Text)
		case *loop.Image:
			images++
		}
	}
	return strings.Join(texts, "\n"), images
}

// summary is a user message in one line.
func summary(blocks []loop.Block) string {
	text, images := contentOf(blocks)
	if images > 0 {
		text += " [" + plural(images, "image") + "]"
	}
	return safeLine(text, 200)
}

// inputText is what a returned input said, in one line; "" if it does not come
// with its event.
func inputText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return safeLine(text, 200) // published as plain text
	}
	var body struct{ Message json.RawMessage }
	if json.Unmarshal(raw, &body) != nil {
		return ""
	}
	m, err := loop.ParseMessage(body.Message)
	if err != nil {
		return ""
	}
	if user, ok := m.(*loop.UserMessage); ok {
		return summary(user.Content)
	}
	return ""
}

func firstLine(text, otherwise string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line == "" {
		return otherwise
	}
	return safeLine(line, 2*argLimit)
}

func lineCount(text string) int {
	if strings.TrimSpace(text) == "" {
		return 0
	}
	return strings.Count(strings.TrimRight(text, "\n"), "\n") + 1
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// size is a number of bytes for people.
func size(n int) string {
	switch {
	case n < 1<<10:
		return plural(n, "byte")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
