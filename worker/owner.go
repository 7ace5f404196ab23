package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// owner has one session, from its claim until it leaves it.
type owner struct {
	w       *Worker
	session string
	claim   *session.Claim
	slot    *slot
	log     *slog.Logger
	// stopping is closed when the worker is about to end.
	stopping <-chan struct{}
	// aborts has a token when an abort may have come.
	aborts chan struct{}
	done   chan struct{}
	// written is events once it is open, for others than the run.
	written atomic.Pointer[session.Log]

	// What follows is set by serve, and used by the goroutine of the run.
	ctx        context.Context // ends when the session is no longer ours
	stop       context.CancelCauseFunc
	events     *session.Log
	transcript *loop.Transcript
	inbox      *inbox
	// fresh is true until the first run of this ownership; idleSince is the
	// broker's time of the log's last record then.
	fresh     bool
	idleSince time.Time
	// obeyed is the last abort that ended a run.
	obeyed  uint64
	summary session.Summary
	// agentName is that of the run, for hooks; claimed is when the bell came,
	// zero after the first run.
	agentName string
	claimed   time.Time
	// saved and claimsSince are the fold's.
	saved       *loop.WorkspaceSaved
	claimsSince []string
	// deleting are deletions of inputs that nobody waits for meanwhile.
	deleting sync.WaitGroup
}

func newOwner(w *Worker, c *session.Claim, stopping <-chan struct{}) *owner {
	return &owner{
		w: w, session: c.Session(), claim: c, stopping: stopping,
		log:    w.log.With("session", c.Session()),
		aborts: make(chan struct{}, 1), done: make(chan struct{}),
		summary:   session.Summary{Session: c.Session(), Worker: w.cfg.ID},
		agentName: UnknownAgent, claimed: time.Now(),
	}
}

// serve runs what the session has to do. nil means that nothing is left; every
// error says why the session is given up before.
func (o *owner) serve(ctx context.Context) error {
	ctx, o.stop = context.WithCancelCause(ctx)
	o.ctx = ctx
	defer o.deleting.Wait()
	defer o.stop(nil) // and with it deletions, if this is not the end of the work
	st, err := o.w.store.Fold(ctx, o.session)
	if err != nil {
		return o.cause(fmt.Errorf("folding the log: %w", err))
	}
	o.transcript = st.Transcript
	o.inbox = newInbox(o.w.store, o.session, st)
	o.fresh, o.idleSince = true, st.Time
	o.saved, o.claimsSince = st.Saved, st.ClaimsSince
	if err := o.inbox.sweep(ctx); err != nil {
		return o.cause(err)
	}
	open := st.Transcript.Open()
	if open == nil && len(st.Owed) == 0 {
		if idle, err := o.inbox.empty(ctx); idle || err != nil {
			return o.cause(err)
		}
	} else if open != nil {
		if err := o.askFormer(ctx, st.Worker); err != nil {
			return err
		}
	}
	if open != nil { // its owner may still be at work: the fence comes first
		o.events, err = o.w.store.OpenLog(ctx, o.session, st, o.w.cfg.ID, lost(st, open)...)
	} else {
		o.events, err = o.w.store.BeginLog(ctx, o.session, st, o.w.cfg.ID)
	}
	if err != nil {
		return o.cause(fmt.Errorf("claiming the log: %w", err))
	}
	o.written.Store(o.events)
	o.log = o.log.With("epoch", o.events.Epoch().String())
	o.summary.Epoch = o.events.Epoch().String()
	o.recall(ctx, st)
	o.log.Info("session claimed")
	var watch sync.WaitGroup
	defer watch.Wait()
	defer o.stop(nil)
	watch.Go(o.watchLog)
	err = o.work(st, open)
	if err == nil {
		o.deleting.Wait()
	}
	return o.cause(err)
}

// cause prefers the reason why the session was taken away to the error that
// followed from it.
func (o *owner) cause(err error) error {
	if err != nil && o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	return err
}

// watchLog ends the work when the log cannot be written any more.
func (o *owner) watchLog() {
	select {
	case <-o.events.Done():
		if err := o.events.Err(); err != nil {
			o.stop(err)
		}
	case <-o.ctx.Done():
	}
}

// lost says that the owner of the open run went without a word, if it did: one
// that ends in good order leaves run_released behind.
func lost(st *session.State, open *loop.OpenRun) []loop.Event {
	if open == nil || st.Released {
		return nil
	}
	return []loop.Event{&loop.RunLost{Worker: st.Worker, Epoch: st.Epoch.String(), Since: st.Time.UnixMilli()}}
}

// askFormer keeps a session with the worker that has its open run, while that
// one is alive and sure of its lease.
func (o *owner) askFormer(ctx context.Context, former string) error {
	if former == "" || former == o.w.cfg.ID {
		return nil
	}
	owns, err := o.w.store.AskOwns(ctx, former, o.session)
	if err != nil {
		return o.cause(fmt.Errorf("asking worker %s: %w", former, err))
	}
	if owns {
		return errHeld
	}
	return nil
}

// work goes on with the open run, then takes input after input.
func (o *owner) work(st *session.State, open *loop.OpenRun) error {
	if open != nil {
		if err := o.resume(st, open); err != nil {
			return err
		}
	}
	for {
		if o.ctx.Err() != nil {
			return context.Cause(o.ctx)
		}
		if o.isStopping() {
			return errHandOver
		}
		more, err := o.step()
		if err != nil || !more {
			return err
		}
	}
}

func (o *owner) isStopping() bool {
	select {
	case <-o.stopping:
		return true
	default:
		return false
	}
}

// step deals with the next thing in the inbox, false if there is none.
func (o *owner) step() (more bool, err error) {
	if err := o.settleCancelled(); err != nil {
		return false, err
	}
	if more, err := o.changeQueue(o.ctx, false, nil); more || err != nil {
		return more, err
	}
	if err := o.events.Retain(o.ctx); err != nil {
		return false, err
	}
	if err := newDesk(o, nil).take(o.ctx); err != nil { // nothing waits for an answer
		return false, err
	}
	// Then aborts: the ones that are here now were meant for a run that is
	// over, and must not end one that begins later.
	abort, err := o.next(subjects.KindAbort)
	if err == nil {
		return true, o.abortIdle(abort)
	}
	if !errors.Is(err, session.ErrNoInput) {
		return false, err
	}
	in, err := o.next(subjects.KindPrompt, subjects.KindSteer, subjects.KindFollowUp)
	if errors.Is(err, session.ErrNoInput) {
		return false, o.barrier(o.ctx)
	}
	if err != nil {
		return false, err
	}
	return true, o.prompt(in)
}

// next gives the first input of the kinds that can be used; the others on the
// way are dealt with.
func (o *owner) next(kinds ...subjects.Kind) (*session.Input, error) {
	for {
		in, err := o.inbox.first(o.ctx, kinds...)
		if err != nil {
			return nil, err
		}
		ok, err := o.usable(in, true)
		if err != nil {
			return nil, err
		}
		if ok {
			return in, nil
		}
	}
}

// usable is false for an input that has been dealt with here: one that says an
// id for the second time, or is malformed. settle adds a prompt's last event.
func (o *owner) usable(in *session.Input, settle bool) (bool, error) {
	if _, spent := o.events.Spent(in); spent && in.Err == nil {
		o.log.Info("input repeats an id", "kind", in.Ref.Kind, "input", in.Ref.Seq, "id", in.ID)
		return false, o.consume(in, returned(in, "duplicate"))
	}
	if in.Err != nil {
		return false, o.deadLetter(in, "malformed", 0, in.Err, settle)
	}
	return true, nil
}

// consume appends events in the record that spends the input.
func (o *owner) consume(in *session.Input, evs ...loop.Event) error {
	return o.append(evs, in)
}

// append puts events into the log as one record, which spends the inputs.
func (o *owner) append(evs []loop.Event, inputs ...*session.Input) error {
	refs := make([]session.InputRef, 0, len(inputs))
	for _, in := range inputs {
		refs = append(refs, in.Ref)
	}
	if err := o.events.AppendAll(o.ctx, evs, refs...); err != nil {
		return err
	}
	o.inbox.spent(inputs...)
	o.w.cfg.Hooks.appended(o.agentName, evs)
	for _, ev := range evs {
		if err := o.apply(ev); err != nil {
			return err
		}
	}
	return nil
}

// apply keeps the transcript. Pieces of an answer are left out: the whole
// message follows, and nobody resumes from here.
func (o *owner) apply(ev loop.Event) error {
	switch e := ev.(type) {
	case *loop.MessageUpdate, *loop.ToolExecutionUpdate, *loop.Waiting, *loop.InputReturned,
		*loop.ApprovalRequested, *loop.ApprovalAnswered: // written by tools' goroutines, and read by the next owner
		return nil
	case *loop.AgentSettled:
		o.summary.Prompts++
		o.summary.Outcome = e.Outcome // also of prompts that never became a run
	}
	if err := o.transcript.Apply(ev); err != nil {
		return fmt.Errorf("applying %s: %w", ev.EventType(), err)
	}
	return nil
}

// barrier waits until the log is acknowledged, then forgets the inputs that it
// has consumed.
func (o *owner) barrier(ctx context.Context) error {
	// A process that was stopped and goes on must see here that the session
	// may be another worker's by now.
	if err := o.claim.Held(); err != nil {
		o.stop(err)
		return err
	}
	spent := o.inbox.take()
	if err := o.events.Flush(ctx); err != nil {
		o.inbox.putBack(spent)
		if ctx.Err() == nil {
			o.stop(err)
		}
		return err
	}
	if len(spent) > 0 {
		// Joined before the run's last record, and before the session is left.
		o.deleting.Go(func() { o.inbox.forget(o.ctx, spent, o.log) })
	}
	return nil
}

// deadLetter gives an input up. settle adds agent_settled.
func (o *owner) deadLetter(in *session.Input, reason string, attempts int, cause error, settle bool) error {
	o.log.Warn("input dead-lettered", "kind", in.Ref.Kind, "input", in.Ref.Seq, "reason", reason, "error", cause)
	mask := newMasker(o.w.cfg.Secrets)
	text := mask.text(cause.Error())
	// First the dead letter, then the event: a crash between them repeats the
	// letter, the other order would lose it.
	if err := o.events.Flush(o.ctx); err != nil { // only the owner writes letters
		return err
	}
	if err := o.w.store.DeadLetter(o.ctx, in, reason, attempts, text); err != nil {
		return fmt.Errorf("writing the dead letter: %w", err)
	}
	call(o.w.cfg.Hooks.DeadLettered, reason)
	evs := []loop.Event{returned(in, "dead_letter")}
	if settle && in.Ref.Kind.HasMessage() {
		evs = append(evs, &loop.AgentSettled{
			Outcome: loop.OutcomeDeadLetter, Attempts: attempts, PromptSeq: in.Ref.Seq,
			PromptID: in.ID, ErrorMessage: text,
		})
	}
	return o.consume(in, evs...)
}

// abortIdle spends an abort while no run is open. If nothing was running when it
// was stored either, it was meant for the input that nobody had begun yet;
// otherwise its run is over, and only the queue feels it.
func (o *owner) abortIdle(abort *session.Input) error {
	if err := o.returnQueue(abort); err != nil {
		return err
	}
	if abort.Ref.Seq == o.obeyed {
		return o.consume(abort, returned(abort, "done"))
	}
	if !o.fresh || !abort.Time.After(o.idleSince) {
		return o.consume(abort, returned(abort, "no_run"))
	}
	in, err := o.next(subjects.KindPrompt, subjects.KindSteer, subjects.KindFollowUp)
	if errors.Is(err, session.ErrNoInput) || err == nil && in.Ref.Seq > abort.Ref.Seq {
		return o.consume(abort, returned(abort, "no_run"))
	}
	if err != nil {
		return err
	}
	// It counts as begun: the next abort is for the next input.
	o.fresh = false
	return o.append([]loop.Event{returned(in, "abort"), aborted(in)}, in, abort)
}

// aborted settles an input that never began.
func aborted(in *session.Input) *loop.AgentSettled {
	return &loop.AgentSettled{Outcome: loop.OutcomeAborted, PromptSeq: in.Ref.Seq, PromptID: in.ID}
}

// wantsQueue says that the abort is for waiting inputs as well.
func wantsQueue(abort *session.Input) bool {
	return abort.Abort.Queue == session.QueueDrop || abort.Abort.Queue == session.QueueReturn
}

// returnQueue answers every input that was stored before the abort, if the
// abort says so. No run may be open.
func (o *owner) returnQueue(abort *session.Input) error {
	if !wantsQueue(abort) {
		return nil
	}
	for {
		in, err := o.inbox.before(o.ctx, abort.Ref.Seq, subjects.KindPrompt, subjects.KindSteer, subjects.KindFollowUp)
		if errors.Is(err, session.ErrNoInput) {
			return nil
		}
		if err != nil {
			return err
		}
		ok, err := o.usable(in, true)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		ev := returned(in, "abort")
		if abort.Abort.Queue == session.QueueReturn {
			ev.Input = payload(in)
		}
		evs := []loop.Event{ev}
		if in.Ref.Kind == subjects.KindPrompt {
			evs = append(evs, aborted(in))
		}
		if err := o.consume(in, evs...); err != nil {
			return err
		}
	}
}

// board shows the session's state in ps.
func (o *owner) board(state string) {
	o.summary.State, o.summary.Seq = state, o.events.Seq()
	o.w.board.put(o.summary)
}

// lastBoard is what ps shows until the next owner. A bell that rang for nothing
// changes nothing there.
func (o *owner) lastBoard(ctx context.Context, state string) {
	if o.events == nil {
		return
	}
	o.summary.State, o.summary.Seq = state, o.events.Seq()
	o.w.board.last(ctx, o.summary)
}
