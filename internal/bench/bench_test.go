package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestMain also is the children of the runs that the tests make.
func TestMain(m *testing.M) {
	if code, child := runChild(); child {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// The command must not rot: the figures without a long measurement, with all
// the processes.
func TestQuickRunHasEveryRow(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	var out, errOut bytes.Buffer
	if code := mainCode(t.Context(), []string{"-quick", "-only", "1,2,3"}, &out, &errOut); code != 0 {
		t.Fatalf("code %d\n%s", code, errOut.String())
	}
	for _, row := range []string{"1 worker CPU", "2 events per second", "3 bytes per answer of 100000 tokens"} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q in\n%s", row, out.String())
		}
	}
}

func TestRowSaysWhetherTheTargetIsMet(t *testing.T) {
	var out bytes.Buffer
	rows := []row{
		row{Figure: "good", Value: 1, Unit: "ms"}.against(2).want("ratio <= 1", true),
		row{Figure: "bad", Value: 3, Unit: "ms"}.against(2).want("ratio <= 1", false),
		skipped("none", "not installed"),
	}
	if err := printRows(&out, &options{}, rows); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if !strings.Contains(lines[1], "0.5") || !strings.Contains(lines[1], " ok") {
		t.Errorf("met: %q", lines[1])
	}
	if !strings.Contains(lines[2], "1.5") || !strings.Contains(lines[2], "NOT MET") {
		t.Errorf("missed: %q", lines[2])
	}
	if !strings.Contains(lines[3], "skipped: not installed") || strings.Contains(lines[3], " ok") {
		t.Errorf("skipped: %q", lines[3])
	}
}

func TestModelFindsTheLastPrompt(t *testing.T) {
	want := answer{tokens: 3, turns: 2, pace: 20_000_000, stamp: true}
	body := `{"messages":[{"role":"user","content":"` + answer{tokens: 9}.prompt() + `"},{"role":"tool"},` +
		`{"role":"user","content":"` + want.prompt() + `"},{"role":"tool"}]}`
	got, done, ok := parseAnswer([]byte(body))
	if !ok || got != want || done != 1 {
		t.Errorf("%+v after %d tool results (%t), want %+v after 1", got, done, ok, want)
	}
}
