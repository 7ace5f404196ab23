package wire_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/internal/wire"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
	"github.com/pi-worker/pi-worker/worker"
)

// The model calls for ever: what ends a run is the stricter of what its profile
// and its prompt say.
func TestPromptCanOnlyLowerLimits(t *testing.T) {
	e := natstest.Start(t, nil)
	script := looptest.NewScript()
	defer script.Close()
	script.Otherwise(func(*looptest.Request) looptest.Answer {
		return looptest.Calls(looptest.Call{Name: "ls", Args: "{}"})
	})
	cfg := load(t, `
worker: {workspace: {mode: temp}}
agents:
  default: {model: m, base_url: "`+script.BaseURL()+`", tools: [ls], limits: {turns: 4}}
`)
	if err := subjects.Ensure(t.Context(), e.JS, subjects.Names{}, wire.EnsureOptions(cfg)); err != nil {
		t.Fatal(err)
	}
	a := wire.NewAgents(cfg, slog.New(slog.DiscardHandler))
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	w, err := worker.New(t.Context(), a.Worker(e.NC, ""))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for id, c := range map[string]struct {
		limits string
		turns  int
	}{
		"lower":  {`{"turns":2}`, 2},
		"higher": {`{"turns":99}`, 4},
		"none":   {`{"turns":0}`, 4},
	} {
		if got, outcome := turns(t, e, id, c.limits); got != c.turns || outcome != loop.OutcomeLimit {
			t.Errorf("%s: %d turns, outcome %s; want %d and limit", id, got, outcome, c.turns)
		}
	}
}

// turns runs a prompt with limits of its own.
func turns(t *testing.T, e *natstest.Env, id, limits string) (n int, outcome loop.Outcome) {
	t.Helper()
	store, err := session.Open(t.Context(), e.NC, subjects.Names{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := &session.Input{Message: loop.NewUserText("go")}
	in.Options.Extra = extra(t, `{"limits":`+limits+`}`)
	if _, err := store.Publish(t.Context(), id, subjects.KindPrompt, in); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for rec, err := range store.Tail(ctx, id, session.From{Start: true, Wait: true}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range rec.Events {
			switch ev := ev.(type) {
			case *loop.TurnEnd:
				n++
			case *loop.AgentSettled:
				return n, ev.Outcome
			}
		}
	}
	return n, ""
}
