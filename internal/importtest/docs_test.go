package importtest

import (
	"encoding/json"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
)

// fenced gives the lines of all code blocks of one kind.
func fenced(t *testing.T, doc, kind string) []string {
	t.Helper()
	var lines []string
	in := false
	for line := range strings.Lines(doc) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			in = line == "```"+kind
		case in:
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		t.Fatalf("no block of kind %s", kind)
	}
	return lines
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The protocol's examples are what the codec reads and writes.
func TestProtocolExamplesAreTheWire(t *testing.T) {
	doc := read(t, "docs/protocol.md")
	for _, line := range fenced(t, doc, "events") {
		ev, err := loop.ParseWire([]byte(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if _, unknown := ev.(*loop.UnknownEvent); unknown {
			t.Errorf("unknown event: %s", line)
		}
		// A block's end is written short only when the blocks are known, so
		// those lines are compared as far as they go.
		if got := string(loop.AppendWire(nil, ev)); got != line && !strings.Contains(line, `_end","contentIndex"`) {
			t.Errorf("written again:\n%s\nwant\n%s", got, line)
		}
	}
	for _, kind := range []string{"input", "abort", "queue", "approve", "blob", "checkpoint"} {
		for _, line := range fenced(t, doc, kind) {
			if !json.Valid([]byte(line)) {
				t.Errorf("no JSON: %s", line)
			}
		}
	}
	tr := &loop.Transcript{}
	for _, line := range fenced(t, doc, "events")[:22] {
		ev, err := loop.ParseWire([]byte(line))
		if err == nil {
			err = tr.Apply(ev)
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	if n := len(tr.Messages()); n != 3 || tr.Open() != nil {
		t.Errorf("the example folds to %d messages, open %v", n, tr.Open())
	}
}

// Every event type and every header that the code has is in the protocol.
func TestProtocolNamesEverything(t *testing.T) {
	doc := read(t, "docs/protocol.md")
	found := 0
	for _, s := range sources(t) {
		if s.test || s.dir != "loop" && s.dir != "subjects" {
			continue
		}
		for _, word := range words(s.file) {
			found++
			if !strings.Contains(doc, "`"+word+"`") && !strings.Contains(doc, `"`+word+`"`) {
				t.Errorf("docs/protocol.md does not mention %s (%s)", word, s.path)
			}
		}
	}
	if found < 25 {
		t.Errorf("found only %d words", found)
	}
}

var headerName = regexp.MustCompile(`^Pi-[A-Z][A-Za-z-]*$`)

// words are the values of EventType methods and the headers' names.
func words(f *ast.File) []string {
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Name.Name != "EventType" || n.Body == nil || len(n.Body.List) != 1 {
				return true
			}
			if ret, ok := n.Body.List[0].(*ast.ReturnStmt); ok {
				if lit, ok := ret.Results[0].(*ast.BasicLit); ok {
					out = append(out, unquote(lit.Value))
				}
			}
		case *ast.ValueSpec:
			for _, v := range n.Values {
				if lit, ok := v.(*ast.BasicLit); ok && headerName.MatchString(unquote(lit.Value)) {
					out = append(out, unquote(lit.Value))
				}
			}
		}
		return true
	})
	return out
}

func unquote(s string) string {
	text, err := strconv.Unquote(s)
	if err != nil {
		return ""
	}
	return text
}
