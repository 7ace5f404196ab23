package tools

import (
	"io"
	"os"
	"path"
	"strings"
)

// ignoreFiles are read in every directory; what a later one says counts more.
// Nothing above the workspace and no user's global file is read.
var ignoreFiles = []string{".gitignore", ".ignore", ".rgignore", ".fdignore"}

// maxIgnoreFile is how much of an ignore file is read, in bytes.
const maxIgnoreFile = 1 << 20

// ignoreRule is one line of an ignore file.
type ignoreRule struct {
	glob    *glob
	negated bool
	dirOnly bool
	// byName rules look at the last part of the path only, others at the path
	// relative to the file's directory.
	byName bool
}

// ignoreSet is the rules of a directory, and by parent those above it.
type ignoreSet struct {
	parent *ignoreSet
	dir    string // relative to the workspace, "" for it
	rules  []ignoreRule
}

// ignoresIn adds the rules of a directory, which root is, to those above it.
func ignoresIn(root *os.Root, dir string, names map[string]bool, parent *ignoreSet) *ignoreSet {
	var rules []ignoreRule
	for _, name := range ignoreFiles {
		if names == nil || names[name] {
			rules = append(rules, parseIgnore(readSmall(root, name))...)
		}
	}
	if rules == nil {
		return parent
	}
	return &ignoreSet{parent, dir, rules}
}

// readSmall reads the beginning of a regular file; "" if there is none.
func readSmall(root *os.Root, name string) string {
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := root.OpenFile(name, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, maxIgnoreFile))
	if err != nil {
		return ""
	}
	return string(b)
}

// parseIgnore reads the lines of an ignore file; broken ones are left out.
func parseIgnore(text string) []ignoreRule {
	var rules []ignoreRule
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\uFEFF"), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if !strings.HasSuffix(line, `\ `) {
			line = strings.TrimRight(line, " \t")
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if r, ok := parseIgnoreRule(line); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

func parseIgnoreRule(line string) (r ignoreRule, ok bool) {
	line, r.negated = strings.CutPrefix(line, "!")
	line, r.dirOnly = strings.CutSuffix(line, "/")
	r.byName = !strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if rest, any := strings.CutPrefix(line, "**/"); any && !strings.Contains(rest, "/") && rest != "" {
		line, r.byName = rest, true
	}
	if line == "" {
		return r, false
	}
	g, err := parseGlob(line, false)
	r.glob = g
	return r, err == nil
}

// ignores says whether the rules leave out a path, which is relative to the
// workspace. The parents of the path are not looked at: the walk asked for them
// before.
func (s *ignoreSet) ignores(p string, isDir bool) bool {
	name := path.Base(p)
	for ; s != nil; s = s.parent {
		rel := p
		if s.dir != "" {
			rel = p[len(s.dir)+1:]
		}
		for i := len(s.rules) - 1; i >= 0; i-- {
			r := &s.rules[i]
			if r.dirOnly && !isDir {
				continue
			}
			subject := rel
			if r.byName {
				subject = name
			}
			if r.glob.match(subject) {
				return !r.negated
			}
		}
	}
	return false
}
