package tools

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The patterns that models write for grep are in the dialect of pi's search
// program. Here is what Go's does not have of it, or reads otherwise.

// word is the inside of a class: the characters of words in all of Unicode.
const word = `\p{L}\p{M}\p{Nd}\p{Pc}`

// dialect rewrites escapes. The pair of backslashes comes first, so that what
// follows one is not taken for an escape.
var dialect = strings.NewReplacer(
	`\\`, `\\`,
	`\b{start}`, `\b`, `\b{end}`, `\b`, `\b{start-half}`, `\b`, `\b{end-half}`, `\b`, `\<`, `\b`, `\>`, `\b`,
	`\u{`, `\x{`, `\U{`, `\x{`,
)

var (
	errBrace  = errors.New(`Invalid pattern: "{" begins no repetition such as {2} or {2,5}; write \{ for the character, or use literal`)
	errNested = errors.New(`Invalid pattern: classes inside classes and && are not supported; write \[ or \& for the characters, or use literal`)
)

// checkDialect refuses what would silently mean something else.
func checkDialect(pattern string) error {
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '\\':
			i++
			if rest := pattern[min(i+1, len(pattern)):]; i < len(pattern) && strings.IndexByte("pPxuUb", pattern[i]) >= 0 && strings.HasPrefix(rest, "{") {
				i += 1 + max(0, strings.IndexByte(rest, '}')) // \p{Greek}
			}
		case '{':
			n := repetition(pattern[i:])
			if n == 0 {
				return errBrace
			}
			i += n - 1
		case '[':
			n, err := classLength(pattern[i:])
			if err != nil {
				return err
			}
			i += n - 1
		}
	}
	return nil
}

// repetition is the length of {2}, {2,} or {2,5} at the start of p; 0 for
// anything else.
func repetition(p string) int {
	end := strings.IndexByte(p, '}')
	if end < 0 {
		return 0
	}
	low, high, _ := strings.Cut(p[1:end], ",")
	digits := func(s string) bool { return strings.Trim(s, "0123456789") == "" }
	if low == "" || !digits(low) || !digits(high) {
		return 0
	}
	return end + 1
}

// classLength is the length of the class at the start of p. A class without an
// end is left to the parser.
func classLength(p string) (int, error) {
	i := 1
	for i < len(p) && (p[i] == '^' && i == 1 || p[i] == ']' && (i == 1 || i == 2 && p[1] == '^')) {
		i++
	}
	for ; i < len(p); i++ {
		switch rest := p[i:]; {
		case p[i] == '\\':
			i++
		case strings.HasPrefix(rest, "[:") && strings.Contains(rest, ":]"):
			i += strings.Index(rest, ":]") + 1
		case p[i] == '[', strings.HasPrefix(rest, "&&"):
			return 0, errNested
		case p[i] == ']':
			return i + 1, nil
		}
	}
	return len(p), nil
}

// wordBounds gives the commonest use of \b, around a whole word, the meaning
// that it has for letters outside ASCII too: Go's \b knows only those inside.
// Elsewhere \b stays as it is.
func wordBounds(pattern string) string {
	inner, before := strings.CutPrefix(pattern, `\b`)
	inner, after := strings.CutSuffix(inner, `\b`)
	plain := func(r rune) bool {
		return r == '_' || r == ' ' || unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Pc)
	}
	if !before && !after || inner == "" || strings.TrimFunc(inner, plain) != "" {
		return pattern
	}
	first, _ := utf8.DecodeRuneInString(inner)
	last, _ := utf8.DecodeLastRuneInString(inner)
	if first == ' ' || last == ' ' {
		return pattern
	}
	if before {
		inner = `(?:^|[^` + word + `])` + inner
	}
	if after {
		inner += `(?:$|[^` + word + `])`
	}
	return inner
}
