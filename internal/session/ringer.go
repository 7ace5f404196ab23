package session

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/subjects"
)

// isRung says that an input is new and its publisher promised to ring by itself,
// after the broker's acknowledgement. If that was lost, the next delivery rings.
func isRung(m *nats.Msg) bool {
	if m.Header.Get(subjects.HeaderRings) == "" {
		return false
	}
	meta, err := m.Metadata()
	return err == nil && meta.NumDelivered == 1
}

// ringBatch is how many inputs the ringer takes at a time.
const ringBatch = 64

// Ringer rings for the inputs that lie in the inbox, again and again with
// growing delay, until their owner deletes them. So an input is never
// stranded, whoever published it and whatever became of its first bell. All
// workers run one; the broker shares the inputs between them. It blocks until
// ctx ends, and returns nil then.
func (s *Store) Ringer(ctx context.Context) error {
	p := &puller{store: s, stream: s.names.InboxStream(), consumer: subjects.ConsumerRinger, trouble: &s.ringing}
	defer func() { p.stop() }()
	for m := range s.pulls(ctx, p, func() int { return ringBatch }) {
		// Never acknowledged: the broker delivers it again, later each time,
		// and forgets it when it is deleted.
		session, _, err := s.names.ParseInput(m.Subject)
		if err != nil {
			continue
		}
		if isRung(m) {
			continue
		}
		if err := s.Ring(session); err != nil {
			s.log.Warn("ringing", "session", session, "error", err)
		}
	}
	if ctx.Err() == nil && s.nc.IsClosed() {
		return fmt.Errorf("session: ringing: %w", nats.ErrConnectionClosed)
	}
	return nil
}
