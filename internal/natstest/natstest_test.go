package natstest_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/pi-worker/pi-worker/internal/natstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStartAnswers(t *testing.T) {
	e := natstest.Start(t, nil)
	if _, err := e.JS.AccountInfo(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestBubbleExpiresInVirtualTime(t *testing.T) {
	began := time.Now()
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		s, err := e.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, MaxAge: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.JS.Publish(t.Context(), "s", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.State.Msgs != 0 {
			t.Errorf("%d messages after two hours, want none", info.State.Msgs)
		}
	})
	if d := time.Since(began); d > time.Minute {
		t.Errorf("two virtual hours took %v", d)
	}
}
