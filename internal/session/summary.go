package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// Keys of AGENT_SESSIONS.
const (
	keySession = "session."
	keyWorker  = "worker."
)

// Summary is what ps shows of a session: derived from its log, disposable.
type Summary struct {
	Session string       `json:"session"`
	State   string       `json:"state"` // "running", "approval", "waiting" or "idle"
	Worker  string       `json:"worker,omitempty"`
	Epoch   string       `json:"epoch,omitempty"`
	Seq     uint64       `json:"seq,omitempty"` // Pi-Seq of the log's last durable record
	Agent   string       `json:"agent,omitempty"`
	Model   string       `json:"model,omitempty"`
	Parent  string       `json:"parent,omitempty"`  // "session/run" that the open or last run is below
	Turn    int          `json:"turn,omitempty"`    // of the open run, from 1
	Tool    string       `json:"tool,omitempty"`    // that runs now
	Prompts int          `json:"prompts,omitempty"` // settled in all
	Outcome loop.Outcome `json:"outcome,omitempty"` // of the last settled prompt
	Cost    float64      `json:"cost,omitempty"`    // of all prompts, US dollars
	Tokens  int64        `json:"tokens,omitempty"`  // of all prompts
	Started time.Time    `json:"started,omitzero"`  // of the open run
	Updated time.Time    `json:"updated"`
}

// Presence is what a worker says of itself, once in a while.
type Presence struct {
	Worker  string    `json:"worker"`
	Version string    `json:"version,omitempty"`
	Host    string    `json:"host,omitempty"`
	Running int       `json:"running"` // sessions
	Slots   int       `json:"slots"`   // sessions at most
	Started time.Time `json:"started"`
	Beat    time.Time `json:"beat"` // one that is old belongs to a dead worker
}

// PutSummary replaces the session's summary.
func (s *Store) PutSummary(ctx context.Context, sum *Summary) error {
	return s.put(ctx, keySession, sum.Session, sum)
}

// PutPresence replaces the worker's presence.
func (s *Store) PutPresence(ctx context.Context, p *Presence) error {
	return s.put(ctx, keyWorker, p.Worker, p)
}

// bucket gives AGENT_SESSIONS, which is looked up once.
func (s *Store) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	if kv := s.summaries.Load(); kv != nil {
		return *kv, nil
	}
	var kv jetstream.KeyValue
	err := persist(ctx, func(ctx context.Context) (err error) {
		kv, err = s.js.KeyValue(ctx, s.names.SessionsBucket())
		return err
	})
	if err != nil {
		return nil, err
	}
	s.summaries.Store(&kv)
	return kv, nil
}

func (s *Store) put(ctx context.Context, key, id string, v any) error {
	if _, err := subjects.ParseSession(id); err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("session: encoding %s%s: %w", key, id, err)
	}
	kv, err := s.bucket(ctx)
	if err == nil {
		_, err = kv.Put(ctx, key+id, b)
	}
	return explain("writing "+key+id, err)
}

// DeletePresence takes a worker's presence back.
func (s *Store) DeletePresence(ctx context.Context, worker string) error {
	kv, err := s.bucket(ctx)
	if err == nil {
		err = kv.Purge(ctx, keyWorker+worker)
	}
	return explain("deleting a presence", err)
}

// Summary reads one session's. ErrUnknownSession without one.
func (s *Store) Summary(ctx context.Context, session string) (*Summary, error) {
	sum, err := s.summary(ctx, session)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, fmt.Errorf("%w: %s", ErrUnknownSession, session)
	}
	return sum, explain("reading a summary", err)
}

// summary reads one.
func (s *Store) summary(ctx context.Context, session string) (*Summary, error) {
	kv, err := s.bucket(ctx)
	if err != nil {
		return nil, err
	}
	var entry jetstream.KeyValueEntry
	err = persist(ctx, func(ctx context.Context) (err error) {
		entry, err = kv.Get(ctx, keySession+session)
		return err
	})
	if err != nil {
		return nil, err
	}
	var sum Summary
	return &sum, json.Unmarshal(entry.Value(), &sum)
}

// Summaries lists all sessions' summaries, in no order.
func (s *Store) Summaries(ctx context.Context) iter.Seq2[*Summary, error] {
	return list[Summary](ctx, s, keySession)
}

// Workers lists the presences of all workers, in no order.
func (s *Store) Workers(ctx context.Context) iter.Seq2[*Presence, error] {
	return list[Presence](ctx, s, keyWorker)
}

// list reads all values whose key has the prefix, by one watcher.
func list[T any](ctx context.Context, s *Store, prefix string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		kv, err := s.bucket(ctx)
		if err != nil {
			yield(nil, explain("listing", err))
			return
		}
		w, err := kv.Watch(ctx, prefix+"*", jetstream.IgnoreDeletes())
		if err != nil {
			yield(nil, explain("listing", err))
			return
		}
		defer w.Stop()
		for {
			var entry jetstream.KeyValueEntry
			select {
			case entry = <-w.Updates():
			case <-ctx.Done():
				yield(nil, explain("listing", context.Cause(ctx)))
				return
			}
			if entry == nil {
				return // that was the last one there is
			}
			v := new(T)
			if err := json.Unmarshal(entry.Value(), v); err != nil {
				continue // not ours; derived data is no reason to stop
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}
