package main

import (
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// settledSession is one with a completed prompt that ps shows as idle.
func settledSession(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(t).startWorker(t)
	f.script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("the Po") })
	f.cli(t, "prompt", "--session", "s", "name a river").want(t, exitOK, "the Po", "")
	f.untilListed(t, "s")
	return f
}

func TestTailThatSawNothingExitsByTheSessionsState(t *testing.T) {
	f := settledSession(t)
	future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	f.cli(t, "tail", "--follow=false", "--from", future, "s").want(t, exitOK, "", "")
	f.cli(t, "tail", "--follow=false", "--from", "now", "s").want(t, exitOK, "", "")
}

func TestTailBeforeTheFirstRunIsUnsettled(t *testing.T) {
	f := newFleet(t)
	f.prompt(t, "s", "hi")
	f.cli(t, "tail", "--follow=false", "s").want(t, exitUnsettled, "", "")
}

func TestLogThatIsGoneIsTold(t *testing.T) {
	f := settledSession(t)
	stream, err := f.JS.Stream(t.Context(), subjects.Names{}.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"tail", "--follow=false", "s"}, {"tail", "--from", "start", "s"}, {"tail", "s"}, {"show", "s"}, {"show", "--json", "s"},
	} {
		f.cli(t, args...).want(t, exitOK, "", "are gone")
	}
}
