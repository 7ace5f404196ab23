package session

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/subjects"
)

const (
	// slowBehind is how many records a slow reader has before it.
	slowBehind = 1000
	// maxReaders is how many readers are looked at.
	maxReaders = 1024
)

// Depth is what waits, and what is worked on, as the broker has it. Ages are
// by the broker's clock, and 0 where nothing waits.
type Depth struct {
	Waiting    uint64 // sessions with something to do that no worker was given
	InProgress int    // sessions that a worker was given, hand-overs included
	Oldest     time.Duration
	Inputs     uint64 // in the inbox
	OldestIn   time.Duration
	Dead       uint64 // dead letters
	Readers    int    // consumers of the event stream
	Slow       int    // those with more than 1,000 records before them
}

// Depth asks the broker, with five questions and one for every 256 readers.
func (s *Store) Depth(ctx context.Context) (*Depth, error) {
	d := &Depth{}
	for _, ask := range []func(context.Context, *Depth) error{s.depthOfBell, s.depthOfInbox, s.depthOfReaders} {
		if err := ask(ctx, d); err != nil {
			return nil, explain("asking for the queue's depth", err)
		}
	}
	return d, nil
}

func (s *Store) depthOfBell(ctx context.Context, d *Depth) error {
	cons, err := s.js.Consumer(ctx, s.names.BellStream(), subjects.ConsumerWorkers)
	if err != nil {
		return err
	}
	info := cons.CachedInfo()
	d.Waiting, d.InProgress = info.NumPending, info.NumAckPending
	if d.Waiting == 0 {
		return nil
	}
	first, err := s.next(ctx, s.names.BellStream(), s.names.Bell("*"), info.Delivered.Stream+1)
	if errors.Is(err, errNotFound) {
		return nil // it was claimed in the meantime
	}
	if err != nil {
		return err
	}
	d.Oldest = max(0, info.TimeStamp.Sub(first.time))
	return nil
}

func (s *Store) depthOfInbox(ctx context.Context, d *Depth) error {
	inbox, err := s.js.Stream(ctx, s.names.InboxStream())
	if err != nil {
		return err
	}
	info := inbox.CachedInfo()
	if d.Inputs = info.State.Msgs; d.Inputs > 0 {
		d.OldestIn = max(0, info.TimeStamp.Sub(info.State.FirstTime))
	}
	dead, err := s.js.Stream(ctx, s.names.DLQStream())
	if err != nil {
		return err
	}
	d.Dead = dead.CachedInfo().State.Msgs
	return nil
}

func (s *Store) depthOfReaders(ctx context.Context, d *Depth) error {
	events, err := s.js.Stream(ctx, s.names.EventsStream())
	if err != nil {
		return err
	}
	if d.Readers = events.CachedInfo().State.Consumers; d.Readers == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	list, seen := events.ListConsumers(ctx), 0
	for info := range list.Info() {
		if info.NumPending > slowBehind {
			d.Slow++
		}
		if seen++; seen == maxReaders {
			return nil
		}
	}
	return list.Err()
}

// Asked gives the sessions that have inputs in the inbox. Without the
// permission to ask for the stream's subjects it is a time-out.
func (s *Store) Asked(ctx context.Context) (map[string]bool, error) {
	asked := map[string]bool{}
	inbox, err := s.js.Stream(ctx, s.names.InboxStream())
	if err != nil {
		return nil, explain("asking for the inbox", err)
	}
	info, err := inbox.Info(ctx, jetstream.WithSubjectFilter(s.names.Inputs("*")))
	if err != nil {
		return nil, explain("asking for the inbox's sessions", err)
	}
	for subject := range info.State.Subjects {
		if session, _, err := s.names.ParseInput(subject); err == nil {
			asked[session] = true
		}
	}
	return asked, nil
}
