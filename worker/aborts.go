package worker

import (
	"context"
	"errors"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/subjects"
)

// abortEvery is how often a run looks for aborts whose announcement was lost.
const abortEvery = 2 * time.Second

// passAborts gives an outcome to every abort that was stored before this one
// and that the run has passed by: a malformed one, or one that was meant for
// the run before. Spending this one puts the cursor behind them all, and what
// is behind the cursor is swept without a word.
func (o *owner) passAborts(ctx context.Context, abort *session.Input) error {
	for {
		in, err := o.inbox.first(ctx, subjects.KindAbort)
		if errors.Is(err, session.ErrNoInput) || err == nil && in.Ref.Seq >= abort.Ref.Seq {
			return nil
		}
		if err != nil {
			return err
		}
		ok, err := o.usable(in, true)
		if err == nil && ok {
			err = o.consume(in, returned(in, "no_run"))
		}
		if err != nil {
			return err
		}
	}
}

// watchAborts ends the run when an abort that was stored after its prompt is
// in the inbox, and when a run above it was ended.
func (r *run) watchAborts(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	// An announcement may be faster than the stream: look more than once.
	announced := 0
	first := true // the inbox was seen just now
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.o.aborts:
			announced = 1
			r.o.inbox.stale()
		case <-t.C:
			if !first {
				r.o.inbox.stale()
			}
		}
		first = false
		if r.findAbort(ctx) {
			r.cancel(errAborted)
			return
		}
		if end := r.lookAbove(ctx); end != nil {
			r.cancel(end)
			return
		}
		if err := r.desk.take(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("reading answers", "error", err)
		}
		wait := abortEvery
		if r.family != nil || r.budget != nil {
			wait = kinEvery
		}
		if r.changes(ctx) {
			wait = 10 * time.Millisecond
		}
		if announced > 0 && announced < 8 {
			wait = time.Millisecond << announced
			announced++
		}
		t.Reset(wait)
	}
}

// changes does what changes of the queue ask for; true says that there is more
// to do in a moment.
func (r *run) changes(ctx context.Context) bool {
	for {
		more, err := r.changeQueue(ctx)
		switch {
		case errors.Is(err, errInHand):
			return true
		case err != nil:
			if ctx.Err() == nil {
				r.log.Warn("changing the queue", "error", err)
			}
			return false
		case !more:
			return false
		}
	}
}

// lookAbove says whether a run above was ended, or the tree has used up what it
// may. Trouble with the broker ends
// nothing: the next look is near.
func (r *run) lookAbove(ctx context.Context) *kinError {
	// The sum first: it is the reason, the end of a run above only its effect.
	if over := r.budget.check(ctx); over != nil {
		return over
	}
	end, err := r.family.look(ctx)
	if err != nil && ctx.Err() == nil {
		r.log.Warn("looking after the runs above", "error", err)
	}
	return end
}

func (r *run) findAbort(ctx context.Context) bool {
	after := max(r.o.inbox.cursor(subjects.KindAbort), r.prompt.Seq)
	for {
		in, err := r.o.inbox.next(ctx, subjects.KindAbort, after)
		if err != nil {
			return false
		}
		if _, spent := r.o.events.Spent(in); in.Err == nil && !spent {
			r.mu.Lock()
			r.abort = in
			r.mu.Unlock()
			return true
		}
		after = in.Ref.Seq // the owner deals with it between two runs
	}
}
