package looptest_test

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

//go:embed testdata/oracle.zip
var oracleZip []byte

// oracleFS is the oracle: the folder that LOOP_ORACLE_DIR names, or else the
// project's own copy.
func oracleFS() (fs.FS, error) {
	if dir := os.Getenv("LOOP_ORACLE_DIR"); dir != "" {
		return os.DirFS(dir), nil
	}
	return zip.NewReader(bytes.NewReader(oracleZip), int64(len(oracleZip)))
}

// suites are the oracle's pairs of folders.
var suites = []struct{ scenarios, expected string }{
	{"scenarios", "expected"},
	{"scenarios-responses", "expected-responses"},
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
	if err := writeDivergent(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if tally.ran {
		fmt.Printf("oracle: %d passed, %d failed, %d divergent\n", tally.passed, tally.failed, tally.divergent)
	}
	os.Exit(code)
}

// TestOracle replays what pi 0.73.1 did. A scenario in which pi is wrong is
// held to the better behaviour instead.
func TestOracle(t *testing.T) {
	fsys, err := oracleFS()
	if err != nil {
		t.Fatal(err)
	}
	tally.ran = true
	found := 0
	for _, suite := range suites {
		files, err := fs.Glob(fsys, suite.scenarios+"/*.json")
		if err != nil {
			t.Fatal(err)
		}
		found += len(files)
		for _, file := range files {
			name := strings.TrimSuffix(path.Base(file), ".json")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				testScenario(t, fsys, file, suite.expected+"/"+name+".json")
			})
		}
	}
	if found == 0 {
		t.Fatal("the oracle has no scenarios")
	}
}

// testScenario replays one file. changes are made to the scenario that must
// not change what comes out of it; then nothing is counted.
func testScenario(t *testing.T, fsys fs.FS, file, expectedFile string, changes ...func(*scenario)) {
	divergent := false
	t.Cleanup(func() {
		tally.Lock()
		defer tally.Unlock()
		switch {
		case len(changes) > 0:
		case t.Failed():
			tally.failed++
		case divergent:
			tally.divergent++
		default:
			tally.passed++
		}
	})
	var s scenario
	var want expectation
	readStrict(t, fsys, file, &s)
	readStrict(t, fsys, expectedFile, &want)
	if err := errors.Join(s.check(), want.check()); err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(&s)
	}
	var got *expectation
	synctest.Test(t, func(t *testing.T) { got = replay(t, &s) })
	if t.Failed() {
		return
	}
	checkInvariants(t, &s, got)
	divergent = s.Divergence != nil
	if divergent {
		checkDivergent(t, &s, got)
		return
	}
	if improve(&want) {
		divergent = true
	}
	for _, d := range compare(&s, got, &want) {
		t.Error(d)
	}
}

func readStrict(t *testing.T, fsys fs.FS, file string, v any) {
	t.Helper()
	b, err := fs.ReadFile(fsys, file)
	if err != nil {
		t.Fatal(err)
	}
	if err := strict(b, v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if !json.Valid(b) {
		t.Fatalf("%s: no JSON", file)
	}
}
