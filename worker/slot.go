package worker

import (
	"context"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

const (
	// longWait is how long a retry must wait for its run to give its slot back.
	longWait = time.Second
	// waitingPerSlot bounds the sessions that are owned and wait without a
	// slot: each costs the broker a beat every quarter of AckWait.
	waitingPerSlot = 8
)

// slots are what sessions take to be at work: as many as Config.Sessions. A
// run that waits for its model to be asked again, or for a person, holds none.
type slots struct {
	busy    chan struct{}
	waiting chan struct{}
}

func newSlots(n int) *slots {
	return &slots{busy: make(chan struct{}, n), waiting: make(chan struct{}, n*waitingPerSlot)}
}

// free waits until there is a slot, and takes none; false if ctx ends first.
func (s *slots) free(ctx context.Context) bool {
	one := s.take(ctx)
	if one == nil {
		return false
	}
	one.free()
	return true
}

// try takes a slot if there is one, otherwise it gives nil.
func (s *slots) try() *slot {
	select {
	case s.busy <- struct{}{}:
		return &slot{slots: s, busy: true}
	default:
		return nil
	}
}

// take waits for a slot; nil if ctx ends first.
func (s *slots) take(ctx context.Context) *slot {
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	if ctx.Err() != nil {
		<-s.busy
		return nil
	}
	return &slot{slots: s, busy: true}
}

// slot is one session's.
type slot struct {
	slots *slots

	mu   sync.Mutex // guards busy; tools may pass resume side by side
	busy bool       // it is held; otherwise the session counts as waiting
}

// saw gives the slot back at the beginning of a long wait, unless too many
// wait already.
func (s *slot) saw(ev loop.Event) {
	if retry, ok := ev.(*loop.AutoRetryStart); !ok || retry.Delay < longWait {
		return
	}
	s.rest()
}

// rest gives the slot back until resume, unless too many wait already.
func (s *slot) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.busy {
		return
	}
	select {
	case s.slots.waiting <- struct{}{}:
		<-s.slots.busy
		s.busy = false
	default:
	}
}

// resume waits until the session has a slot again.
func (s *slot) resume(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		return nil
	}
	select {
	case s.slots.busy <- struct{}{}:
		<-s.slots.waiting
		s.busy = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// free ends the session's claim to a slot.
func (s *slot) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		<-s.slots.busy
	} else {
		<-s.slots.waiting
	}
}
