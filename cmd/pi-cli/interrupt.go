package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// untilInterrupted is ctx, ended with errInterrupted by Ctrl-C or SIGTERM. If
// first is not nil it takes the first signal, and the second one ends ctx.
// Outside of it a signal ends the process as if nobody listened: there is
// nothing to tidy up, and reading standard input can't be cut short.
func (a *app) untilInterrupted(parent context.Context, first func() error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	interrupts, ignore := a.notify()
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-interrupts:
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
		ignore()
	}
}

// notify begins to listen to signals. Two may come: the first may mean "abort"
// and the second "leave".
func (a *app) notify() (interrupts <-chan os.Signal, ignore func()) {
	if a.interrupts != nil {
		return a.interrupts, func() {}
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	return signals, func() { signal.Stop(signals) }
}
