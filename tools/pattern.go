package tools

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// linePattern finds the lines that match.
type linePattern struct {
	re *regexp.Regexp // nil: literal alone decides
	// literal is text that every matching line holds; nil if there is none.
	literal []byte
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
		pattern = unicodeClasses(pattern)
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
	p := &linePattern{re: re, literal: required(tree.Simplify())}
	if tree.Op == syntax.OpLiteral && tree.Flags&syntax.FoldCase == 0 {
		p.re = nil
	}
	return p, nil
}

var errLineBreak = errors.New("Invalid pattern: it holds a line break, but lines are searched one by one")

func holdsNewline(re *syntax.Regexp) bool {
	return re.Op == syntax.OpLiteral && slices.Contains(re.Rune, '\n') || slices.ContainsFunc(re.Sub, holdsNewline)
}

// required is the longest text that every match holds.
func required(re *syntax.Regexp) []byte {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return []byte(string(re.Rune))
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpConcat:
		var best []byte
		for _, sub := range re.Sub {
			if lit := required(sub); len(lit) > len(best) {
				best = lit
			}
		}
		return best
	}
	return nil
}

// unicodeClasses gives \w, \d and \s the meaning that they have in the
// expressions of pi's search: all of Unicode.
func unicodeClasses(pattern string) string {
	const word, digit, space = `\p{L}\p{M}\p{Nd}\p{Pc}`, `\p{Nd}`, `\s\p{Z}\x{85}`
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
// -1 if there is none. The newline is not part of the line.
func (p *linePattern) next(text []byte, from int) (start, end int) {
	for from < len(text) {
		at := from
		if len(p.literal) > 0 {
			i := bytes.Index(text[from:], p.literal)
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
