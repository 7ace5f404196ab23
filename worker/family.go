package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

const (
	// kinEvery is how often a run looks after the runs above it. What is
	// announced is seen earlier.
	kinEvery = time.Second
	// maxDepth is how many runs may be above one.
	maxDepth = 32
)

// Reasons that come from above a run; they begin the error message of its
// agent_settled, and are the reason of an input that is returned.
const (
	reasonParentAborted = "parent_aborted"
	reasonParentLimit   = "parent_limit"
)

// kinError ends a run because of one above it.
type kinError struct {
	reason  string
	outcome loop.Outcome
	text    string
}

func (e *kinError) Error() string {
	if e.reason == reasonTreeLimit {
		return "limit of " + e.text + " reached"
	}
	return e.reason + ": " + e.text
}

// kin is one run above another one.
type kin struct {
	session.Parent
	begun bool
	seen  uint64 // how far its log was looked through
	over  bool   // it ended in a way that is nothing to those below
}

// family are the runs above one run: the one that its prompt was sent from, the
// one above that, up to the root. The run looks at all of them by itself, so
// that no dead worker in between is in the way. nil is a run with nobody above.
type family struct {
	store *session.Store
	seq   uint64 // of the run's own prompt
	above []*kin // the parent first, the root last
}

// family finds the runs above a prompt, by what the logs say.
func (o *owner) family(ctx context.Context, ref session.InputRef) (*family, error) {
	if ref.Options == nil || ref.Options.Parent == nil {
		return nil, nil
	}
	f := &family{store: o.w.store, seq: ref.Seq}
	known := map[session.Parent]bool{{Session: o.session, Run: ref.Seq}: true}
	for p := ref.Options.Parent; p != nil; {
		if known[*p] {
			return nil, fmt.Errorf("%w: run %s is above itself", ErrNotAllowed, p)
		}
		if len(f.above) == maxDepth {
			return nil, fmt.Errorf("%w: more than %d runs are above this one", ErrNotAllowed, maxDepth)
		}
		known[*p] = true
		info, err := o.w.store.FindRun(ctx, *p)
		if err != nil {
			return nil, fmt.Errorf("looking for the parent %s: %w", p, err)
		}
		f.above = append(f.above, &kin{Parent: *p, begun: info.Begun})
		p = info.Parent
	}
	return f, nil
}

// sessions are those of the runs above.
func (f *family) sessions() (ids []string) {
	if f == nil {
		return nil
	}
	for _, k := range f.above {
		ids = append(ids, k.Session)
	}
	return ids
}

// parent is "session/run" of the run above, "" without one.
func (f *family) parent() string {
	if f == nil {
		return ""
	}
	return f.above[0].String()
}

// look says whether one of the runs above was ended by an abort or a limit; nil
// if the run may go on. The nearest one counts.
func (f *family) look(ctx context.Context) (*kinError, error) {
	if f == nil {
		return nil, nil
	}
	for _, k := range f.above {
		if k.over {
			continue
		}
		end, err := f.lookAt(ctx, k)
		if end != nil || err != nil {
			return end, err
		}
	}
	return nil, nil
}

func (f *family) lookAt(ctx context.Context, k *kin) (*kinError, error) {
	if end, err := f.settled(ctx, k); end != nil || err != nil || k.over {
		return end, err
	}
	if !k.begun {
		info, err := f.store.FindRun(ctx, k.Parent)
		if err != nil || !info.Begun {
			return nil, err
		}
		k.begun = true
	}
	// An abort that waits for the run's owner, who may be dead: it came later
	// than our prompt, and the run that sent that is still open.
	if found, err := f.abortOf(ctx, k); !found {
		return nil, err
	}
	if end, err := f.settled(ctx, k); end != nil || err != nil || k.over {
		return end, err // it ended before the abort came
	}
	return k.end(loop.OutcomeAborted), nil
}

func (f *family) abortOf(ctx context.Context, k *kin) (bool, error) {
	for after := f.seq; ; {
		in, err := f.store.NextInput(ctx, k.Session, subjects.KindAbort, after)
		if errors.Is(err, session.ErrNoInput) {
			return false, nil
		}
		if err != nil || in.Err == nil {
			return err == nil, err
		}
		after = in.Ref.Seq
	}
}

// settled looks for the run's agent_settled.
func (f *family) settled(ctx context.Context, k *kin) (*kinError, error) {
	outcome, seen, err := f.store.SettledRun(ctx, k.Parent, k.seen)
	switch {
	case errors.Is(err, session.ErrUnknownSession) && k.seen == 0 && !k.begun:
		return nil, nil // nobody has begun with it yet
	case errors.Is(err, session.ErrUnknownSession):
		return k.end(loop.OutcomeAborted), nil // somebody has removed the session
	case err != nil:
		return nil, err
	}
	k.seen = seen
	return k.end(outcome), nil
}

// end is what the outcome of a run means to those below it.
func (k *kin) end(outcome loop.Outcome) *kinError {
	switch outcome {
	case "":
		return nil
	case loop.OutcomeAborted:
		return &kinError{reasonParentAborted, outcome, "run " + k.String() + " was aborted"}
	case loop.OutcomeLimit:
		return &kinError{reasonParentLimit, outcome, "run " + k.String() + " ended at a limit"}
	}
	k.over = true
	return nil
}

// orphaned settles an input whose run was to be below one that has been ended.
func (o *owner) orphaned(in *session.Input, end *kinError) error {
	o.log.Info("input not begun", "input", in.Ref.Seq, "reason", end.Error())
	return o.consume(in, returned(in, end.reason), &loop.AgentSettled{
		Outcome: end.outcome, PromptSeq: in.Ref.Seq, PromptID: in.ID, ErrorMessage: end.Error(),
	})
}
