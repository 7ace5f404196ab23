package worker

import (
	"context"
	"errors"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
)

// leave ends the ownership; err is what serve returned.
func (o *owner) leave(err error) {
	// The claim's context may be over, and clean-up has to end soon.
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	switch {
	case errors.Is(err, errKilled):
		o.abandon()
		return
	case errors.Is(err, session.ErrFenced), errors.Is(err, session.ErrLeaseLost):
		o.log.Warn("session lost", "error", err)
		o.abandon()
		return
	case errors.Is(err, errHeld):
		o.log.Info("session stays with its former owner")
		o.release(ctx, o.w.cfg.AckWait)
		return
	}
	if err == nil {
		o.remove(ctx)
		return
	}
	o.releaseRun(ctx, err)
	o.closeLog(ctx)
	switch {
	case errors.Is(err, errHandOver):
		o.log.Info("session handed over")
		o.lastBoard(ctx, "waiting")
		o.release(ctx, 0)
	case errors.Is(err, session.ErrFenced):
		o.abandon()
	default:
		o.log.Error("session given up", "error", err)
		o.lastBoard(ctx, "waiting")
		o.release(ctx, o.w.cfg.AckWait)
	}
}

// remove gives the bell back for good, with nothing left to do. Where the broker
// does not confirm it, another worker may have the session or be called for it:
// that is a lost lease like any other, and readers of the log are told.
func (o *owner) remove(ctx context.Context) {
	if o.events != nil {
		if err := o.events.Flush(ctx); err != nil {
			o.log.Warn("session lost", "error", err)
			o.abandon()
			return
		}
	}
	o.lastBoard(ctx, "idle")
	err := o.claim.Remove(ctx)
	if err == nil {
		o.closeLog(ctx)
		return
	}
	o.log.Warn("removing the bell", "error", err)
	if o.events != nil && errors.Is(err, session.ErrUnconfirmed) {
		ev := &loop.LeaseLost{Worker: o.w.cfg.ID, Epoch: o.summary.Epoch, Reason: "the broker did not confirm that the bell is removed"}
		if err := o.events.Append(ctx, ev); err != nil {
			o.log.Warn("writing lease_lost", "error", err)
		}
	}
	o.closeLog(ctx)
}

func (o *owner) closeLog(ctx context.Context) {
	if o.events == nil {
		return
	}
	if err := o.events.Close(ctx); err != nil {
		o.log.Warn("closing the log", "error", err)
	}
}

// releaseRun tells the next owner, and readers, that the open run is given back
// in good order.
func (o *owner) releaseRun(ctx context.Context, cause error) {
	if o.events == nil || o.transcript.Open() == nil {
		return
	}
	ev := &loop.RunReleased{Worker: o.w.cfg.ID, Reason: "error"}
	if errors.Is(cause, errHandOver) {
		ev.Reason = "shutdown"
	}
	if err := o.events.Append(ctx, ev); err != nil {
		o.log.Warn("writing run_released", "error", err)
	}
}

// abandon ends the ownership and touches nothing: what is queued for the log is
// given up, and the bell is somebody else's.
func (o *owner) abandon() {
	o.claim.Abandon()
	o.w.board.drop(o.session)
	if o.events == nil {
		return
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := o.events.Close(ended); err != nil {
		o.log.Debug("abandoning the log", "error", err)
	}
}

func (o *owner) release(ctx context.Context, delay time.Duration) {
	if err := o.claim.Release(ctx, delay); err != nil {
		o.log.Warn("releasing the bell", "error", err)
	}
}
