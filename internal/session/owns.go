package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/subjects"
)

// ownsTimeout is how long a worker may take to say that a session is its own.
const ownsTimeout = time.Second

type ownsJSON struct {
	Owns bool `json:"owns"`
}

// ServeOwns answers the other workers' question whether this one runs a
// session, until stop is called. owns must not block.
func (s *Store) ServeOwns(worker string, owns func(session string) bool) (stop func() error, err error) {
	if _, err := subjects.ParseSession(worker); err != nil {
		return nil, fmt.Errorf("worker id: %w", err)
	}
	sub, err := s.nc.Subscribe(s.names.Owns(worker), func(m *nats.Msg) {
		b, err := json.Marshal(ownsJSON{Owns: owns(string(m.Data))})
		if err == nil {
			err = m.Respond(b)
		}
		if err != nil {
			s.log.Warn("answering whose session it is", "session", string(m.Data), "error", err)
		}
	})
	if err != nil {
		return nil, explain("serving the owner question", err)
	}
	return sub.Unsubscribe, nil
}

// AskOwns asks a worker whether it runs the session right now. Nobody there,
// and no answer within a second, both are a no.
func (s *Store) AskOwns(ctx context.Context, worker, session string) (bool, error) {
	if _, err := subjects.ParseSession(worker); err != nil {
		return false, nil // no worker has such an id
	}
	ask, cancel := context.WithTimeout(ctx, ownsTimeout)
	defer cancel()
	m, err := s.nc.RequestWithContext(ask, s.names.Owns(worker), []byte(session))
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return false, nil
	case err != nil:
		return false, explain("asking worker "+worker, err)
	}
	var answer ownsJSON
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return false, fmt.Errorf("session: asking worker %s: %w", worker, err)
	}
	return answer.Owns, nil
}
