package tools

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// glob matches slash-separated paths: * and ? stop at a slash, ** does not,
// [..] is a class, {a,b} are alternatives, a backslash takes the next character
// as it is.
type glob struct {
	re *regexp.Regexp
	// suffix is set for the common form *.ext, literal for a plain name.
	suffix, literal string
}

const globMeta = `*?[]{}\`

// parseGlob compiles a glob. Braces are plain characters unless braces is set.
func parseGlob(pattern string, braces bool) (*glob, error) {
	switch rest, star := strings.CutPrefix(pattern, "*"); {
	case !strings.ContainsAny(pattern, globMeta) && pattern != "":
		return &glob{literal: pattern}, nil
	case star && rest != "" && !strings.ContainsAny(rest, globMeta+"/"):
		return &glob{suffix: rest}, nil
	}
	c := globCompiler{in: pattern, braces: braces}
	if err := c.compile(); err != nil {
		return nil, fmt.Errorf("error parsing glob '%s': %w", pattern, err)
	}
	re, err := regexp.Compile(`^(?s:` + c.out.String() + `)$`)
	if err != nil {
		return nil, fmt.Errorf("error parsing glob '%s'", pattern)
	}
	return &glob{re: re}, nil
}

func (g *glob) match(path string) bool {
	switch {
	case g.literal != "":
		return path == g.literal
	case g.suffix != "":
		return strings.HasSuffix(path, g.suffix) && !strings.Contains(path, "/")
	}
	return g.re.MatchString(path)
}

// globCompiler writes a glob as a regular expression.
type globCompiler struct {
	in     string
	braces bool
	at     int
	depth  int
	out    strings.Builder
}

func (c *globCompiler) compile() error {
	for c.at < len(c.in) {
		ch := c.in[c.at]
		c.at++
		switch {
		case ch == '*':
			c.star()
		case ch == '?':
			c.out.WriteString(`[^/]`)
		case ch == '[':
			if err := c.class(); err != nil {
				return err
			}
		case ch == '\\':
			if c.at == len(c.in) {
				return errors.New("dangling '\\'")
			}
			c.literal()
		case ch == '{' && c.braces:
			c.depth++
			c.out.WriteString(`(?:`)
		case ch == '}' && c.braces:
			if c.depth--; c.depth < 0 {
				return errors.New("unopened alternate group; missing '{'")
			}
			c.out.WriteString(`)`)
		case ch == ',' && c.depth > 0:
			c.out.WriteString(`|`)
		default:
			c.at--
			c.literal()
		}
	}
	if c.depth > 0 {
		return errors.New("unclosed alternate group; missing '}'")
	}
	return nil
}

// literal takes one character as it is.
func (c *globCompiler) literal() {
	_, n := utf8.DecodeRuneInString(c.in[c.at:])
	c.out.WriteString(regexp.QuoteMeta(c.in[c.at : c.at+n]))
	c.at += n
}

// star writes * or **. Two stars cross slashes only as a whole part of the
// path; elsewhere they are one.
func (c *globCompiler) star() {
	first := c.at == 1 || c.in[c.at-2] == '/' || c.in[c.at-2] == '{' || c.in[c.at-2] == ','
	n := 1
	for c.at < len(c.in) && c.in[c.at] == '*' {
		c.at++
		n++
	}
	rest := c.in[c.at:]
	switch {
	case n != 2 || !first:
		c.out.WriteString(`[^/]*`)
	case strings.HasPrefix(rest, "/"):
		c.at++
		c.out.WriteString(`(?:.*/)?`)
	case rest == "" || rest[0] == '}' || rest[0] == ',':
		c.out.WriteString(`.+`)
	default:
		c.out.WriteString(`[^/]*`)
	}
}

// class writes a character class.
func (c *globCompiler) class() error {
	start := c.at
	c.out.WriteByte('[')
	if c.at < len(c.in) && (c.in[c.at] == '!' || c.in[c.at] == '^') {
		c.out.WriteString(`^/`)
		c.at++
		start++
	}
	for c.at < len(c.in) {
		ch := c.in[c.at]
		c.at++
		switch {
		case ch == ']' && c.at-1 > start:
			c.out.WriteByte(']')
			return nil
		case ch == '\\' && c.at < len(c.in):
			if c.in[c.at] == '-' {
				c.out.WriteByte('\\')
			}
			c.literal()
		case ch == '[' || ch == ']' || ch == '^' || ch == '\\' || ch == '&' || ch == '~':
			c.out.WriteString(`\` + string(ch))
		default:
			c.out.WriteByte(ch)
		}
	}
	return errors.New("unclosed character class; missing ']'")
}
