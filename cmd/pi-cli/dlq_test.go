package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

// WISHES 8: whatever is given up is in the dead letters, with the reason and
// the whole input, and can be sent again.
func TestDeadLettersAreListedShownAndSentAgain(t *testing.T) {
	f := newFleet(t, looptest.Text("at last"), looptest.Text("at last too"), looptest.Text("after all")).startWorker(t)
	f.cli(t, "prompt", "--session", "s", "--id", "mine", "--agent", "late", "who are you").want(t, exitDeadLetter, "", "dead_letter")
	f.cli(t, "prompt", "--session", "s", "--agent", "late", "and you").want(t, exitDeadLetter, "", "dead_letter")
	if _, err := f.JS.Publish(t.Context(), "agent.bad.prompt", []byte(`{"message": broken`)); err != nil {
		t.Fatal(err)
	}
	f.cli(t, "prompt", "--session", "bad", "go on").want(t, exitOK, "at last", "")

	all := f.cli(t, "dlq", "ls")
	all.want(t, exitOK, "unknown_agent", "")
	all.want(t, exitOK, "malformed", "")
	if n := strings.Count(all.out, "\n"); n != 4 {
		t.Errorf("%d lines, want a head and three letters:\n%s", n, all.out)
	}
	if one := f.cli(t, "dlq", "ls", "bad"); strings.Count(one.out, "\n") != 2 {
		t.Errorf("of one session:\n%s", one.out)
	}
	shown := f.cli(t, "dlq", "show", "1")
	for _, want := range []string{"s\n", "unknown_agent", "mine", "who are you", "late"} {
		shown.want(t, exitOK, want, "")
	}
	var letter struct {
		client.DeadLetter
		Input struct{ ID string }
	}
	asJSON := f.cli(t, "dlq", "show", "--json", "1")
	if err := json.Unmarshal([]byte(asJSON.out), &letter); err != nil || letter.Reason != "unknown_agent" || letter.Attempts != 1 || letter.Input.ID != "mine" {
		t.Errorf("%s: %v", asJSON.out, err)
	}
	f.cli(t, "dlq", "show", "--raw", "3").want(t, exitOK, `{"message": broken`, "")

	f.late.Store(true)
	f.cli(t, "dlq", "redrive", "3").want(t, exitRefused, "", "malformed")
	f.cli(t, "dlq", "rm", "3").want(t, exitOK, "", "removed")
	f.cli(t, "dlq", "show", "3").want(t, exitUnknown, "", "3")
	f.cli(t, "dlq", "redrive", "nonsense").want(t, exitUsage, "", "dlq ls")

	for _, again := range []struct {
		args   []string
		sameID bool
		text   string
	}{{[]string{"dlq", "redrive", "--json", "--same-id", "1"}, true, "at last too"}, {[]string{"dlq", "redrive", "--json", "2"}, false, "after all"}} {
		r := f.cli(t, again.args...)
		r.want(t, exitOK, "", "")
		var receipt client.Receipt
		if err := json.Unmarshal([]byte(r.out), &receipt); err != nil || (receipt.ID == "mine") != again.sameID {
			t.Fatalf("%s: %v", r.out, err)
		}
		res, err := f.client(t).Wait(t.Context(), &receipt)
		if err != nil || res.Text != again.text {
			t.Errorf("redriven: %+v, %v, want %q", res, err, again.text)
		}
	}
	if left := f.cli(t, "dlq", "ls"); strings.Count(left.out, "\n") != 1 {
		t.Errorf("letters are left:\n%s", left.out)
	}
	// The id has had its effect now.
	f.cli(t, "prompt", "--session", "s", "--id", "mine", "once more")
	if shown := f.cli(t, "show", "s"); strings.Contains(shown.out, "once more") {
		t.Errorf("the id had a second effect:\n%s", shown.out)
	}
}

// What a list cuts, show has whole.
func TestADeadLetterIsShownWithItsWholeReason(t *testing.T) {
	f := newFleet(t).startWorker(t)
	agent := strings.Repeat("no-such-agent-", 4)
	f.cli(t, "prompt", "--session", "s", "--agent", agent, "hi").want(t, exitDeadLetter, "", "dead_letter")
	f.cli(t, "dlq", "show", "1").want(t, exitOK, "unknown agent: "+agent+"\n", "")
}
