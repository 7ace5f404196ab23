package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestRenderGolden renders the stored events of each testdata/render/*.txtar
// and compares what came out on stdout and on stderr. An event's line may begin
// with "+DURATION ", the time since the event before it.
func TestRenderGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/render/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a := readArchive(t, file)
			out, chrome := renderArchive(t, a)
			if *update {
				a.set("out", out)
				a.set("chrome", chrome)
				a.write(t, file)
				return
			}
			if want := a.get("out"); out != want {
				t.Errorf("stdout is\n%s\nwant\n%s", out, want)
			}
			if want := a.get("chrome"); chrome != want {
				t.Errorf("stderr is\n%s\nwant\n%s", chrome, want)
			}
		})
	}
}

func renderArchive(t *testing.T, a *archive) (out, chrome string) {
	t.Helper()
	var outBuf, chromeBuf bytes.Buffer
	r := newRenderer(&outBuf, &chromeBuf, parseRenderOptions(t, a.get("options")))
	at := time.UnixMilli(1_700_000_000_000)
	var x loop.Expander
	for line := range strings.Lines(a.get("events")) {
		line = strings.TrimSpace(line)
		if after, rest, ok := strings.Cut(line, " "); ok && strings.HasPrefix(line, "+") {
			d, err := time.ParseDuration(after[1:])
			if err != nil {
				t.Fatal(err)
			}
			at, line = at.Add(d), rest
		}
		ev, err := loop.ParseWire([]byte(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		full, err := x.Expand(ev)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, ev := range full {
			r.Event(ev, at)
		}
	}
	r.Close()
	return showControls(outBuf.String()), showControls(chromeBuf.String())
}

// showControls makes escape sequences readable in a golden file, and says when
// the last newline is missing.
func showControls(s string) string {
	s = strings.NewReplacer("\x1b", `\e`, "\r", `\r`).Replace(s)
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\\no newline\n"
	}
	return s
}

func parseRenderOptions(t *testing.T, s string) renderOptions {
	t.Helper()
	var o renderOptions
	for _, word := range strings.Fields(s) {
		name, value, _ := strings.Cut(word, "=")
		n, _ := strconv.Atoi(value)
		switch name {
		case "terminal":
			o.Terminal, o.ChromeTerminal = true, true
		case "apart":
			o.Apart = true
		case "color":
			o.Color = true
		case "thinking":
			o.Thinking = true
		case "quiet":
			o.Quiet = true
		case "users":
			o.Users = true
		case "skip":
			o.SkipUsers = n
		case "columns":
			o.Columns = n
		case "rows":
			o.Rows = n
		default:
			t.Fatalf("no option %q", word)
		}
	}
	return o
}

// archive is a txtar file: a comment, then files.
type archive struct {
	comment string
	names   []string
	files   map[string]string
}

func readArchive(t *testing.T, file string) *archive {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	a := &archive{files: map[string]string{}}
	current := ""
	for line := range strings.Lines(string(b)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		if name, ok2 := strings.CutSuffix(name, " --"); ok && ok2 {
			current = name
			a.set(name, "")
			continue
		}
		if current == "" {
			a.comment += line
		} else {
			a.files[current] += line
		}
	}
	return a
}

func (a *archive) get(name string) string { return a.files[name] }

func (a *archive) set(name, data string) {
	if _, ok := a.files[name]; !ok {
		a.names = append(a.names, name)
	}
	a.files[name] = data
}

func (a *archive) write(t *testing.T, file string) {
	t.Helper()
	var b strings.Builder
	b.WriteString(a.comment)
	for _, name := range a.names {
		fmt.Fprintf(&b, "-- %s --\n%s", name, a.files[name])
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
