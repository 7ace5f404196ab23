package main

import (
	"context"
	"sync"
)

// untilInterrupted is ctx, ended with errInterrupted by Ctrl-C or SIGTERM. If
// first is not nil it takes the first signal, and the second one ends ctx.
func (a *app) untilInterrupted(parent context.Context, first func() error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-a.interrupts:
			}
			if first == nil {
				cancel(errInterrupted)
				return
			}
			if err := first(); err != nil {
				cancel(err)
				return
			}
			first = nil
		}
	})
	return ctx, func() {
		cancel(nil)
		watch.Wait()
	}
}
