package client_test

import (
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/internal/session"
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
