package session

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/subjects"
)

// Remove deletes all of one session: inputs, bell, log, dead letters, summary
// and blobs. An owner that is at work is fenced by it and stops. What was
// never there is no error.
func (s *Store) Remove(ctx context.Context, session string) error {
	if _, err := subjects.ParseSession(session); err != nil {
		return err
	}
	// The inbox goes first, or a worker would begin the session anew.
	for _, part := range []struct{ stream, subject string }{
		{s.names.InboxStream(), s.names.Inputs(session)},
		{s.names.BellStream(), s.names.Bell(session)},
		{s.names.EventsStream(), s.names.Events(session)},
		{s.names.DLQStream(), s.names.DLQ(session)},
	} {
		stream, err := s.stream(ctx, part.stream)
		if err == nil {
			err = persist(ctx, func(ctx context.Context) error {
				return stream.Purge(ctx, jetstream.WithPurgeSubject(part.subject))
			})
		}
		if err != nil {
			return explain("removing session "+session+" from "+part.stream, err)
		}
	}
	kv, err := s.bucket(ctx)
	if err == nil {
		err = kv.Purge(ctx, keySession+session)
	}
	if err != nil {
		return explain("removing the summary of session "+session, err)
	}
	return explain("removing the blobs of session "+session, s.removeBlobs(ctx, session))
}

func (s *Store) removeBlobs(ctx context.Context, session string) error {
	store, err := s.js.ObjectStore(ctx, s.names.BlobBucket())
	if err != nil {
		return err
	}
	list, err := store.List(ctx)
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, info := range list {
		if !strings.HasPrefix(info.Name, session+"/") {
			continue
		}
		if err := s.deleteBlob(ctx, info.Name); err != nil {
			return err
		}
	}
	return nil
}
