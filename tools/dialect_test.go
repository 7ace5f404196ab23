package tools

import "testing"

// TestPatternsAreThoseOfTheSearchProgram: what models write for pi's search
// means the same here, or is refused; it never silently means something else.
func TestPatternsAreThoseOfTheSearchProgram(t *testing.T) {
	const refused = "\x00"
	for _, c := range []struct{ pattern, line, other string }{
		{`foo{`, refused, ""}, {`{`, refused, ""}, {`x{,2}`, refused, ""}, {`func main() {`, refused, ""},
		{`[a-z&&[^f]]`, refused, ""}, {`[a[bc]]`, refused, ""}, {`[[]`, refused, ""}, {`[[=a=]]`, refused, ""},
		{`foo\{`, "foo{", "foo"}, {`x{2}`, "xx", "x{2}"}, {`x{2,}y{1,2}`, "xxxy", "xy"}, {`}`, "}", "{"}, {`[{]`, "{", "}"},
		{`\p{Greek}+`, "αβ", "ab"}, {`[[:alpha:]]{3}`, "abc", "a1"}, {`[]x]`, "]", "y"}, {`[^]x]`, "y", "]"}, {`[\[\]&]`, "[", "a"},
		{`\bété\b`, "un été là", "étés"}, {`\bcaf\b`, "caf x", "café"}, {`\bfoo`, "x foobar", "éfoo"}, {`foo\b`, "barfoo", "fooé"},
		{`\bfoo bar\b`, "a foo bar", "foo bars"}, {`\b`, "a", " "}, {`\b-\b`, "a-b", "a - b"}, {`x\bfoo|\bbar`, "bar", "xbar"},
		{`\<foo\>`, "a foo b", "foobar"}, {`\b{start}foo`, "foo", "xfoo"}, {`\\<foo`, `\<foo`, "foo"},
		{`\u{41}`, "A", "u"}, {`\\u{2}`, `\uu`, `\u`}, {`\/\"\!`, `/"!`, "x"},
	} {
		p, err := parsePattern(c.pattern, false, false)
		if (err != nil) != (c.line == refused) {
			t.Errorf("%s: %v", c.pattern, err)
		}
		if err != nil {
			continue
		}
		matches := func(line string) bool {
			i, _ := p.next([]byte(line), p.haystack([]byte(line), nil), 0)
			return i >= 0
		}
		if !matches(c.line) || matches(c.other) {
			t.Errorf("%s: matches %q %v, %q %v", c.pattern, c.line, matches(c.line), c.other, matches(c.other))
		}
	}
}

// TestGlobOfADirectory: a glob that ends in a slash is about directories.
func TestGlobOfADirectory(t *testing.T) {
	w := openTest(t, nil)
	makeFiles(t, w.dir, map[string]string{"sub/a": "foo\n", "b": "foo\n", "k/sub": "foo\n"})
	text, _ := call(t, w, "grep", map[string]any{"pattern": "foo", "glob": "!sub/"})
	if text != "b:1: foo\nk/sub:1: foo" {
		t.Errorf("got %q", text)
	}
}
