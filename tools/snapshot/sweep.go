package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// sweepers are how many objects are deleted side by side.
const sweepers = 8

// Sweep deletes the objects that the last snapshot made superfluous. The caller
// has made sure that nobody will ever restore an earlier one.
func (t *Tree) Sweep(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil || len(t.last.Old) == 0 {
		return nil
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex // guards errs
		errs []error
	)
	room := make(chan struct{}, sweepers)
	for _, object := range t.last.Old {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if _, err := t.store.Delete(ctx, object); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("snapshot: deleting %s: %w", object, err))
			}
		})
	}
	wg.Wait()
	if len(errs) == 0 {
		t.last.Old = nil
	}
	return errors.Join(errs...)
}

// SweepAfter deletes what others left behind that stored objects and died
// before they could write the snapshot's name down: the objects that follow the
// last snapshot, and those of the epochs since. It is for the beginning of an
// epoch.
func (t *Tree) SweepAfter(ctx context.Context, epochs ...string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, number, ok := splitName(t.lastName)
	if ok && last != t.epoch {
		if err := t.sweepFrom(ctx, last, number+1); err != nil {
			return err
		}
	}
	for _, epoch := range epochs {
		if epoch == t.epoch || epoch == last {
			continue
		}
		if err := t.sweepFrom(ctx, epoch, 1); err != nil {
			return err
		}
	}
	return nil
}

// sweepFrom deletes object after object until there is none. One that was never
// finished leaves a gap of at most one.
func (t *Tree) sweepFrom(ctx context.Context, epoch string, number int) error {
	for gap := 0; gap < 2; number++ {
		found, err := t.store.Delete(ctx, objectName(epoch, number))
		if err != nil {
			return fmt.Errorf("snapshot: deleting what was left behind: %w", err)
		}
		if gap++; found {
			gap = 0
		}
	}
	return nil
}
