package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// makeFiles writes a tree.
func makeFiles(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		p := dir + "/" + name
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestIgnoreRules holds the ignore files to git's rules.
func TestIgnoreRules(t *testing.T) {
	for _, c := range []struct {
		rules, path string
		isDir, want bool
	}{
		{"*.log", "a/b/x.log", false, true},
		{"/x", "x", false, true},
		{"/x", "a/x", false, false},
		{"a/x", "a/x", false, true},
		{"a/x", "b/a/x", false, false},
		{"**/x", "b/a/x", false, true},
		{"a/**/x", "a/x", false, true},
		{"a/**/x", "a/b/c/x", false, true},
		{"a/**", "a/b", false, true},
		{"a/**", "a", true, false},
		{"build/", "build", true, true},
		{"build/", "build", false, false},
		{"*.log\n!keep.log", "keep.log", false, false},
		{"!keep.log\n*.log", "keep.log", false, true},
		{"# comment\n\\#x", "#x", false, true},
		{"\\!x", "!x", false, true},
		{"x  ", "x", false, true},
		{"x\\ ", "x ", false, true},
		{"[a-c]?", "bz", false, true},
		{"[!a-c]?", "bz", false, false},
		{"{a,b}", "a", false, false}, // git has no braces
		{"*.{a", "x.{a", false, true},
		{"foo*bar", "foo/bar", false, false},
		{"a/*/c", "a/b/c", false, true},
		{"a/*/c", "a/b/d/c", false, false},
		{"x\r", "x", false, true},
		{"[", "[", false, false}, // broken rules are left out
	} {
		set := &ignoreSet{rules: parseIgnore(c.rules)}
		if got := set.ignores(c.path, c.isDir); got != c.want {
			t.Errorf("%q on %q: %v", c.rules, c.path, got)
		}
	}
}

// TestGlobs holds globs to what pi's search understands.
func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"*.{ts,js}", "a.js", true}, {"*.{ts,js}", "a.go", false}, {"{a,b{c,d}}x", "bdx", true},
		{"**", "a/b", true}, {"src/**", "src/a/b", true}, {"src/**", "src", false}, {"a**b", "axb", true}, {"a**b", "a/b", false},
		{"[]x]", "]", true}, {"[^a]", "b", true}, {"[a-]", "-", true}, {`\*`, "*", true}, {`\*`, "x", false}, {"?", "é", true},
		{"x.y", "xzy", false}, {"a+b(c)", "a+b(c)", true}, {"[[]", "[", true}, {"*", "a/b", false}, {"**/a", "a", true},
		{"日本*", "日本語", true},
	} {
		g, err := parseGlob(c.pattern, true)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		if got := g.match(c.path); got != c.want {
			t.Errorf("%q on %q: %v", c.pattern, c.path, got)
		}
	}
	for _, bad := range []string{"[", "[a", "{a", "a}", `a\`} {
		if _, err := parseGlob(bad, true); err == nil {
			t.Errorf("%q was taken for a glob", bad)
		}
	}
}

// FuzzGlob: no pattern panics, and one whose characters are all escaped matches
// itself and nothing else.
func FuzzGlob(f *testing.F) {
	for _, s := range []string{"*.{a,b}", "[!a-z]", "**/x", "a\\", "[\\d-]", "\uFFFD", "é[ü]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if g, err := parseGlob(s, true); err == nil {
			g.match("a/b")
		}
		parseIgnore(s)
		_, _ = parsePattern(s, false, true)
		if !utf8.ValidString(s) || s == "" {
			return
		}
		var escaped, class strings.Builder
		for _, r := range s {
			escaped.WriteString("\\" + string(r))
			class.WriteString("[\\" + string(r) + "]")
		}
		for _, pattern := range []string{escaped.String(), class.String()} {
			g, err := parseGlob(pattern, true)
			if err != nil || !g.match(s) || g.match(s+"x") || g.match("x"+s) {
				t.Fatalf("%q does not match just %q: %v", pattern, s, err)
			}
		}
	})
}

// TestGrepFindsWhatAPlainScanFinds compares the blocks of the reader with a
// plain split, across block borders and very long lines.
func TestGrepFindsWhatAPlainScanFinds(t *testing.T) {
	w := openTest(t, nil)
	var b strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&b, "line %d %s\n", i, strings.Repeat("x", i%37))
		if i == 30_000 {
			b.WriteString(strings.Repeat("y", 3*searchBlock) + " needle 7 \n")
		}
	}
	b.WriteString("last needle 9")
	content := b.String()
	makeFiles(t, w.dir, map[string]string{"f": content})
	for _, pattern := range []string{`needle`, `line 59\d99 `, `(?i)NEEDLE \d`, `x{36}$`, `^last`, `9$`} {
		text, failed := call(t, w, "grep", map[string]any{"pattern": pattern, "limit": 3})
		if failed {
			t.Fatal(text)
		}
		p, err := parsePattern(pattern, false, false)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for i, line := range strings.Split(content, "\n") {
			if p.re == nil && strings.Contains(line, pattern) || p.re != nil && p.re.MatchString(line) {
				want = append(want, fmt.Sprintf("f:%d: ", i+1))
			}
		}
		for i, line := range strings.Split(text, "\n")[:min(3, len(want))] {
			if !strings.HasPrefix(line, want[i]) {
				t.Errorf("%s: line %d is %.60q, want %q", pattern, i, line, want[i])
			}
		}
	}
}

// TestGrepOfVeryLongLines: the beginning of a line is searched, and the lines
// after it keep their numbers.
func TestGrepOfVeryLongLines(t *testing.T) {
	w := openTest(t, nil)
	long := "begin " + strings.Repeat("z", 3*maxLine) + " end\n"
	makeFiles(t, w.dir, map[string]string{"f": "1\n" + long + "3 hit\n" + long + long + "6 hit\n"})
	if text, failed := call(t, w, "grep", map[string]any{"pattern": "hit"}); failed || text != "f:3: 3 hit\nf:6: 6 hit" {
		t.Errorf("got %.300q", text)
	}
	for _, pattern := range []string{"", "^"} {
		text, _ := call(t, w, "grep", map[string]any{"pattern": pattern})
		if n := strings.Count(text, "\nf:") + 1; n != 6 {
			t.Errorf("%q: %d lines", pattern, n)
		}
	}
	if text, _ := call(t, w, "grep", map[string]any{"pattern": "3 hit", "context": 1}); !strings.HasPrefix(text, "f-2- begin zzz") || strings.Count(text, "\nf-4- begin") != 1 {
		t.Errorf("got %.300q", text)
	}
}

// TestReadOfManyLinesStreams: a large file of short lines costs little memory,
// whatever is asked of it.
func TestReadOfManyLinesStreams(t *testing.T) {
	w := openTest(t, nil)
	f, err := os.Create(w.dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	piece := bytes.Repeat([]byte{'\n'}, 1<<20)
	for range 60 {
		if _, err := f.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	before := peakMemory(t)
	text, failed := call(t, w, "read", map[string]any{"path": "f", "offset": 1000, "limit": 1})
	if want := fmt.Sprintf("\n\n[%d more lines in file. Use offset=1001 to continue.]", 60<<20-999); failed || text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	if grown := peakMemory(t) - before; grown > 20<<10 {
		t.Errorf("memory grew by %d KB", grown)
	}
}

// TestSearchIsSortedAndStopsAtItsLimit: the same question gets the same answer,
// the first in the order of the paths.
func TestSearchIsSortedAndStopsAtItsLimit(t *testing.T) {
	w := openTest(t, nil)
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("d%02d/f%03d", i%20, i)] = "hit\n"
	}
	makeFiles(t, w.dir, files)
	first, _ := call(t, w, "grep", map[string]any{"pattern": "hit", "limit": 20})
	for range 5 {
		if again, _ := call(t, w, "grep", map[string]any{"pattern": "hit", "limit": 20}); again != first {
			t.Fatalf("got\n%s\nafter\n%s", again, first)
		}
	}
	if !strings.HasPrefix(first, "d00/f000:1: hit\nd00/f020:1: hit\n") {
		t.Errorf("got %q", first)
	}
}

// TestSearchHeedsAbortAndTime: both end a search; the time limit keeps what was
// found.
func TestSearchHeedsAbortAndTime(t *testing.T) {
	w := openTest(t, &Options{Limits: Limits{SearchTime: time.Nanosecond}})
	makeFiles(t, w.dir, map[string]string{"a": "hit\n"})
	for _, tool := range []string{"grep", "find"} {
		text, failed := call(t, w, tool, map[string]any{"pattern": "hit"})
		if failed || !strings.Contains(text, "[Search stopped after its time limit, results are incomplete]") {
			t.Errorf("%s: %q", tool, text)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("stop"))
		if text, failed := callContext(ctx, t, openAt(t, w.dir), tool, map[string]any{"pattern": "hit"}, nil); !failed || text != "Operation aborted" {
			t.Errorf("aborted %s: %q", tool, text)
		}
	}
}

func openAt(t testing.TB, dir string) *Workspace {
	t.Helper()
	w, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// TestUnicodeClasses: \w, \d and \s are Unicode's, inside classes too.
func TestUnicodeClasses(t *testing.T) {
	for pattern, c := range map[string]struct{ yes, no string }{
		`^\w+$`: {"été", "a b"}, `^[\w-]+$`: {"é-x", "é x"}, `^\d+$`: {"٣4", "x"}, `^a\sb$`: {"a\u00a0b", "axb"},
		`^\W$`: {"-", "é"}, `^[^\w]$`: {"-", "é"}, `^\\w$`: {`\w`, "x"}, `^[]\d]+$`: {"]1", "x"},
	} {
		p, err := parsePattern(pattern, false, false)
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		if !p.re.MatchString(c.yes) || p.re.MatchString(c.no) {
			t.Errorf("%s: %q %v, %q %v", pattern, c.yes, p.re.MatchString(c.yes), c.no, p.re.MatchString(c.no))
		}
	}
}

// BenchmarkSearch20000Files measures grep and find, and ripgrep beside them
// when it is here, on a tree of 20,000 files.
func BenchmarkSearch20000Files(b *testing.B) {
	w := openTest(b, nil)
	files := map[string]string{".gitignore": "*.log\nbuild/\n"}
	body := strings.Repeat("func example(ctx context.Context) error { return nil } // some text\n", 60)
	for i := range 20_000 {
		files[fmt.Sprintf("pkg%02d/sub%02d/file%05d.go", i%40, i/40%25, i)] = fmt.Sprintf("%s// needle%05d\n", body, i)
	}
	makeFiles(b, w.dir, files)
	for name, args := range map[string]map[string]any{
		"literal":    {"pattern": "needle19999"},
		"regexp":     {"pattern": `needle\d*999\b`},
		"no literal": {"pattern": `[n]eedl[e]1999\d`},
		"ignoreCase": {"pattern": "NEEDLE19999", "ignoreCase": true},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if text, failed := call(b, w, "grep", args); failed || !strings.Contains(text, "needle") {
					b.Fatal(text)
				}
			}
		})
		b.Run(name+"/rg", func(b *testing.B) {
			flags := []string{"--no-require-git", "--hidden", "-n"}
			if args["ignoreCase"] == true {
				flags = append(flags, "-i")
			}
			for b.Loop() {
				cmd := exec.Command("rg", append(flags, args["pattern"].(string), ".")...)
				cmd.Dir = w.dir
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Skip(err, string(out))
				}
			}
		})
	}
	b.Run("find", func(b *testing.B) {
		for b.Loop() {
			if text, failed := call(b, w, "find", map[string]any{"pattern": "file19999.go"}); failed || !strings.Contains(text, "file19999.go") {
				b.Fatal(text)
			}
		}
	})
	b.Run("find/rg", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.Command("rg", "--no-require-git", "--hidden", "--files", "-g", "file19999.go")
			cmd.Dir = w.dir
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Skip(err, string(out))
			}
		}
	})
}
