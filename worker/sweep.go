package worker

import (
	"context"
	"math/rand/v2"
	"time"
)

// sweepEvery is how often one of the workers looks for blobs that nothing refers
// to any more.
const sweepEvery = time.Hour

// sweep does that, at times of its own, so that not all workers ask at once.
func (w *Worker) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		sleep(ctx, sweepEvery/2+rand.N(sweepEvery))
		if ctx.Err() != nil {
			return
		}
		n, err := w.store.Sweep(ctx, sweepEvery/2)
		if err != nil && ctx.Err() == nil {
			w.log.Warn("sweeping blobs", "error", err)
		}
		if n > 0 {
			w.log.Info("blobs swept", "deleted", n)
		}
	}
}
