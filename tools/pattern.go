package tools

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// linePattern finds the lines that match.
type linePattern struct {
	re *regexp.Regexp // nil: literal alone decides
	// literal is text that every matching line holds; nil if there is none.
	literal []byte
	fold    bool // literal is lower-case ASCII, and the case does not matter
}

// parsePattern compiles what grep looks for. A pattern never matches across
// lines.
func parsePattern(pattern string, literal, ignoreCase bool) (*linePattern, error) {
	if literal && !ignoreCase {
		if strings.Contains(pattern, "\n") {
			return nil, errLineBreak
		}
		return &linePattern{literal: []byte(pattern)}, nil
	}
	if literal {
		pattern = regexp.QuoteMeta(pattern)
	} else {
		if err := checkDialect(pattern); err != nil {
			return nil, err
		}
		pattern = wordBounds(unicodeClasses(dialect.Replace(pattern)))
	}
	if ignoreCase {
		pattern = "(?i:" + pattern + ")"
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("Invalid pattern: %w", err)
	}
	if holdsNewline(tree) {
		return nil, errLineBreak
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("Invalid pattern: %w", err)
	}
	p := &linePattern{re: re}
	p.literal, p.fold = required(tree.Simplify())
	if tree.Op == syntax.OpLiteral && tree.Flags&syntax.FoldCase == 0 {
		p.re = nil
	}
	return p, nil
}

var errLineBreak = errors.New("Invalid pattern: it holds a line break, but lines are searched one by one")

func holdsNewline(re *syntax.Regexp) bool {
	return re.Op == syntax.OpLiteral && slices.Contains(re.Rune, '\n') || slices.ContainsFunc(re.Sub, holdsNewline)
}

// required is the longest text that every match holds, but for the case if
// fold is set.
func required(re *syntax.Regexp) (text []byte, fold bool) {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return []byte(string(re.Rune)), false
		}
		return foldRun(re.Rune), true
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if t, f := required(sub); len(t) > len(text) {
				text, fold = t, f
			}
		}
	}
	return text, fold
}

// foldRun is the longest part of a literal in which only ASCII letters are the
// same but for the case. k and s have relatives outside ASCII.
func foldRun(literal []rune) []byte {
	var best, run []byte
	for _, r := range literal {
		lower := unicode.ToLower(r)
		if lower >= utf8.RuneSelf || lower == 'k' || lower == 's' {
			run = nil
			continue
		}
		run = append(run, byte(lower))
		if len(run) > len(best) {
			best = run
		}
	}
	return best
}

// haystack is where the literal is looked for: text itself, or a copy in lower
// case, which is made in buf.
func (p *linePattern) haystack(text, buf []byte) []byte {
	if !p.fold || len(p.literal) == 0 {
		return text
	}
	buf = append(buf[:0], text...)
	for i, c := range buf {
		if c-'A' < 26 {
			buf[i] = c | 0x20
		}
	}
	return buf
}

// unicodeClasses gives \w, \d and \s the meaning that they have in the
// expressions of pi's search: all of Unicode.
func unicodeClasses(pattern string) string {
	const digit, space = `\p{Nd}`, `\s\p{Z}\x{85}`
	var b strings.Builder
	inClass := false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		if c != '\\' || i+1 == len(pattern) {
			switch {
			case c == '[' && !inClass:
				inClass = true
				if rest := pattern[i+1:]; strings.HasPrefix(rest, "]") || strings.HasPrefix(rest, "^]") {
					n := strings.IndexByte(rest, ']') + 1
					b.WriteString(pattern[i : i+1+n])
					i += n
					continue
				}
			case c == ']':
				inClass = false
			}
			b.WriteByte(c)
			continue
		}
		i++
		class := map[byte]string{'w': word, 'd': digit, 's': space}[pattern[i]|0x20]
		negated := pattern[i] < 'a'
		switch {
		case class == "" || negated && inClass:
			b.WriteString(pattern[i-1 : i+1])
		case inClass:
			b.WriteString(class)
		case negated:
			b.WriteString("[^" + class + "]")
		default:
			b.WriteString("[" + class + "]")
		}
	}
	return b.String()
}

// next gives the bounds of the first matching line of text at or after from;
// -1 if there is none. The newline is not part of the line. hay is the text's
// haystack.
func (p *linePattern) next(text, hay []byte, from int) (start, end int) {
	for from < len(text) {
		at := from
		if len(p.literal) > 0 {
			i := bytes.Index(hay[from:], p.literal)
			if i < 0 {
				return -1, -1
			}
			at += i
			from += bytes.LastIndexByte(text[from:at], '\n') + 1
		}
		end := len(text)
		if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
			end = at + i
		}
		if p.re == nil || p.re.Match(text[from:end]) {
			return from, end
		}
		from = end + 1
	}
	return -1, -1
}
