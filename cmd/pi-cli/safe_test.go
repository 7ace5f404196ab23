package main

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzSafeTextIsHarmless(f *testing.F) {
	for _, s := range []string{"plain", "a\x1b[2Jb", "\x9b31m", "\u202egpj.exe", "line\r\nline\rx", "\xff\xfe", "tab\tnew\n", "\x00\x7f", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		safe := safeText(s)
		if !utf8.ValidString(safe) {
			t.Fatalf("%q gives invalid %q", s, safe)
		}
		for _, r := range safe {
			if r != '\n' && r != '\t' && (r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069) {
				t.Fatalf("%q gives %q with %U", s, safe, r)
			}
		}
		if again := safeText(safe); again != safe {
			t.Fatalf("%q is changed twice: %q, %q", s, safe, again)
		}
		if line := safeLine(s, 10); strings.ContainsAny(line, "\n\t") || utf8.RuneCountInString(line) > 10 {
			t.Fatalf("%q gives the line %q", s, line)
		}
	})
}

func TestSafeTextKeepsOrdinaryText(t *testing.T) {
	for _, s := range []string{"", "plain", "Größe 🙂 漢字\n\tx", "e\u0301", "👩‍👩‍👧"} {
		if got := safeText(s); got != s {
			t.Errorf("%q is changed to %q", s, got)
		}
	}
	if got := safeText("a\r\nb"); got != "a\nb" {
		t.Errorf("a Windows line end gives %q", got)
	}
}
