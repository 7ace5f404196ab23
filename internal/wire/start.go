package wire

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/subjects"
)

// The pauses between two attempts of Start.
const (
	startPause   = 100 * time.Millisecond
	longestPause = 3 * time.Second
)

// Start connects and creates the streams. A broker that is not there, or has no
// leader yet, is asked again for nats.start_timeout: workers and brokers may be
// started in any order. What only a person can put right ends it at once, as do
// the end of ctx and a timeout of 0 after the first attempt. The log says each
// trouble once.
func Start(ctx context.Context, cfg *config.Config, name string, force bool, log *slog.Logger) (*nats.Conn, error) {
	end := time.Now().Add(cfg.NATS.StartTimeout)
	said := ""
	for pause := startPause; ; pause = min(2*pause, longestPause) {
		nc, err := begin(ctx, cfg, name, force, log)
		if err == nil {
			return nc, nil
		}
		left := time.Until(end)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case left <= 0, !mayPass(err):
			return nil, err
		}
		if text := err.Error(); text != said {
			log.Warn("the broker is not ready, trying again", "error", text, "for", left.Round(time.Second))
			said = text
		}
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func begin(ctx context.Context, cfg *config.Config, name string, force bool, log *slog.Logger) (*nats.Conn, error) {
	nc, err := Connect(cfg.NATS, name, log)
	if err != nil {
		return nil, err
	}
	if err := Ensure(ctx, nc, cfg, force); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// mayPass says that nobody has to do anything: the broker, or a leader, may be
// there in a moment.
func mayPass(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.Code == 503 {
		return !errors.Is(err, subjects.ErrNoJetStream)
	}
	if _, ok := errors.AsType[*tlsError](err); ok {
		return false
	}
	return errors.Is(err, ErrUnreachable) || errors.Is(err, subjects.ErrUnreachable)
}
