package main

import (
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// Two prefixes on one broker are two fleets: the same session in both has two
// logs, and neither's workers, lists and queues show the other's.
func TestPrefixesAreFleetsOfTheirOwn(t *testing.T) {
	red := newFleet(t, looptest.Text("this is red"))
	blue := &fleet{Env: red.Env, script: looptest.NewScript(looptest.Text("this is blue"), looptest.Text("this is blue")), names: subjects.Names{Prefix: "blue.two"}}
	t.Cleanup(func() { blue.script.Close() })
	if err := subjects.Ensure(t.Context(), blue.JS, blue.names, nil); err != nil {
		t.Fatal(err)
	}
	red.startWorker(t)
	blue.startWorker(t)
	red.cli(t, "prompt", "--session", "s1", "hello").want(t, exitOK, "this is red", "")
	blue.cli(t, "--prefix", "blue.two", "prompt", "--session", "s1", "hello").want(t, exitOK, "this is blue", "")
	blue.cli(t, "--prefix", "blue.two", "prompt", "--session", "only-blue", "hello").want(t, exitOK, "this is blue", "")

	red.cli(t, "show", "s1").want(t, exitOK, "this is red", "")
	shown := blue.cli(t, "--prefix", "blue.two", "show", "s1")
	shown.want(t, exitOK, "this is blue", "")
	if strings.Contains(shown.out, "this is red") {
		t.Errorf("blue's session shows red's: %s", shown.out)
	}
	listed := red.cli(t, "ps")
	listed.want(t, exitOK, "s1", "")
	if strings.Contains(listed.out, "only-blue") {
		t.Errorf("red's list shows blue's: %s", listed.out)
	}
	red.cli(t, "show", "only-blue").want(t, exitUnknown, "", "")
}
