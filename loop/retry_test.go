package loop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

func status(code int, retryAfter string) looptest.Reply {
	r := looptest.Reply{Status: code, Text: "trouble"}
	if retryAfter != "" {
		r.Headers = map[string]string{"Retry-After": retryAfter}
	}
	return r
}

func TestRetryShownAsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := &loop.Config{
			Model: looptest.NewModel(status(500, ""), status(429, ""), looptest.Text("hello")),
			Retry: loop.RetryPolicy{MaxRetries: 3, BaseDelay: time.Second, MaxDelay: time.Minute},
		}
		begin := time.Now()
		events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user auto_retry_start auto_retry_start assistant(stop) auto_retry_end turn_end agent_end")
		var sum time.Duration
		attempt := 0
		for _, ev := range events {
			switch ev := ev.(type) {
			case *loop.AutoRetryStart:
				attempt++
				if ev.Attempt != attempt || ev.MaxAttempts != 3 || ev.ErrorMessage == "" || ev.Class != "server" {
					t.Errorf("retry %d announced as %+v", attempt, ev)
				}
				full := time.Second << (attempt - 1)
				if ev.Delay > full || ev.Delay < full*3/4 {
					t.Errorf("delay %d is %v, want %v less up to a quarter", attempt, ev.Delay, full)
				}
				sum += ev.Delay
			case *loop.AutoRetryEnd:
				if !ev.Success || ev.Attempt != 2 || ev.FinalError != "" {
					t.Errorf("series ended as %+v", ev)
				}
			}
		}
		if d := time.Since(begin); d != sum {
			t.Errorf("waited %v, announced %v", d, sum)
		}
	})
}

func TestRetriesUsedUpEndWithTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := &loop.Config{
			Model: looptest.NewModel(status(500, ""), status(500, "")),
			Retry: loop.RetryPolicy{MaxRetries: 1},
		}
		events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user auto_retry_start auto_retry_end assistant(error) turn_end agent_end")
		for _, ev := range events {
			if end, ok := ev.(*loop.AutoRetryEnd); ok && (end.Success || end.FinalError == "") {
				t.Errorf("series ended as %+v", end)
			}
		}
	})
}

func TestClientErrorIsNotRetried(t *testing.T) {
	cfg := &loop.Config{
		Model: looptest.NewModel(status(400, "")),
		Retry: loop.RetryPolicy{MaxRetries: 5},
	}
	events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
	want(t, events, "agent_start turn_start user assistant(error) turn_end agent_end")
}

func TestRetryAfterHonouredUpToCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := loop.RetryPolicy{MaxRetries: 2, MaxRetryAfter: 90 * time.Second}
		cfg := &loop.Config{Model: looptest.NewModel(status(429, "90"), looptest.Text("hello")), Retry: policy}
		begin := time.Now()
		events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user auto_retry_start assistant(stop) auto_retry_end turn_end agent_end")
		if d := time.Since(begin); d != 90*time.Second {
			t.Errorf("waited %v, want the provider's 90 s", d)
		}
		cfg = &loop.Config{Model: looptest.NewModel(status(429, "91"), looptest.Text("never")), Retry: policy}
		begin = time.Now()
		events = collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user auto_retry_end assistant(error) turn_end agent_end")
		if d := time.Since(begin); d != 0 {
			t.Errorf("waited %v for a wish beyond the cap", d)
		}
		if end := events[4].(*loop.AutoRetryEnd); end.Success || end.Attempt != 0 || end.RetryAfter != 91*time.Second {
			t.Errorf("the provider's wish is not told: %+v", end)
		}
		failed := events[len(events)-1].(*loop.AgentEnd).Messages[1].(*loop.AssistantMessage)
		if me, ok := errors.AsType[*loop.ModelError](failed.Err); !ok || me.RetryAfter != 91*time.Second {
			t.Errorf("the answer's error is %#v, want the wish in a ModelError", failed.Err)
		}
	})
}

func TestAbortEndsTheRetryWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		cfg := &loop.Config{
			Model: looptest.NewModel(status(429, "50"), looptest.Text("never")),
			Retry: loop.RetryPolicy{MaxRetries: 2},
		}
		begin := time.Now()
		events := collect(t, loop.Run(ctx, cfg, nil, loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user auto_retry_start auto_retry_end assistant(aborted) turn_end agent_end")
		if d := time.Since(begin); d != time.Second {
			t.Errorf("the abort was seen after %v", d)
		}
	})
}

func TestMidStreamRetryOnlyByPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := looptest.Reply{Text: "one two three", CutAfter: 2}
		cfg := &loop.Config{
			Model: looptest.NewModel(cut),
			Retry: loop.RetryPolicy{MaxRetries: 2},
		}
		events := collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user assistant(error) turn_end agent_end")

		cfg.Model = looptest.NewModel(cut, cut, looptest.Text("whole"))
		cfg.Retry.MidStream = true
		events = collect(t, loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
		want(t, events, "agent_start turn_start user message_discarded auto_retry_start message_discarded auto_retry_start",
			"assistant(stop) auto_retry_end turn_end agent_end")
		attempt := 0
		for _, ev := range events {
			if d, ok := ev.(*loop.MessageDiscarded); ok {
				if attempt++; d.Attempt != attempt || d.Reason == "" {
					t.Errorf("discarded answer %d announced as %+v", attempt, d)
				}
			}
		}
		end := events[len(events)-1].(*loop.AgentEnd)
		if len(end.Messages) != 2 {
			t.Errorf("the discarded answer is among the run's %d messages", len(end.Messages))
		}
	})
}
