package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// settle ends the run with its one agent_settled; fault is what the loop
// itself reported.
func (r *run) settle(fault error) error {
	outcome, text := r.outcome(fault)
	r.budget.report(r.o.ctx) // before the record: an owner that dies is followed
	var spent []*session.Input
	if abort := r.abort; abort != nil {
		r.o.obeyed = abort.Ref.Seq
		if !wantsQueue(abort) {
			if err := r.o.passAborts(r.o.ctx, abort); err != nil {
				return err
			}
			spent = append(spent, abort)
		}
		// Otherwise it is spent after the queue, which comes after this run's
		// last event: a prompt that is returned settles too, and must not do
		// so while a run is open.
	}
	end := r.end
	if end == nil {
		end = &loop.AgentEnd{} // the loop failed on the way
	}
	return r.o.settle(r, outcome, text, []loop.Event{end}, spent)
}

func isHalt(cause error) bool {
	_, ok := errors.AsType[*haltError](cause)
	return ok
}

func isKin(cause error) bool {
	_, ok := errors.AsType[*kinError](cause)
	return ok
}

func (r *run) outcome(fault error) (loop.Outcome, string) {
	cause := context.Cause(r.ctx)
	finished := r.last != nil && (r.last.StopReason == loop.StopStop || r.last.StopReason == loop.StopLength)
	switch {
	case fault == nil && r.end == nil:
		return loop.OutcomeFailed, "the run ended without agent_end"
	case fault != nil:
		return loop.OutcomeFailed, r.mask.text(fault.Error())
	case errors.Is(cause, errAborted) && !finished:
		return loop.OutcomeAborted, ""
	case errors.Is(cause, errWallTime) && !finished:
		return loop.OutcomeLimit, fmt.Sprintf("limit of %s reached", r.agent.Limits.WallTime)
	case isKin(cause) && !finished:
		end, _ := errors.AsType[*kinError](cause)
		return end.outcome, end.Error()
	case isHalt(cause):
		return loop.OutcomeLimit, cause.Error()
	case r.meter.cut() != "":
		return loop.OutcomeLimit, "limit of " + r.meter.cut() + " reached"
	case r.last != nil && r.last.StopReason == loop.StopError:
		return loop.OutcomeFailed, r.last.ErrorMessage
	case r.last != nil && r.last.StopReason == loop.StopAborted:
		return loop.OutcomeAborted, r.last.ErrorMessage
	}
	return loop.OutcomeCompleted, ""
}

// wish is when a provider that ended the run wants to be asked again: the
// prompt is the sender's again, who knows now when to send it.
func (r *run) wish(outcome loop.Outcome) time.Duration {
	if outcome != loop.OutcomeFailed || r.last == nil {
		return 0
	}
	if me, ok := errors.AsType[*loop.ModelError](r.last.Err); ok {
		return me.RetryAfter
	}
	return 0
}

// settle appends the last record of a run, and waits until it is safe.
func (o *owner) settle(r *run, outcome loop.Outcome, text string, evs []loop.Event, spent []*session.Input) error {
	evs = append(evs, &loop.AgentSettled{
		Outcome: outcome, Attempts: r.attempts, Usage: r.meter.used(),
		PromptSeq: r.prompt.Seq, PromptID: r.prompt.ID, ErrorMessage: text,
		RetryAfter: r.wish(outcome),
	})
	o.deleting.Wait()
	if err := o.append(evs, spent...); err != nil {
		return err
	}
	if err := o.barrier(o.ctx); err != nil {
		return err
	}
	o.inbox.ended()
	r.settled = outcome
	r.log.Info("run settled", "outcome", outcome, "attempts", r.attempts, "error", text)
	total := o.transcript.Usage()
	o.summary.Outcome, o.summary.Tool, o.summary.Turn = outcome, "", 0
	o.summary.Tokens, o.summary.Cost, o.summary.Started = total.TotalTokens, total.Cost.Total, time.Time{}
	o.board("idle")
	return nil
}

// resume goes on with a run that another owner left open.
func (o *owner) resume(st *session.State, open *loop.OpenRun) error {
	if st.Prompt == nil {
		// Nothing of the input is in the log: it is still in the inbox, and
		// begins again.
		return o.append([]loop.Event{&loop.AgentEnd{}})
	}
	o.fresh = false
	prompt := *st.Prompt
	attempts := st.Claims + 1
	if st.Attempts >= o.w.cfg.MaxAttempts {
		return o.poisoned(prompt, open, st.Attempts)
	}
	kin, err := o.family(o.ctx, prompt)
	if err != nil && !refused(err) {
		return err // the broker's: the next owner looks again
	}
	var agent *Agent
	if err == nil {
		agent, err = o.agent(prompt)
	}
	switch {
	case o.ctx.Err() != nil:
		return context.Cause(o.ctx)
	case refused(err):
		return o.giveUp(prompt, open, st.Attempts, refusal(err), err)
	case err != nil:
		r := &run{o: o, prompt: prompt, attempts: attempts, meter: newMeter(Limits{}, open), log: o.log.With("run", prompt.Seq)}
		return o.settle(r, loop.OutcomeFailed, newMasker(o.w.cfg.Secrets).text(err.Error()), closing(open), nil)
	}
	r := o.newRun(agent, prompt, attempts, open, kin)
	r.begin(st.TraceParent)
	evs := []loop.Event{&loop.RunResumed{Attempt: attempts, Reason: "worker " + st.Worker + " is gone"}}
	if err := o.append(evs); err != nil {
		r.spans.endRun(r, err)
		r.close()
		return err
	}
	r.log.Info("run resumed", "attempt", attempts, "former", st.Worker)
	call(o.w.cfg.Hooks.TakenOver, o.agentName)
	r.used = st.Took(time.Now())
	r.last = open.LastAssistant
	if open.Assistant != nil {
		r.last = open.Assistant
	}
	history := o.transcript.History()
	return r.drive(func(ctx context.Context, cfg *loop.Config) iter.Seq2[loop.Event, error] {
		if r.findAbort(ctx) {
			r.cancel(errAborted)
		} else if end := cmp.Or(r.joinTree(ctx), r.lookAbove(ctx)); end != nil {
			r.cancel(end)
		}
		return loop.Resume(ctx, cfg, history, open)
	})
}

// poisoned ends a run that has cost too many workers.
func (o *owner) poisoned(prompt session.InputRef, open *loop.OpenRun, attempts int) error {
	return o.giveUp(prompt, open, attempts, "max_attempts",
		fmt.Errorf("%d claims without a completed turn", attempts))
}

// giveUp dead-letters the prompt of an open run.
func (o *owner) giveUp(prompt session.InputRef, open *loop.OpenRun, attempts int, reason string, cause error) error {
	text := newMasker(o.w.cfg.Secrets).text(cause.Error())
	o.log.Warn("run dead-lettered", "run", prompt.Seq, "reason", reason, "error", text)
	in := promptInput(o.session, prompt, open)
	if err := o.events.Flush(o.ctx); err != nil { // only the owner writes letters
		return err
	}
	if err := o.w.store.DeadLetter(o.ctx, in, reason, attempts, text); err != nil {
		return fmt.Errorf("writing the dead letter: %w", err)
	}
	call(o.w.cfg.Hooks.DeadLettered, reason)
	r := &run{o: o, prompt: prompt, attempts: attempts, meter: newMeter(Limits{}, open), log: o.log.With("run", prompt.Seq)}
	return o.settle(r, loop.OutcomeDeadLetter, text, closing(open), nil)
}

// closing are the events that close an open run which nobody goes on with.
func closing(open *loop.OpenRun) []loop.Event {
	var evs []loop.Event
	if open.Partial != nil {
		evs = append(evs, &loop.MessageDiscarded{Reason: "run ended"})
	}
	if open.InTurn {
		evs = append(evs, &loop.TurnEnd{})
	}
	return append(evs, &loop.AgentEnd{})
}

// promptInput is the input of an open run, which the inbox has forgotten, as
// far as the log has it.
func promptInput(id string, ref session.InputRef, open *loop.OpenRun) *session.Input {
	in := &session.Input{Ref: ref, Session: id, ID: ref.ID}
	body := struct {
		ID      string                `json:"id,omitempty"`
		Message json.RawMessage       `json:"message,omitempty"`
		Options *session.InputOptions `json:"options,omitempty"`
	}{ID: ref.ID, Options: ref.Options}
	if ref.Options != nil {
		in.Options = *ref.Options
	}
	for _, m := range open.NewMessages {
		if m.Role() == loop.RoleUser {
			in.Message = m
			body.Message, _ = loop.MarshalMessage(m)
			break
		}
	}
	in.Raw, _ = json.Marshal(body)
	if in.Ref.Kind == "" {
		in.Ref.Kind = subjects.KindPrompt
	}
	return in
}
