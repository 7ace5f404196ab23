package openai

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

// TestOne429PausesTheKeyForAll: many runs with one key, one of which is told to
// wait: nothing is sent until then, each wait is seen, and all succeed with one
// retry allowed, because a wait for somebody else's limit is none.
func TestOne429PausesTheKeyForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := looptest.NewMemoryScript(looptest.Reply{Status: 429, Text: "slow down", Headers: map[string]string{"Retry-After": "30"}})
		script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("fine") })
		defer script.Close()
		var limiter Limiter
		began := time.Now()
		var mu sync.Mutex
		sent := map[string][]time.Duration{}
		script.OnRequest(func(r *looptest.Request) {
			mu.Lock()
			defer mu.Unlock()
			key := r.Header.Get("Authorization")
			sent[key] = append(sent[key], time.Since(began))
		})
		run := func(key string) []loop.Event {
			// Each run has a model of its own: what they share is the limiter.
			m, err := New(Config{BaseURL: script.BaseURL(), HTTPClient: script.Client(), APIKey: key,
				Info: loop.ModelInfo{ID: "m"}, Limiter: &limiter})
			if err != nil {
				t.Error(err)
				return nil
			}
			cfg := &loop.Config{Model: m, Retry: loop.RetryPolicy{MaxRetries: 1}}
			events, err := looptest.Collect(loop.Run(t.Context(), cfg, nil, loop.NewUserText("hi")))
			if err != nil {
				t.Error(err)
			}
			return events
		}
		var runs sync.WaitGroup
		runs.Go(func() { run("shared") })
		synctest.Wait() // it has been told to wait
		waits := 0
		for range 20 {
			runs.Go(func() {
				for _, ev := range run("shared") {
					switch ev := ev.(type) {
					case *loop.AutoRetryStart:
						mu.Lock()
						waits++
						mu.Unlock()
						if ev.Class != "rate_limited" || ev.Delay < 29*time.Second || !strings.Contains(ev.ErrorMessage, "not sent") {
							t.Errorf("a wait is shown as %+v", ev)
						}
					case *loop.AgentEnd:
						if a := ev.Messages[1].(*loop.AssistantMessage); a.StopReason != loop.StopStop {
							t.Errorf("a run ended with %s: %s", a.StopReason, a.ErrorMessage)
						}
					}
				}
			})
		}
		run("another")
		runs.Wait()
		if waits != 20 {
			t.Errorf("%d waits were shown, want one for each run", waits)
		}
		if at := sent["Bearer another"]; len(at) != 1 || at[0] != 0 {
			t.Errorf("the other key was used at %v, want at once", at)
		}
		at := sent["Bearer shared"]
		if len(at) != 22 || at[0] != 0 || at[1] < 30*time.Second {
			t.Errorf("the key was used %d times, at %v: want once, then not before 30 s", len(at), at)
		}
		if last := at[len(at)-1]; last-at[1] < time.Second {
			t.Errorf("all came back within %v", last-at[1])
		}
	})
}

// A provider that does not say for how long: the key rests for a moment, and a
// refusal that no wait will change lets nothing rest.
func TestRestWithoutAWish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter
		var told time.Duration
		l.Share(func(_ string, wait time.Duration) { told = wait })
		l.rest("a", &loop.ModelError{Class: classRateLimited, Status: 429})
		l.rest("a", &loop.ModelError{Class: classServer, Status: 500, Retryable: true, RetryAfter: time.Minute})
		if e := l.paused("a"); e != nil || told != 0 {
			t.Errorf("rests for %v, told %v", e, told)
		}
		l.rest("a", &loop.ModelError{Class: classRateLimited, Status: 429, Retryable: true})
		if e := l.paused("a"); e == nil || e.RetryAfter != time.Second || told != time.Second {
			t.Errorf("rests for %v, told %v", e, told)
		}
		if e := l.paused("b"); e != nil {
			t.Errorf("another key rests: %v", e)
		}
		time.Sleep(time.Second)
		if e := l.paused("a"); e != nil {
			t.Errorf("it still rests: %v", e)
		}
	})
}
