package tools

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// edited makes one edit in a file with this content.
func edited(t testing.TB, w *Workspace, content, old, new string) (after, text string, failed bool) {
	t.Helper()
	if err := os.WriteFile(w.dir+"/f", []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	text, failed = call(t, w, "edit", map[string]any{"path": "f", "edits": []oneEdit{{old, new}}})
	b, err := os.ReadFile(w.dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	return string(b), text, failed
}

// TestEditKeepsCRLFAndBOMAndForeignBytes: LF text matches CRLF files; byte order
// mark, mixed line ends and bytes that are no UTF-8 stay.
func TestEditKeepsCRLFAndBOMAndForeignBytes(t *testing.T) {
	w := openTest(t, nil)
	for name, c := range map[string]struct{ before, old, new, after string }{
		"crlf":         {"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"},
		"bom":          {"\uFEFFa\r\nb\r\n", "a\nb\n", "c\n", "\uFEFFc\r\n"},
		"mixed":        {"a\nb\r\nc\rd\ne\r\n", "d", "D\nD", "a\nb\r\nc\rD\nD\ne\r\n"},
		"mixed, crlf":  {"a\nb\r\nc\r\n", "b\nc", "B\nC", "a\nB\r\nC\r\n"},
		"latin-1":      {"\xe9t\xe9 a\nb\xff\n", "a", "A", "\xe9t\xe9 A\nb\xff\n"},
		"utf-8 in old": {"\xffgr\u00fcn\n", "gr\u00fcn", "blau", "\xffblau\n"},
		"no newline":   {"a\r\nb", "b", "c\nd", "a\r\nc\r\nd"},
		"folded": {"x \u201cq\u201d\u00a0\r\n\u201ckeep\u201d \r\nsay \u2018hi\u2019 \u2014 now\r\n", "say 'hi' - now", "bye",
			"x \u201cq\u201d\u00a0\r\n\u201ckeep\u201d \r\nbye\r\n"},
		"inside a ligature": {"o\ufb03ce \u2014 x\n", "fice -", "F", "ofF x\n"},
		"trailing spaces":   {"a  \nb\t\nc \n", "a\nb\nc", "z", "z\n"},
	} {
		after, text, failed := edited(t, w, c.before, c.old, c.new)
		if failed || after != c.after {
			t.Errorf("%s: got %q, want %q (%s)", name, after, c.after, text)
		}
	}
	info, err := os.Stat(w.dir + "/f")
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestEditDiffIsBounded: the time grows with the number of different lines and
// not with its square (E10). Other work can hold this machine up, so the best
// of five ratios counts.
func TestEditDiffIsBounded(t *testing.T) {
	w := openTest(t, nil)
	edit := func(lines int) time.Duration {
		before := numbers(1, lines)
		start := time.Now()
		if _, text, failed := edited(t, w, "head\n"+before, before, strings.ReplaceAll(before, "\n", "x\n")); failed {
			t.Fatal(text)
		}
		return time.Since(start)
	}
	var ratio float64
	for range 5 {
		if ratio = float64(edit(20_000)) / float64(edit(2_000)); ratio < 30 {
			return
		}
	}
	t.Errorf("ten times the lines took %.0f times as long, five times over", ratio)
}

// TestDiffIsRight: applying a diff's parts to the old lines gives the new ones.
func TestDiffIsRight(t *testing.T) {
	for _, c := range [][2]string{
		{"", "a\n"}, {"a\n", ""}, {"a\nb\nc\n", "c\nb\na\n"}, {"a\nb", "a\nb\n"},
		{numbers(1, 50), numbers(20, 70)}, {"x\nx\nx\ny\n", "x\ny\nx\n"},
	} {
		a, b := splitKeep(c[0]), splitKeep(c[1])
		ia, ib := internLines(a, b)
		for _, parts := range [][]diffPart{lineDiff(a, b), plainDiff(ia, ib)} {
			var old, new []string
			i, j := 0, 0
			for _, p := range parts {
				switch p.kind {
				case diffRemoved:
					old, i = append(old, a[i:i+p.n]...), i+p.n
				case diffAdded:
					new, j = append(new, b[j:j+p.n]...), j+p.n
				default:
					if !slices.Equal(a[i:i+p.n], b[j:j+p.n]) {
						t.Fatalf("%q: lines called the same are not", c)
					}
					old, new, i, j = append(old, a[i:i+p.n]...), append(new, b[j:j+p.n]...), i+p.n, j+p.n
				}
			}
			if !slices.Equal(old, a) || !slices.Equal(new, b) {
				t.Errorf("%q: parts %v are not the texts", c, parts)
			}
		}
	}
}

// FuzzEdit: bytes outside the match stay as they are, and the new text is where
// the old one was.
func FuzzEdit(f *testing.F) {
	for _, s := range [][3]string{
		{"a\r\nb\r\nc", "b\n", "x\ny"}, {"\uFEFFsay \u201chi\u201d  \nend", "say \"hi\"\nend", "bye"},
		{"o\ufb03ce", "fi", "F"}, {"\xff\xfe a", "a", ""}, {"cafe\u0301 x", "caf\u00e9", "tea"}, {"aaa", "aa", "b"},
		{"a \n\n b", " b", "\r\n"}, {"\u1100\u1161\u11a8", "\uac01", "x"},
	} {
		f.Add([]byte(s[0]), s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, before []byte, old, new string) {
		e := editing{path: "f", edits: []oneEdit{{old, new}}}
		after, err := e.apply(bytes.Clone(before))
		if err != nil {
			return
		}
		r := e.found[0]
		if r.from > r.to || r.to > len(before) {
			t.Fatalf("range %d..%d of %d bytes", r.from, r.to, len(before))
		}
		if !bytes.HasPrefix(after, before[:r.from]) || !bytes.HasSuffix(after, before[r.to:]) ||
			len(after) != r.from+len(r.text)+len(before)-r.to {
			t.Fatalf("bytes outside %d..%d changed: %q -> %q", r.from, r.to, before, after)
		}
		want := strings.ReplaceAll(new, "\r\n", "\n")
		if got := strings.ReplaceAll(string(r.text), "\r\n", "\n"); !strings.Contains(got, want) {
			t.Fatalf("the new text %q is not in %q", want, got)
		}
		exact := unixText(old)
		if bytes.Contains(unixLines(bytes.TrimPrefix(before, utf8BOM)).text, exact) {
			if got := unixLines(before[r.from:r.to]).text; !bytes.Equal(got, exact) {
				t.Fatalf("an exact match replaced %q instead of %q", got, exact)
			}
		}
		text, _ := e.diff(before)
		if text == "" && !bytes.Contains(before, []byte("\r")) && !strings.Contains(new, "\r") {
			t.Fatal("no diff")
		}
	})
}

// FuzzDecoder: the decoder gives the same valid text however the bytes are cut.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte("a\xff\xfeb\xe2\x82c\xf0\x9f\x98d\xed\xa0\x80e\xc0\x80"), 3)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		want := decodeText(b)
		var d decoder
		var got []byte
		for rest, n := b, max(1, cut&15); len(rest) > 0; rest = rest[min(n, len(rest)):] {
			got = d.appendTo(got, rest[:min(n, len(rest))], false)
		}
		got = d.appendTo(got, nil, true)
		if string(got) != want || strings.ToValidUTF8(want, "?") != want {
			t.Fatalf("%q: got %q, want %q", b, got, want)
		}
	})
}
