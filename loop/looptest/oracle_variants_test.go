package looptest_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"testing/synctest"
)

// variantsDir has scenarios of our own making, of the oracle's kinds, with what
// was judged to be right for each: from pi's public source where that is to be
// followed, from the notes where not. -update writes what the code does now;
// read the difference.
const variantsDir = "testdata/variants"

func TestOracleVariants(t *testing.T) {
	fsys := os.DirFS(variantsDir)
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
				testVariant(t, fsys, file, suite.expected+"/"+name+".json")
			})
		}
	}
	if found < 60 {
		t.Errorf("only %d variants", found)
	}
}

func testVariant(t *testing.T, fsys fs.FS, file, expectedFile string) {
	var s scenario
	readStrict(t, fsys, file, &s)
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	var got *expectation
	synctest.Test(t, func(t *testing.T) { got = replay(t, &s) })
	if t.Failed() {
		return
	}
	checkInvariants(t, &s, got)
	if *update {
		writeVariant(t, got, variantsDir+"/"+expectedFile)
		return
	}
	var want expectation
	readStrict(t, fsys, expectedFile, &want)
	if err := errors.Join(want.check()); err != nil {
		t.Fatal(err)
	}
	for _, d := range compare(&s, got, &want) {
		t.Error(d)
	}
}

func writeVariant(t *testing.T, got *expectation, file string) {
	t.Helper()
	if got.Requests == nil {
		got.Requests = []request{}
	}
	if got.ToolExecutions == nil {
		got.ToolExecutions = []any{}
	}
	if got.HookCalls == nil {
		got.HookCalls = []any{}
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	b = append([]byte(newIDs(string(b))), '\n')
	if err := errors.Join(os.MkdirAll(path.Dir(file), 0o755), os.WriteFile(file, b, 0o644)); err != nil {
		t.Fatal(err)
	}
}
