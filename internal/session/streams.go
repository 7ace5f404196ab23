package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// streamsEvery is how often KeepStreams looks.
const streamsEvery = 10 * time.Second

// KeepStreams looks until ctx ends whether the streams and buckets are there, and
// makes again what somebody deleted. With the inbox or the logs goes all that
// was in them, and nobody can bring it back: new sessions go on in empty ones,
// the log says so, and Ready does until the next look.
func (s *Store) KeepStreams(ctx context.Context) {
	tick := time.NewTicker(streamsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.missing(ctx)
		if err == nil {
			s.streams.Store(nil)
			continue
		}
		s.streams.Store(&err)
		s.recreate(ctx)
	}
}

// missing names what is not there. An answer that does not come is none.
func (s *Store) missing(ctx context.Context) error {
	n := s.names
	var errs []error
	for _, part := range []struct{ stream, lost string }{
		{n.InboxStream(), "all inputs that waited are lost"},
		{n.EventsStream(), "the logs of all sessions are lost"},
		{n.DLQStream(), "all dead letters are lost"},
		{"OBJ_" + n.BlobBucket(), "all large payloads are lost"},
		{n.BellStream(), "nothing is lost"},
		{"KV_" + n.SessionsBucket(), "nothing but summaries is lost"},
		{"KV_" + n.FleetBucket(), "nothing is lost that is not said again"},
	} {
		ask, cancel := context.WithTimeout(ctx, requestTimeout)
		_, err := s.js.Stream(ask, part.stream)
		cancel()
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			s.log.Error("a stream was deleted; an empty one is made", "stream", part.stream, "meaning", part.lost)
			errs = append(errs, fmt.Errorf("stream %s was deleted: %s", part.stream, part.lost))
		}
	}
	return errors.Join(errs...)
}
