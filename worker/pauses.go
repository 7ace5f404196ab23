package worker

import (
	"context"
	"time"
)

// Limiter lets keys of models rest in this process; openai.Limiter is one. An
// id names endpoint and key without telling them, the same in all processes.
type Limiter interface {
	// Share has told called when a provider told this process to wait.
	Share(told func(id string, wait time.Duration))
	// Rest lets a key rest.
	Rest(id string, wait time.Duration)
}

// pausesEvery is how often the pauses of others are read that were not heard.
const pausesEvery = 10 * time.Second

// pause is one key's.
type pause struct {
	id   string
	wait time.Duration
}

// sharePauses tells the other workers which keys rest and hears it from them,
// until ctx ends. A request asks nobody: what is known is in the limiter.
func (w *Worker) sharePauses(ctx context.Context) {
	limiter := w.cfg.Limiter
	if limiter == nil {
		return
	}
	told := make(chan pause, 64)
	limiter.Share(func(id string, wait time.Duration) {
		select {
		case told <- pause{id, wait}:
		default: // the next one who is told says it
		}
	})
	defer limiter.Share(nil)
	stop, err := w.store.WatchPauses(limiter.Rest)
	if err != nil {
		w.log.Warn("hearing of pauses", "error", err)
	} else {
		defer func() { _ = stop() }()
	}
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-told:
			w.log.Info("a provider's limit: the key rests", "key", p.id, "wait", p.wait)
			err = w.store.PutPause(ctx, p.id, p.wait)
		case <-t.C:
			err = w.store.Pauses(ctx, limiter.Rest)
			t.Reset(pausesEvery)
		}
		if err != nil && ctx.Err() == nil {
			w.log.Warn("sharing pauses", "error", err)
		}
	}
}
