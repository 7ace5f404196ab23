package loop_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

func agent(replies ...looptest.Reply) *loop.Agent {
	return loop.NewAgent(loop.AgentConfig{Config: loop.Config{Model: looptest.NewModel(replies...)}})
}

func TestAgentKeepsTheTranscriptAcrossRuns(t *testing.T) {
	a := agent(looptest.Text("one"), looptest.Text("two"))
	collect(t, a.Prompt(t.Context(), loop.NewUserText("first")))
	collect(t, a.Prompt(t.Context(), loop.NewUserText("second")))
	st := a.State()
	if len(st.Messages) != 4 || st.Running || st.Queued || st.ErrorMessage != "" {
		t.Errorf("state %+v", st)
	}
}

func TestAgentRefusesASecondRun(t *testing.T) {
	a := agent(looptest.Text("one"))
	for ev, err := range a.Prompt(t.Context(), loop.NewUserText("hi")) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.EventType() != "turn_start" {
			continue
		}
		if !a.State().Running {
			t.Error("not running within its run")
		}
		for _, run := range []func() error{
			func() error {
				_, err := looptest.Collect(a.Prompt(t.Context(), loop.NewUserText("me too")))
				return err
			},
			func() error { _, err := looptest.Collect(a.Continue(t.Context())); return err },
		} {
			if err := run(); !errors.Is(err, loop.ErrBusy) {
				t.Errorf("error %v, want ErrBusy", err)
			}
		}
	}
	if got := len(a.State().Messages); got != 2 {
		t.Errorf("%d messages after the disturbed run", got)
	}
}

func TestAgentContinueTakesAQueuedMessage(t *testing.T) {
	a := agent(looptest.Text("one"), looptest.Text("two"))
	if _, err := looptest.Collect(a.Continue(t.Context())); !errors.Is(err, loop.ErrContinue) {
		t.Errorf("error %v, want ErrContinue", err)
	}
	collect(t, a.Prompt(t.Context(), loop.NewUserText("hi")))
	if _, err := looptest.Collect(a.Continue(t.Context())); !errors.Is(err, loop.ErrContinue) {
		t.Errorf("error %v, want ErrContinue", err)
	}
	a.FollowUp(loop.NewUserText("later"))
	want(t, collect(t, a.Continue(t.Context())), "agent_start turn_start user assistant(stop) turn_end agent_end")
}

func TestAgentQueueModes(t *testing.T) {
	steerTwice := func(mode loop.QueueMode) int {
		a := loop.NewAgent(loop.AgentConfig{
			Config:       loop.Config{Model: looptest.NewModelFunc(func(*loop.Request) looptest.Reply { return looptest.Text("ok") })},
			SteeringMode: mode,
		})
		a.Steer(loop.NewUserText("one"))
		a.Steer(loop.NewUserText("two"))
		turns := 0
		for _, ev := range collect(t, a.Prompt(t.Context(), loop.NewUserText("hi"))) {
			if ev.EventType() == "turn_start" {
				turns++
			}
		}
		return turns
	}
	if got := steerTwice(""); got != 2 {
		t.Errorf("one at a time: %d turns, want 2", got)
	}
	if got := steerTwice(loop.All); got != 1 {
		t.Errorf("all: %d turns, want 1", got)
	}
}

func TestAgentAbortKeepsQueuesAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := agent(looptest.Reply{Text: "a long story", ChunkDelay: time.Hour})
		a.FollowUp(loop.NewUserText("later"))
		var wg sync.WaitGroup
		wg.Go(func() {
			for range a.Prompt(context.Background(), loop.NewUserText("hi")) {
			}
		})
		time.Sleep(90 * time.Minute)
		a.Abort()
		if err := a.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		st := a.State()
		if st.Running || !st.Queued || st.ErrorMessage != "Request was aborted" {
			t.Errorf("state %+v", st)
		}
		a.ClearQueues()
		if a.State().Queued {
			t.Error("something waits in a cleared queue")
		}
		a.Abort() // nothing to abort
	})
}

func TestAgentWaitEndsWithItsContext(t *testing.T) {
	hold := make(chan struct{})
	a := agent(looptest.Reply{Text: "x", Hold: hold})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for ev := range a.Prompt(t.Context(), loop.NewUserText("hi")) {
		if ev.EventType() == "message_update" {
			cancel()
			if err := a.Wait(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			break
		}
	}
	close(hold)
	if a.State().Running {
		t.Error("a run that was broken off is still running")
	}
}
