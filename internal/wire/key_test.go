package wire_test

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/secret"
	"github.com/pi-worker/pi-worker/internal/wire"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
	"github.com/pi-worker/pi-worker/worker"
)

// A key's file may change while a run goes on: the next request has the new
// one, nobody is restarted, and the new one is masked as well.
func TestKeyIsReadAgainWhenItsFileChanges(t *testing.T) {
	e := natstest.Start(t, nil)
	file := write(t, "key", []byte("the-first-key\n"))
	script := looptest.NewScript()
	defer script.Close()
	script.OnRequest(func(r *looptest.Request) {
		if r.Number == 1 {
			if err := os.WriteFile(file, []byte("the-second-key\n"), 0o600); err != nil {
				t.Error(err)
			}
		}
	})
	script.Add(looptest.Calls(looptest.Call{Name: "ls", Args: "{}"}), looptest.Text("done"))
	cfg := load(t, `
worker: {workspace: {mode: temp}}
agents:
  default: {model: m, base_url: "`+script.BaseURL()+`", tools: [ls], api_key_file: `+file+`}
`)
	if err := subjects.Ensure(t.Context(), e.JS, subjects.Names{}, wire.EnsureOptions(cfg)); err != nil {
		t.Fatal(err)
	}
	mask := secret.New(wire.Secrets(cfg)...)
	a := wire.NewAgents(cfg, slog.New(slog.DiscardHandler)).Masking(mask)
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
	if n, outcome := turns(t, e, "s1", `{}`); n != 2 || outcome != loop.OutcomeCompleted {
		t.Fatalf("%d turns, outcome %s", n, outcome)
	}
	for i, want := range []string{"Bearer the-first-key", "Bearer the-second-key"} {
		if got := script.Requests()[i].Header.Get("Authorization"); got != want {
			t.Errorf("request %d has %q, want %q", i+1, got, want)
		}
	}
	if got := mask.Text("the-first-key the-second-key"); got != "[secret] [secret]" {
		t.Errorf("masked: %q", got)
	}
}
