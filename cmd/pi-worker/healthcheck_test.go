package main

import (
	"errors"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/subjects"
)

func TestHealthcheckFindsTheWorkerOfThisHost(t *testing.T) {
	env, ctx := natstest.Start(t, nil), t.Context()
	if err := subjects.Ensure(ctx, env.JS, subjects.Names{}, nil); err != nil {
		t.Fatal(err)
	}
	store, err := session.Open(ctx, env.NC, subjects.Names{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []session.Presence{
		{Worker: "here", Host: "box", Beat: time.Now()},
		{Worker: "before", Host: "box", Beat: time.Now().Add(-time.Hour)},
		{Worker: "gone", Host: "other", Beat: time.Now().Add(-time.Minute)},
	} {
		if err := store.PutPresence(ctx, &p); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ id, host, want string }{
		{"", "box", "here"}, {"here", "elsewhere", "here"},
		{"", "other", ""}, {"gone", "other", ""}, {"before", "box", ""}, {"absent", "box", ""}, {"", "nowhere", ""},
	} {
		p, err := findAlive(ctx, store, c.id, c.host)
		if c.want == "" {
			if !errors.Is(err, errUnhealthy) {
				t.Errorf("%q on %q: got %v, %v", c.id, c.host, p, err)
			}
			continue
		}
		if err != nil || p.Worker != c.want {
			t.Errorf("%q on %q: got %v, %v", c.id, c.host, p, err)
		}
	}
}
