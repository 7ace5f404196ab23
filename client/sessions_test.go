package client_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
)

func TestSessionsOfSilentWorkersAreLost(t *testing.T) {
	b := newBundle(t)
	store, now := b.worker.store, time.Now()
	for worker, beat := range map[string]time.Time{"alive": now, "silent": now.Add(-2 * client.StaleAfter)} {
		if err := store.PutPresence(t.Context(), &session.Presence{Worker: worker, Beat: beat}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []session.Summary{
		{Session: "a", State: "running", Worker: "alive", Updated: now},
		{Session: "b", State: "running", Worker: "silent", Updated: now},
		{Session: "c", State: "running", Worker: "gone", Updated: now},
		{Session: "d", State: "idle", Worker: "gone", Updated: now},
	} {
		if err := store.PutSummary(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
	}
	sessions, err := b.c.Sessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": client.StateRunning, "b": client.StateLost, "c": client.StateLost, "d": client.StateIdle}
	for _, s := range sessions {
		if s.State != want[s.Session] {
			t.Errorf("session %s is %s, want %s", s.Session, s.State, want[s.Session])
		}
	}
	if len(sessions) != len(want) {
		t.Errorf("%d sessions, want %d", len(sessions), len(want))
	}
}

// WISHES 50: a session that no worker has had yet is in the list as well.
func TestSessionsThatWaitForTheirFirstWorkerAreListed(t *testing.T) {
	b := newBundle(t)
	idle := &session.Summary{Session: "known", State: client.StateIdle, Updated: time.Now()}
	if err := b.worker.store.PutSummary(t.Context(), idle); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"known", "new"} {
		if _, err := b.c.Prompt(t.Context(), id, loop.NewUserText("go"), nil); err != nil {
			t.Fatal(err)
		}
	}
	sessions, err := b.c.Sessions(t.Context())
	if err != nil || len(sessions) != 2 {
		t.Fatalf("%d sessions, %v", len(sessions), err)
	}
	for _, s := range sessions {
		if s.State != client.StateWaiting {
			t.Errorf("session %s is %s", s.Session, s.State)
		}
	}
}

// tenThousand has the summaries of ten thousand sessions.
func tenThousand(t testing.TB, b *bundle) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := range 10_000 {
		group.Go(func() error {
			return b.worker.store.PutSummary(ctx, &session.Summary{
				Session: fmt.Sprintf("s%05d", i), State: "running", Worker: "alive", Agent: "coder", Model: "m",
				Turn: 3, Tool: "bash", Tokens: 12345, Cost: 0.12, Updated: time.Now(),
			})
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// WISHES 50: the whole fleet from the broker alone, of ten thousand sessions
// too. What it takes on this machine is BenchmarkSessions; the bound here is
// for a machine that is busy with other things.
func TestTenThousandSessionsAreListed(t *testing.T) {
	b := newBundle(t)
	tenThousand(t, b)
	begun := time.Now()
	sessions, err := b.c.Sessions(t.Context())
	took := time.Since(begun)
	if err != nil || len(sessions) != 10_000 {
		t.Fatalf("%d sessions, %v", len(sessions), err)
	}
	t.Logf("10,000 sessions in %v", took)
	if took > 30*time.Second {
		t.Errorf("10,000 sessions took %v, want about a second", took)
	}
}

func BenchmarkSessions(b *testing.B) {
	bundle := newBundle(b)
	tenThousand(b, bundle)
	b.ReportAllocs()
	for b.Loop() {
		if sessions, err := bundle.c.Sessions(b.Context()); err != nil || len(sessions) != 10_000 {
			b.Fatalf("%d sessions, %v", len(sessions), err)
		}
	}
}
