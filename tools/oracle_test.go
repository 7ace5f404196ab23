package tools

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
)

//go:embed testdata/oracle.zip
var oracleZip []byte

// oracleFS is the oracle: the folder that TOOL_ORACLE_DIR names, or else the
// project's own copy.
func oracleFS() (fs.FS, error) {
	if dir := os.Getenv("TOOL_ORACLE_DIR"); dir != "" {
		return os.DirFS(dir), nil
	}
	return zip.NewReader(bytes.NewReader(oracleZip), int64(len(oracleZip)))
}

// tally counts the results; TestMain prints it as the last line.
var tally struct {
	sync.Mutex
	ran                       bool
	passed, failed, divergent int
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if tally.ran {
		fmt.Printf("oracle: %d passed, %d failed, %d divergent\n", tally.passed, tally.failed, tally.divergent)
	}
	os.Exit(code)
}

// alone has the working directory, which belongs to the whole process.
var alone sync.RWMutex

// TestOracle replays what pi's tools did. Where the oracle's notes ask for
// better behaviour, that is what is checked.
func TestOracle(t *testing.T) {
	fsys, err := oracleFS()
	if err != nil {
		t.Fatal(err)
	}
	tally.ran = true
	testOracle(t, fsys, true)
}

// TestOracleVariants replays testdata/more, calls that were not recorded: what
// they answer was concluded from those that were.
func TestOracleVariants(t *testing.T) { testOracle(t, os.DirFS("testdata/more"), false) }

func testOracle(t *testing.T, fsys fs.FS, counts bool) {
	files, err := fs.Glob(fsys, "cases/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "cases/"), ".json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			divergent := false
			defer func() {
				tally.Lock()
				defer tally.Unlock()
				switch {
				case !counts:
				case t.Failed():
					tally.failed++
				case divergent:
					tally.divergent++
				default:
					tally.passed++
				}
			}()
			var c oracleCase
			var want oracleResult
			readOracle(t, fsys, file, &c)
			readOracle(t, fsys, path.Join("expected", name+".json"), &want)
			divergent = testCase(t, name, &c, &want)
		})
	}
}

func readOracle(t *testing.T, fsys fs.FS, name string, v any) {
	t.Helper()
	raw, err := fs.ReadFile(fsys, name)
	if err == nil {
		err = decodeStrict(raw, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func testCase(t *testing.T, name string, c *oracleCase, want *oracleResult) (divergent bool) {
	if !slices.Contains([]string{"", "exact", "lines-any-order", "subset", "contains", "error-only"}, c.Compare.Text) ||
		!slices.Contains([]string{"", "dimensions"}, c.Compare.Image) {
		t.Fatalf("unknown compare rule %q, %q", c.Compare.Text, c.Compare.Image)
	}
	s := newSandbox(t)
	if err := s.build(c); err != nil {
		t.Fatal(err)
	}
	before, err := s.filesAfter()
	if err != nil {
		t.Fatal(err)
	}
	expect, known := betterBehaviour[name]
	if !known && c.Tool == "bash" && c.Advice == "confine" && bestIsolation() != isolateReaper {
		expect = private(expect)
	}
	run := s.runCase(t, c, expect.options)
	got, err := s.result(c, run)
	if err != nil {
		t.Fatal(err)
	}
	for _, diff := range invariants(c, s, run) {
		t.Error(diff)
	}
	var diffs []string
	switch c.Advice {
	case "match", "loose":
		diffs = compareResult(c, run, got, want)
	case "fix", "confine":
		divergent = true
		if known {
			diffs = expect.check(c, run, got, before)
		} else {
			diffs = genericBehaviour(c, run, got, before)
		}
		if got.Survivors != nil && len(*got.Survivors) > 0 {
			diffs = append(diffs, fmt.Sprint("survivors: ", *got.Survivors))
		}
	default:
		t.Fatalf("unknown advice %q", c.Advice)
	}
	for _, diff := range diffs {
		t.Error(diff)
	}
	return divergent
}

func (s *sandbox) runCase(t *testing.T, c *oracleCase, change func(*Options)) *rawRun {
	t.Helper()
	if c.ProcessCwd == "" {
		alone.RLock()
		defer alone.RUnlock()
	} else {
		alone.Lock()
		defer alone.Unlock()
		was, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chdir(s.places.Replace(c.ProcessCwd)); err != nil {
			t.Fatal(err)
		}
		defer os.Chdir(was)
	}
	var run *rawRun
	var err error
	switch {
	case c.RunAs == "nobody" && os.Geteuid() == 0:
		run, err = s.runAs(t, c)
	case c.RunAs == "" || c.RunAs == "nobody":
		run, err = s.run(c, change)
	default:
		t.Fatalf("unknown user %q", c.RunAs)
	}
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// invariants hold for every result.
func invariants(c *oracleCase, s *sandbox, run *rawRun) []string {
	var diffs []string
	if run.Took > 20*time.Second {
		diffs = append(diffs, fmt.Sprintf("took %v", run.Took))
	}
	for _, call := range run.Calls {
		if len(call.Content) == 0 {
			diffs = append(diffs, "no content")
		}
		for _, b := range call.Content {
			switch {
			case !utf8.ValidString(b.Text):
				diffs = append(diffs, "text is no UTF-8")
			case len(b.Text) > maxBytes+8192:
				diffs = append(diffs, fmt.Sprintf("text of %d bytes", len(b.Text)))
			case c.Tool != "bash" && strings.Contains(b.Text, s.dir) && !strings.Contains(string(c.Args), "$"):
				diffs = append(diffs, "the host's path is shown: "+b.Text)
			}
		}
	}
	return diffs
}

// TestSpecs compares names, labels and schemas with pi's. write and edit run
// one at a time, which pi leaves to a queue (W6).
func TestSpecs(t *testing.T) {
	fsys, err := oracleFS()
	if err != nil {
		t.Fatal(err)
	}
	var schemas struct {
		Tools map[string]struct {
			Name, Label         string
			Parameters          any
			HasPrepareArguments bool
		}
	}
	raw, err := fs.ReadFile(fsys, "schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &schemas); err != nil {
		t.Fatal(err)
	}
	w, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	list, err := w.Tools()
	if err != nil {
		t.Fatal(err)
	}
	d := &comparer{}
	equal(d, "number of tools", len(list), len(schemas.Tools))
	for _, tool := range list {
		spec := tool.Spec()
		want := schemas.Tools[spec.Name]
		equal(d, "name", spec.Name, want.Name)
		equal(d, "label", spec.Label, want.Label)
		equal(d, "parameters of "+spec.Name, withoutDescriptions(canonical(spec.Parameters)), withoutDescriptions(want.Parameters))
		if len(spec.Description) < 40 {
			d.differ("%s has no description", spec.Name)
		}
	}
	for _, diff := range d.diffs {
		t.Error(diff)
	}
}

func withoutDescriptions(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		if list, ok := v.([]any); ok {
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		return v
	}
	if _, ok := m["description"].(string); ok {
		delete(m, "description")
	}
	for k := range m {
		m[k] = withoutDescriptions(m[k])
	}
	return m
}
