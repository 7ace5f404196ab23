package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

func TestShowAsMarkdownAndHTML(t *testing.T) {
	f := newFleet(t, looptest.Calls(looptest.Call{Name: "echo", Args: `{"say":"x"}`}), looptest.Text("**done**")).startWorker(t)
	f.cli(t, "prompt", "--session", "s", "go on").want(t, exitOK, "done", "")
	f.cli(t, "show", "--markdown", "s").want(t, exitOK, "# Session s\n\n## User\n\ngo on\n\n**call** echo\n\n```\n{\n  \"say\": \"x\"\n}\n```\n", "")
	f.cli(t, "show", "--html", "s").want(t, exitOK, `<section class="assistant"><h2>assistant </h2><pre>**done**</pre>`, "")
	f.cli(t, "show", "--html", "--json", "s").want(t, exitUsage, "", "only one of")
}

// hostile is a transcript whose texts try to get out of their place.
func hostile() []loop.Message {
	return []loop.Message{
		loop.NewUserText(`<script>alert(1)</script>`),
		&loop.ToolResultMessage{ToolName: `<img src=x>`, Content: []loop.Block{&loop.Text{Text: "```\n# not a title\n\x1b[2J"}}},
	}
}

// A page that is sent to somebody loads nothing and runs nothing.
func TestPageIsHarmless(t *testing.T) {
	var b bytes.Buffer
	if err := writeHTML(&b, "s", hostile()); err != nil {
		t.Fatal(err)
	}
	for _, never := range []string{"<script", "<img", "src=", "href=", "url("} {
		if strings.Contains(strings.ReplaceAll(b.String(), "&lt;img src=x&gt;", ""), never) {
			t.Errorf("the page has %s", never)
		}
	}
	if !strings.Contains(b.String(), "default-src 'none'") {
		t.Error("the page may load something")
	}
}

func TestMarkdownFencesWhatToolsSay(t *testing.T) {
	md := markdown("s", hostile())
	if !strings.Contains(md, "````\n```\n# not a title") || strings.Contains(md, "\x1b") {
		t.Errorf("a tool's result gets out of its fence:\n%s", md)
	}
	text, err := rendered("# Title\n\nsome **bold** words", 40)
	if err != nil || !strings.Contains(text, "Title") || strings.Contains(text, "**") {
		t.Errorf("rendered as %q, %v", text, err)
	}
}
