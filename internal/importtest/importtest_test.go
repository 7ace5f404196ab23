package importtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/pi-worker/pi-worker"

// source is one parsed Go file of the module.
type source struct {
	path  string // from the module's root, with slashes
	dir   string
	test  bool
	lines int
	file  *ast.File
	fset  *token.FileSet
}

func (s *source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// sources parses every Go file of the module. Folders that the go command
// does not look at are left out.
func sources(t *testing.T) []*source {
	t.Helper()
	root := filepath.Join("..", "..")
	var out []*source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p != root && (name[0] == '.' || name[0] == '_' || name == "testdata" || name == "vendor") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil && p != root {
				return fs.SkipDir // another module
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		s, err := parse(root, p)
		out = append(out, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < len(table) {
		t.Fatalf("found %d files only", len(out))
	}
	return out
}

func parse(root, p string) (*source, error) {
	text, err := os.ReadFile(p)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, p)
	if err != nil {
		return nil, err
	}
	s := &source{path: filepath.ToSlash(rel), fset: token.NewFileSet(), lines: strings.Count(string(text), "\n")}
	s.dir, s.test = path.Dir(s.path), strings.HasSuffix(s.path, "_test.go")
	s.file, err = parser.ParseFile(s.fset, s.path, text, parser.ParseComments)
	return s, err
}

func TestImportsRunOneWay(t *testing.T) {
	for _, s := range sources(t) {
		r, ok := table[s.dir]
		if !ok {
			t.Errorf("%s: folder %s is not in the table", s.path, s.dir)
			continue
		}
		for _, spec := range s.file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if allowed(r, imported) || s.test && (allowed(testsMay, imported) || imported == module+"/"+s.dir) {
				continue
			}
			t.Errorf("%s: %s must not import %s", s.at(spec), s.dir, imported)
		}
	}
}

// allowed says whether the rule lets the import pass. The standard library
// is every path whose first element has no dot.
func allowed(r rule, imported string) bool {
	if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
		return slices.Contains(r.ours, ours)
	}
	first, _, _ := strings.Cut(imported, "/")
	if !strings.Contains(first, ".") {
		return imported != "C"
	}
	return slices.ContainsFunc(r.theirs, func(m string) bool {
		return imported == m || strings.HasPrefix(imported, m+"/")
	})
}

func TestAllowed(t *testing.T) {
	r := rule{ours: []string{"loop"}, theirs: []string{natsGo}}
	for imported, want := range map[string]bool{
		"context": true, "C": false, module + "/loop": true, module + "/loop/openai": false, module + "/config": false,
		natsGo: true, natsGo + "/jetstream": true, natsGo + "x": false, viper: false,
	} {
		if allowed(r, imported) != want {
			t.Errorf("%s: want %v", imported, want)
		}
	}
}

// The table itself must have no circle and no way from a lower to a higher
// folder, whatever the files import today.
func TestTableHasNoCircle(t *testing.T) {
	var visit func(dir string, above []string)
	visit = func(dir string, above []string) {
		if slices.Contains(above, dir) {
			t.Fatalf("circle: %v, %s", above, dir)
		}
		for _, next := range table[dir].ours {
			if _, ok := table[next]; !ok {
				t.Errorf("%s may import %s, which is not in the table", dir, next)
			}
			visit(next, append(slices.Clone(above), dir))
		}
	}
	for dir, r := range table {
		visit(dir, nil)
		above := strings.HasPrefix(dir, "cmd/") || dir == "internal/bench" || dir == "internal/chaos" || dir == "internal/wire"
		if slices.Contains(r.ours, "config") && !above {
			t.Errorf("%s may import config; only commands and internal/wire do", dir)
		}
	}
	if slices.Contains(table["client"].ours, "worker") || slices.Contains(table["worker"].ours, "client") {
		t.Error("client and worker never import each other")
	}
}

func TestNoDefaultLoggerBelowCmd(t *testing.T) {
	global := []string{"Default", "SetDefault", "Debug", "Info", "Warn", "Error", "Log", "LogAttrs",
		"DebugContext", "InfoContext", "WarnContext", "ErrorContext", "With"}
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.dir, "cmd/") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && isName(sel.X, "slog") && slices.Contains(global, sel.Sel.Name) {
				t.Errorf("%s: slog.%s uses the default logger", s.at(n), sel.Sel.Name)
			}
			return true
		})
	}
}

// Tests wait for what they wait for; time passes only in a bubble, where it
// costs nothing. Whether code runs in a bubble is seen by its place: inside
// a function that is handed to synctest.Test or to InBubble. Any other sleep
// must say on its line why it is there.
func TestNoSleepingTests(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		reasons := map[int]bool{}
		for _, c := range s.file.Comments {
			reasons[s.fset.Position(c.Pos()).Line] = true
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if isName(sel.X, "time") && sel.Sel.Name == "Sleep" && !reasons[s.fset.Position(n.Pos()).Line] {
				t.Errorf("%s: a test that sleeps outside a bubble", s.at(n))
			}
			return sel.Sel.Name != "InBubble" && (!isName(sel.X, "synctest") || sel.Sel.Name != "Test")
		})
	}
}

var subjectText = regexp.MustCompile(`^(agent(-bell|-dlq|-worker)?\.|AGENT_(INBOX|EVENTS|BELL|DLQ|BLOBS|SESSIONS)$|%s(-bell|-dlq|-worker)?\.)`)

// The words of subjects and streams are written in one place. The commands'
// help texts may mention them.
func TestSubjectsAreNamedInSubjects(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.dir == "subjects" || strings.HasPrefix(s.dir, "cmd/") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			if text, err := strconv.Unquote(lit.Value); err == nil && subjectText.MatchString(text) {
				t.Errorf("%s: %s belongs in package subjects", s.at(n), lit.Value)
			}
			return true
		})
	}
}

func TestFilesStayUnder500Lines(t *testing.T) {
	for _, s := range sources(t) {
		if s.lines >= 500 {
			t.Errorf("%s has %d lines", s.path, s.lines)
		}
	}
}

func TestEveryPackageHasAComment(t *testing.T) {
	has := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			has[s.dir] = has[s.dir] || s.file.Doc != nil
		}
	}
	for dir, ok := range has {
		if !ok {
			t.Errorf("package %s has no comment", dir)
		}
	}
}

func isName(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}
