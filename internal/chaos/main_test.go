package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestMain makes the test's binary a worker or a broker where a run asks for
// one.
func TestMain(m *testing.M) {
	if code, child := runChild(); child {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func chaos(t *testing.T, args ...string) (code int, line, told string) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var out, errOut bytes.Buffer
	code = mainCode(t.Context(), append(args, "-dir", t.TempDir()), &out, &errOut)
	return code, out.String(), errOut.String()
}

func TestNothingIsLostOrDoubledUnderFaults(t *testing.T) {
	code, line, told := chaos(t, "-seconds", "5", "-seed", "7", "-faults", "kill,stop,term,proxy", "-ack-wait", "1s", "-grace", "300ms",
		"-every", "1500ms", "-sessions", "8", "-workers", "3", "-pace", "10ms")
	if code != 0 || !strings.HasPrefix(line, "chaos: ok ") {
		t.Fatalf("exit code %d\n%s\n%s", code, line, told)
	}
	t.Log(line)
}

func TestPromptsOfASessionRunInOrderAndAlone(t *testing.T) {
	code, line, told := chaos(t, "-faults", "none", "-sessions", "20", "-prompts", "4", "-workers", "3", "-pace", "2ms")
	if code != 0 || !strings.Contains(line, " delivered=80 ") || !strings.Contains(line, " runs=80 settled=completed:80 ") {
		t.Fatalf("exit code %d\n%s\n%s", code, line, told)
	}
}

// TestWithoutTheFenceTheRunIsBroken shows that the checker can see. One freeze
// may hit a worker that has nothing to say when it wakes up, so more than one
// seed may be needed.
func TestWithoutTheFenceTheRunIsBroken(t *testing.T) {
	for seed := range 4 {
		code, line, _ := chaos(t, "-control", "-seconds", "4", "-seed", fmt.Sprint(seed+1), "-faults", "stop", "-ack-wait", "1s",
			"-every", "700ms", "-sessions", "16", "-workers", "2", "-patience", "2s")
		if code == 1 && strings.HasPrefix(line, "chaos: BROKEN ") {
			t.Log(line)
			return
		}
	}
	t.Fatal("no seed was reported as broken")
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{"-faults", "rain"}, {"-nodes", "2"}, {"-sessions", "0"}, {"-every", "0s"}, {"more"},
	} {
		var out, errOut bytes.Buffer
		if code := mainCode(t.Context(), args, &out, &errOut); code != 2 {
			t.Errorf("%q: exit code %d, %s%s", args, code, out.String(), errOut.String())
		}
	}
}
