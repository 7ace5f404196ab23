package main

import (
	"strings"
	"sync"
	"testing"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

// WISHES 16, 19: what waits is listed, edited and cancelled by its id; a lost
// race is told the turn; a steer's sender can wait for its delivery.
func TestQueueIsListedEditedAndCancelled(t *testing.T) {
	release := make(chan struct{})
	f := newFleet(t,
		looptest.Reply{Text: "one", Calls: []looptest.Call{{Name: "echo"}}, Hold: release},
		looptest.Text("two"), looptest.Text("three"),
	).startWorker(t)
	first := f.prompt(t, "s", "go")
	f.until(t, "s", isTextDelta)

	var steered result
	var wg sync.WaitGroup
	wg.Go(func() { steered = f.cli(t, "steer", "--wait", "--json", "--id", "st", "s", "not that") })
	f.cli(t, "prompt", "-d", "--session", "s", "--id", "p2", "never mind").want(t, exitOK, "", "")
	f.cli(t, "prompt", "-d", "--session", "s", "--id", "p3", "worng").want(t, exitOK, "", "")

	listed := f.cli(t, "queue", "ls", "s")
	for _, want := range []string{"p2", "p3", "never mind", "worng"} {
		listed.want(t, exitOK, want, "")
	}
	f.cli(t, "queue", "rm", "s", "p2").want(t, exitOK, "", "p2 cancelled")
	f.cli(t, "queue", "edit", "s", "p3", "right").want(t, exitOK, "", "p3 edited")
	listed = f.cli(t, "queue", "ls", "s")
	if listed.want(t, exitOK, "right", ""); strings.Contains(listed.out, "never mind") || strings.Contains(listed.out, "worng") {
		t.Errorf("after the changes:\n%s", listed.out)
	}
	f.cli(t, "queue", "rm", "s", "p2").want(t, exitTooLate, "", "returned")
	f.cli(t, "queue", "rm", "s", first.ID).want(t, exitTooLate, "", "already_delivered: "+first.ID+" is in turn 1")
	f.cli(t, "queue", "rm", "s", "nobody").want(t, exitUnknown, "", "nobody")
	f.cli(t, "queue", "rm", "s").want(t, exitUsage, "", "usage")
	close(release)
	wg.Wait()
	steered.want(t, exitOK, `"fate":"delivered","turn":2`, "")
	f.cli(t, "tail", "s").want(t, exitOK, "three\n", "» right")
	f.cli(t, "queue", "ls", "s").want(t, exitOK, "SEQ", "")
}

// WISHES 19: what waits is reordered by id.
func TestQueueIsReordered(t *testing.T) {
	release := make(chan struct{})
	f := newFleet(t, looptest.Reply{Text: "one", Hold: release}, looptest.Text("two"), looptest.Text("three"), looptest.Text("four")).startWorker(t)
	first := f.prompt(t, "s", "go")
	f.until(t, "s", isTextDelta)
	for _, id := range []string{"p2", "p3", "p4"} {
		f.cli(t, "prompt", "-d", "--session", "s", "--id", id, "text of "+id).want(t, exitOK, "", "")
	}
	f.cli(t, "queue", "move", "s", "p4", "--first").want(t, exitOK, "", "p4 moved")
	f.cli(t, "queue", "move", "s", "p3", "--before", "p2").want(t, exitOK, "", "p3 moved")
	listed := f.cli(t, "queue", "ls", "s").out
	if a, b, c := strings.Index(listed, "p4"), strings.Index(listed, "p3"), strings.Index(listed, "p2"); a < 0 || a > b || b > c {
		t.Errorf("the order is not p4, p3, p2:\n%s", listed)
	}
	f.cli(t, "queue", "move", "s", first.ID, "--first").want(t, exitTooLate, "", "already_delivered: "+first.ID+" is in turn 1")
	f.cli(t, "queue", "move", "s", "p2", "--before", first.ID).want(t, exitUsage, "", "only a prompt")
	f.cli(t, "queue", "move", "s", "p2").want(t, exitUsage, "", "first")
	close(release)
	text := f.cli(t, "tail", "--from", "start", "s")
	text.want(t, exitOK, "four", "text of p2")
	if a, b, c := strings.Index(text.err, "text of p4"), strings.Index(text.err, "text of p3"), strings.Index(text.err, "text of p2"); a < 0 || a > b || b > c {
		t.Errorf("the prompts did not run as p4, p3, p2:\n%s", text.err)
	}
}

// WISHES 17: a prompt that repeats the id of a delivered steer is answered with
// that receipt.
func TestAnyReceiptCanBeAwaited(t *testing.T) {
	f := newFleet(t, looptest.Text("one"), looptest.Text("two"), looptest.Text("three")).startWorker(t)
	c := f.client(t)
	f.cli(t, "prompt", "--session", "s", "go").want(t, exitOK, "one", "")
	f.cli(t, "steer", "--wait", "--id", "x", "s", "and then").want(t, exitOK, "", "delivered in turn 1")
	again := &client.Receipt{Session: "s", Kind: client.KindPrompt, ID: "x", Seq: 99}
	if d, err := c.Await(t.Context(), again); err != nil || d.Fate != client.Delivered || d.Turn != 1 {
		t.Errorf("the repeated id: %+v, %v", d, err)
	}
	// Until the steer's run has settled, a follow-up would be its second turn.
	f.cli(t, "tail", "s").want(t, exitOK, "two", "")
	f.cli(t, "followup", "--wait", "s", "more").want(t, exitOK, "", "delivered in turn 1")
	f.cli(t, "tail", "s").want(t, exitOK, "three", "")
	if _, err := f.JS.Publish(t.Context(), "agent.s.steer", []byte(`{"id":"bad"}`)); err != nil {
		t.Fatal(err)
	}
	bad := &client.Receipt{Session: "s", Kind: client.KindSteer, Seq: 4}
	if d, err := c.Await(t.Context(), bad); err != nil || d.Fate != client.DeadLettered {
		t.Errorf("the malformed steer: %+v, %v", d, err)
	}
	abort, err := c.Abort(t.Context(), "s", client.QueueKeep)
	if err != nil || abort.Broker == "" {
		t.Fatalf("%+v, %v", abort, err)
	}
	if d, err := c.Await(t.Context(), abort); err != nil || d.Fate != client.Returned || d.Reason != "no_run" {
		t.Errorf("the abort: %+v, %v", d, err)
	}
}

func TestRemovedSessionIsUnknown(t *testing.T) {
	f := newFleet(t, looptest.Text("one"), looptest.Text("two")).startWorker(t)
	f.cli(t, "prompt", "--session", "s", "go").want(t, exitOK, "one", "")
	f.untilListed(t, "s")
	f.cli(t, "rm", "s").want(t, exitUsage, "", "--yes")
	f.cli(t, "show", "s").want(t, exitOK, "one", "")
	f.cli(t, "rm", "--yes", "s").want(t, exitOK, "", "removed")
	f.cli(t, "show", "s").want(t, exitUnknown, "", "s")
	if r := f.cli(t, "ps"); strings.Contains(r.out, "s ") {
		t.Errorf("ps still has it: %s", r.out)
	}
	f.cli(t, "prompt", "--session", "s", "anew").want(t, exitOK, "two", "")
}
