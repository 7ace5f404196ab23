package main

import (
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"

	"charm.land/glamour/v2"

	"github.com/pi-worker/pi-worker/loop"
)

// passage is one part of a transcript, for all its written forms.
type passage struct {
	Kind string // "user", "assistant", "thinking", "call", "result", "error"
	Name string // of a tool
	Text string
}

// passages takes a transcript apart.
func passages(messages []loop.Message) (out []passage) {
	for _, m := range messages {
		switch m := m.(type) {
		case *loop.UserMessage:
			out = append(out, passage{Kind: "user", Text: withImages(m.Content)})
		case *loop.AssistantMessage:
			for _, block := range m.Content {
				switch b := block.(type) {
				case *loop.Thinking:
					out = append(out, passage{Kind: "thinking", Text: b.Thinking})
				case *loop.Text:
					out = append(out, passage{Kind: "assistant", Text: b.Text})
				case *loop.ToolCall:
					out = append(out, passage{Kind: "call", Name: b.Name, Text: indented(b.Arguments)})
				}
			}
			if m.ErrorMessage != "" {
				out = append(out, passage{Kind: "error", Text: m.ErrorMessage})
			}
		case *loop.ToolResultMessage:
			p := passage{Kind: "result", Name: m.ToolName, Text: withImages(m.Content)}
			if m.IsError {
				p.Kind = "error"
			}
			out = append(out, p)
		default:
			out = append(out, passage{Kind: "error", Text: "(" + m.Role() + " message)"})
		}
	}
	return out
}

func withImages(blocks []loop.Block) string {
	text, images := contentOf(blocks)
	if images > 0 {
		text += "\n[" + plural(images, "image") + "]"
	}
	return strings.TrimPrefix(text, "\n")
}

func indented(args json.RawMessage) string {
	var v any
	if json.Unmarshal(args, &v) != nil {
		return string(args)
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return string(args)
	}
	return string(b)
}

// markdown is a transcript as Markdown. What tools said is fenced, with a
// fence that is longer than any within.
func markdown(session string, messages []loop.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Session %s\n", session)
	for _, p := range passages(messages) {
		text := safeText(p.Text)
		switch p.Kind {
		case "user":
			b.WriteString("\n## User\n\n" + text + "\n")
		case "assistant":
			b.WriteString("\n## Assistant\n\n" + text + "\n")
		case "thinking":
			b.WriteString("\n> " + strings.ReplaceAll(text, "\n", "\n> ") + "\n")
		default:
			fence := fenceFor(text)
			fmt.Fprintf(&b, "\n**%s** %s\n\n%s\n%s\n%s\n", p.Kind, p.Name, fence, text, fence)
		}
	}
	return b.String()
}

func fenceFor(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence
}

// rendered is Markdown for a terminal.
func rendered(md string, width int) (string, error) {
	r, err := glamour.NewTermRenderer(glamour.WithStandardStyle("dark"), glamour.WithWordWrap(max(width-4, 20)))
	if err != nil {
		return "", fmt.Errorf("making the renderer: %w", err)
	}
	return r.Render(md)
}

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Session {{.Session}}</title>
<style>
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
section{margin:1rem 0;padding:.6rem 1rem;border-left:4px solid #bbb;overflow-wrap:anywhere}
h2{font-size:.8rem;margin:0;color:#666}pre{white-space:pre-wrap;margin:.3rem 0;font:inherit}
.user{border-color:#2563eb}.assistant{border-color:#16a34a}.error{border-color:#dc2626}.thinking{color:#666}
.call pre,.result pre,.error pre{font:.85rem/1.4 ui-monospace,monospace}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}h2,.thinking{color:#999}}
</style></head><body><h1>Session {{.Session}}</h1>
{{range .Passages}}<section class="{{.Kind}}"><h2>{{.Kind}} {{.Name}}</h2><pre>{{.Text}}</pre></section>
{{end}}</body></html>
`))

// writeHTML writes a transcript as one file that loads nothing and runs
// nothing.
func writeHTML(w io.Writer, session string, messages []loop.Message) error {
	err := page.Execute(w, struct {
		Session  string
		Passages []passage
	}{session, passages(messages)})
	if err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}
