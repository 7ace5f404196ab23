package worker

import (
	"context"
	"errors"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/subjects"
)

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
