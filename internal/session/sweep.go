package session

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/subjects"
)

const (
	// keySweep is the key of AGENT_SESSIONS that was last written when blobs
	// were last swept.
	keySweep = "sweep"
	// blobGrace is how long a blob may be older than what refers to it.
	blobGrace = time.Hour
	// expiring begins the name, behind the session's, of a blob whose record
	// has a TTL.
	expiring = "u-"
)

// Sweep deletes the blobs that nothing refers to any more: those of records
// that expired or were trimmed, and of inputs and dead letters that are gone. It
// does nothing if a sweep began less than a time ago, here or elsewhere. It says
// how many it has deleted.
func (s *Store) Sweep(ctx context.Context, every time.Duration) (deleted int, err error) {
	if ok, err := s.takeSweep(ctx, every); !ok || err != nil {
		return 0, explain("asking for the last sweep", err)
	}
	old, err := s.oldBlobs(ctx)
	if err != nil {
		return 0, explain("listing blobs", err)
	}
	for session, blobs := range old {
		n, err := s.sweepSession(ctx, session, blobs)
		deleted += n
		if err != nil {
			return deleted, explain("sweeping the blobs of session "+session, err)
		}
	}
	return deleted, nil
}

// takeSweep says whether the sweep is ours: one of those who write over the
// same revision is.
func (s *Store) takeSweep(ctx context.Context, every time.Duration) (bool, error) {
	kv, err := s.bucket(ctx)
	if err != nil {
		return false, err
	}
	last, err := kv.Get(ctx, keySweep)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		_, err = kv.Create(ctx, keySweep, nil)
	case err != nil:
		return false, err
	case time.Since(last.Created()) < every:
		return false, nil
	default:
		_, err = kv.Update(ctx, keySweep, nil, last.Revision())
	}
	if errors.Is(err, jetstream.ErrKeyExists) || isLostRace(err) {
		return false, nil
	}
	return err == nil, err
}

// oldBlobs lists what is old enough to be looked at, by session.
func (s *Store) oldBlobs(ctx context.Context) (map[string][]*jetstream.ObjectInfo, error) {
	store, err := s.js.ObjectStore(ctx, s.names.BlobBucket())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := store.List(ctx)
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	old := map[string][]*jetstream.ObjectInfo{}
	for _, info := range list {
		session, _, ok := strings.Cut(info.Name, "/")
		if _, err := subjects.ParseSession(session); !ok || err != nil {
			continue // a stranger's
		}
		if time.Since(info.ModTime) > blobGrace {
			old[session] = append(old[session], info)
		}
	}
	return old, nil
}

func (s *Store) sweepSession(ctx context.Context, session string, blobs []*jetstream.ObjectInfo) (deleted int, err error) {
	used := map[string]bool{}
	for stream, subject := range map[string]string{
		s.names.InboxStream(): s.names.Inputs(session), s.names.DLQStream(): s.names.DLQ(session),
	} {
		if err := s.refersTo(ctx, stream, subject, used); err != nil {
			return 0, err
		}
	}
	begin, err := s.logBegin(ctx, session)
	if err != nil {
		return 0, err
	}
	for _, info := range blobs {
		if used[info.Name] || !s.isLeft(info, session, begin) {
			continue
		}
		if err := s.deleteBlob(ctx, info.Name); err != nil {
			return deleted, err
		}
		deleted++
	}
	return deleted, nil
}

// isLeft says that no record can refer to a blob: each is stored right before
// its record, and so those of what is there are not older than the log. Objects
// under a heading live as long as there is a log: their owner sweeps them. Outputs
// are as blobs are.
func (s *Store) isLeft(info *jetstream.ObjectInfo, session string, begin time.Time) bool {
	heading, _, below := strings.Cut(strings.TrimPrefix(info.Name, session+"/"), "/")
	if below && heading != HeadingOutput {
		return begin.IsZero()
	}
	if begin.IsZero() || info.ModTime.Add(blobGrace).Before(begin) {
		return true
	}
	ttl := s.opts.EphemeralTTL
	return strings.HasPrefix(info.Name, session+"/"+expiring) && ttl > 0 && time.Since(info.ModTime) > ttl+blobGrace
}

// refersTo notes the blobs that a stream's messages are references to.
func (s *Store) refersTo(ctx context.Context, stream, subject string, used map[string]bool) error {
	for seq := uint64(1); ; {
		m, err := s.next(ctx, stream, subject, seq)
		if errors.Is(err, errNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if ref, ok := parseBlob(m.data); ok {
			used[ref.Blob] = true
		}
		seq = m.seq + 1
	}
}

// logBegin is the time of a log's first record, zero without one. That there is
// none only the leader knows.
func (s *Store) logBegin(ctx context.Context, session string) (time.Time, error) {
	stream, subject := s.names.EventsStream(), s.names.Events(session)
	_, err := s.last(ctx, stream, subject)
	if errors.Is(err, errNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	first, err := s.next(ctx, stream, subject, 1)
	if errors.Is(err, errNotFound) {
		return time.Unix(0, 0), nil // a replica is behind: older than any blob
	}
	if err != nil {
		return time.Time{}, err
	}
	return first.time, nil
}
