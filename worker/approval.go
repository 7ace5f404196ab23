package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// ApprovalPolicy says what becomes of a call that nobody answers for.
type ApprovalPolicy string

const (
	ApprovalWait      ApprovalPolicy = "wait"       // it waits; also the zero value's meaning
	ApprovalDenyAfter ApprovalPolicy = "deny_after" // it is not run, and the agent goes on
	ApprovalHaltAfter ApprovalPolicy = "halt_after" // it is not run, and the run ends with the outcome "limit"
)

// Approvals say which calls wait until somebody allows them. Time that a run
// waits for people does not count for its limit of wall time.
type Approvals struct {
	// Needed is asked for each call, from any goroutine; nil means none.
	Needed func(loop.Call) bool
	Policy ApprovalPolicy
	// After is the patience of the policy, counted from the request, over all
	// workers; 0 means for ever.
	After time.Duration
}

// haltError ends a run whose request for approval nobody answered.
type haltError struct {
	tool  string
	after time.Duration
}

func (e *haltError) Error() string {
	return fmt.Sprintf("halted: nobody answered the request for approval of %s within %s", e.tool, e.after)
}

// petition is one request for approval.
type petition struct {
	request *loop.ApprovalRequested
	answer  *loop.ApprovalAnswered // nil while it waits
	done    chan struct{}          // closed with answer
}

func newPetition(req *loop.ApprovalRequested) *petition {
	return &petition{request: req, done: make(chan struct{})}
}

func (p *petition) settle(answer *loop.ApprovalAnswered) {
	p.answer = answer
	close(p.done)
}

// desk has a run's requests for approval. Answers come from people, by the
// inbox, and from the clock; whichever is appended first counts.
type desk struct {
	o *owner

	taking sync.Mutex // held while answers are taken from the inbox

	mu        sync.Mutex // guards what is below, and the order of their events
	petitions []*petition
}

// newDesk goes on with what an open run has asked; open is nil for a new run.
func newDesk(o *owner, open *loop.OpenRun) *desk {
	d := &desk{o: o}
	if open == nil {
		return d
	}
	for _, a := range open.Approvals {
		p := newPetition(a.Request)
		if a.Answer != nil {
			p.settle(a.Answer)
		}
		d.petitions = append(d.petitions, p)
	}
	return d
}

// ask makes the request, or finds the one that was made before.
func (d *desk) ask(call loop.Call, policy Approvals) (*petition, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.petitions {
		if p.request.Key == call.Key {
			return p, nil
		}
	}
	req := &loop.ApprovalRequested{
		ToolCallID: call.ID, ToolName: call.Name, Args: call.Args, Key: call.Key,
		Policy: string(cmp.Or(policy.Policy, ApprovalWait)),
	}
	if policy.After > 0 && req.Policy != string(ApprovalWait) {
		req.Deadline = time.Now().Add(policy.After).UnixMilli()
	}
	if err := d.o.events.Append(d.o.ctx, req); err != nil {
		return nil, err
	}
	p := newPetition(req)
	d.petitions = append(d.petitions, p)
	return p, nil
}

// answer settles a petition, unless it is settled. in is the person's input,
// nil for the clock.
func (d *desk) answer(p *petition, answer loop.ApprovalAnswer, in *session.Input) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.answer != nil {
		return nil
	}
	ev := &loop.ApprovalAnswered{
		ToolCallID: p.request.ToolCallID, ToolName: p.request.ToolName, Key: p.request.Key, Answer: answer,
	}
	if in == nil {
		if err := d.o.events.Append(d.o.ctx, ev); err != nil {
			return err
		}
	} else {
		ev.By, ev.Reason = in.Approve.By, in.Approve.Reason
		if err := d.o.consume(in, ev); err != nil {
			return err
		}
	}
	p.settle(ev)
	return nil
}

// find gives the petition that an answer is about: by its key, or by its
// call's id, of which the last one counts.
func (d *desk) find(call string) *petition {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found *petition
	for _, p := range d.petitions {
		if p.request.Key == call {
			return p
		}
		if p.request.ToolCallID == call && (found == nil || found.answer != nil) {
			found = p
		}
	}
	return found
}

// take takes all answers that are in the inbox. The first one for a call
// counts, and who comes second is told.
func (d *desk) take(ctx context.Context) error {
	d.taking.Lock()
	defer d.taking.Unlock()
	for {
		in, err := d.o.inbox.first(ctx, subjects.KindApprove)
		if errors.Is(err, session.ErrNoInput) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := d.takeOne(in); err != nil {
			return err
		}
	}
}

func (d *desk) takeOne(in *session.Input) error {
	if ok, err := d.o.usable(in, false); !ok || err != nil {
		return err
	}
	p := d.find(in.Approve.Call)
	if p == nil {
		return d.o.consume(in, returned(in, "no_request"))
	}
	answer := loop.Denied
	if in.Approve.Approve {
		answer = loop.Approved
	}
	if p.answered() == nil {
		if err := d.answer(p, answer, in); err != nil {
			return err
		}
	}
	if _, spent := d.o.events.Spent(in); spent {
		return nil
	}
	// It was settled already, or by the clock in this moment.
	return d.o.consume(in, returned(in, "already_answered"))
}

// answered is the answer, nil while it waits.
func (p *petition) answered() *loop.ApprovalAnswered {
	select {
	case <-p.done:
		return p.answer
	default:
		return nil
	}
}

// withdraw settles what the end of the run leaves open.
func (d *desk) withdraw() error {
	d.mu.Lock()
	open := append([]*petition(nil), d.petitions...)
	d.mu.Unlock()
	for _, p := range open {
		if err := d.answer(p, loop.Withdrawn, nil); err != nil {
			return err
		}
	}
	return nil
}

// approvedTool runs no call that needs an approval before it has one.
type approvedTool struct {
	loop.Tool
	run *run
}

// Execute waits for the answer. An approval is in the log before the call
// begins: whoever resumes knows that it may have run.
func (t *approvedTool) Execute(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
	if !t.run.agent.Approvals.Needed(call) {
		return t.Tool.Execute(ctx, call, update)
	}
	answer, err := t.run.approval(ctx, call)
	switch {
	case err != nil:
		return loop.ToolResult{}, err
	case answer.Answer != loop.Approved:
		return notApproved(answer), nil
	}
	if err := t.run.barrier(ctx); err != nil {
		return loop.ToolResult{}, err
	}
	return t.Tool.Execute(ctx, call, update)
}

func (t *approvedTool) PrepareArguments(args json.RawMessage) (json.RawMessage, error) {
	if p, ok := t.Tool.(loop.ArgumentPreparer); ok {
		return p.PrepareArguments(args)
	}
	return args, nil
}

// notApproved tells the model why its call was not run.
func notApproved(a *loop.ApprovalAnswered) loop.ToolResult {
	text := "Not run: nobody answered the request for approval in time; it was not refused."
	if a.Answer == loop.Denied {
		text = "Not run: the call was refused"
		if a.By != "" {
			text += " by " + a.By
		}
		if a.Reason != "" {
			text += ": " + a.Reason
		}
	}
	res := loop.TextResult(text)
	res.IsError = true
	return res
}

// approval waits for the answer to a call. An answer that lies in the inbox
// comes before a deadline that has passed: nobody had a worker to say so.
func (r *run) approval(ctx context.Context, call loop.Call) (*loop.ApprovalAnswered, error) {
	p, err := r.desk.ask(call, r.agent.Approvals)
	if err != nil {
		return nil, err
	}
	r.pulse.asking(1)
	r.wall.pause()
	defer func() {
		r.wall.resume()
		r.pulse.asking(-1)
		r.showAsking()
	}()
	r.showAsking()
	r.o.inbox.stale()
	if err := r.desk.take(ctx); err != nil && ctx.Err() == nil {
		r.log.Warn("reading answers", "error", err)
	}
	var deadline <-chan time.Time
	if at := p.request.Deadline; at != 0 {
		t := time.NewTimer(time.Until(time.UnixMilli(at)))
		defer t.Stop()
		deadline = t.C
	}
	if err := r.awaitAnswer(ctx, p, deadline); err != nil {
		return nil, err
	}
	a := p.answered()
	if a.Answer == loop.TimedOut && p.request.Policy == string(ApprovalHaltAfter) {
		r.cancel(&haltError{call.Name, r.agent.Approvals.After})
	}
	return a, nil
}

func (r *run) awaitAnswer(ctx context.Context, p *petition, deadline <-chan time.Time) error {
	if p.answered() == nil {
		r.leftToPeople()
	}
	stopping := r.o.stopping
	for {
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-stopping:
			r.leftToPeople()
			stopping = nil
		case <-deadline:
			// A person who was as fast as the clock was faster.
			r.o.inbox.stale()
			if err := r.desk.take(ctx); err != nil {
				return err
			}
			return r.desk.answer(p, loop.TimedOut, nil)
		}
	}
}

// leftToPeople lets other sessions have the slot when nothing of the run goes on
// but its wait for people, and the session go when the worker is about to end:
// there is nothing to finish, and the next owner asks on.
func (r *run) leftToPeople() {
	if !r.pulse.onlyAsks() {
		return
	}
	r.o.slot.rest()
	if r.o.isStopping() {
		r.o.stop(errHandOver)
	}
}

// needApproval puts the question before the tools that may need it.
func (r *run) needApproval(tools []loop.Tool) []loop.Tool {
	if r.agent.Approvals.Needed == nil || tools == nil {
		return tools
	}
	out := make([]loop.Tool, len(tools))
	for i, t := range tools {
		out[i] = &approvedTool{Tool: t, run: r}
	}
	return out
}

// wallClock ends a run after a time, without the pauses.
type wallClock struct {
	mu     sync.Mutex // guards what is below
	timer  *time.Timer
	left   time.Duration
	since  time.Time // since when it runs
	pauses int
}

// newWallClock calls end when d has passed, of which former owners have used
// some; with d 0 never.
func newWallClock(d, used time.Duration, end func()) *wallClock {
	w := &wallClock{left: max(0, d-used), since: time.Now()}
	if d > 0 {
		w.timer = time.AfterFunc(w.left, end)
	}
	return w
}

func (w *wallClock) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pauses++; w.pauses == 1 && w.timer != nil {
		w.timer.Stop()
		w.left -= time.Since(w.since)
	}
}

func (w *wallClock) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pauses--; w.pauses == 0 && w.timer != nil {
		w.since = time.Now()
		w.timer.Reset(max(0, w.left))
	}
}

func (w *wallClock) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}
