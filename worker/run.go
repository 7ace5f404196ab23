package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// Causes of the end of a run's context, while the session stays ours.
var (
	errAborted  = errors.New("worker: run aborted")
	errWallTime = errors.New("worker: limit of wall time reached")
)

// run is one prompt on its way from its first event to agent_settled.
type run struct {
	o        *owner
	agent    *Agent
	mask     masker
	prompt   session.InputRef
	attempts int
	turn     int // counted from 0
	meter    *meter
	pulse    *pulse
	desk     *desk
	wall     *wallClock
	family   *family
	budget   *budget
	ctx      context.Context
	cancel   context.CancelCauseFunc

	// taking guards inputs, and keeps polls and changes of the queue apart.
	taking sync.Mutex
	// inputs are the ones that the loop was given and that have no record yet.
	inputs map[loop.Message]*session.Input
	// polled is the last input of a kind that the loop was given.
	polled map[subjects.Kind]uint64
	// held are events that go into one record with the ones that follow.
	held []loop.Event
	last *loop.AssistantMessage
	end  *loop.AgentEnd // held back, to be one record with agent_settled
	// settled is how it ended, "" while it is open.
	settled loop.Outcome
	begun   time.Time
	used    time.Duration // of its wall time, by former owners
	spans   spans
	log     *slog.Logger // has the run's sequence, and its trace

	mu    sync.Mutex // guards what is below
	abort *session.Input
	shown session.Summary // as ps was told last
}

// agent asks for what a prompt runs with.
func (o *owner) agent(ref session.InputRef) (*Agent, error) {
	req := AgentRequest{
		Session: o.session, Epoch: o.events.Epoch().String(), Saved: o.saved, ClaimsSince: o.claimsSince,
		Append: func(ctx context.Context, ev loop.Event) error { return o.events.Append(ctx, ev) },
		Flush:  o.barrier,
	}
	if opts := ref.Options; opts != nil {
		req.Name, req.Model, req.ThinkingLevel, req.Extra = opts.Agent, opts.Model, opts.ThinkingLevel, opts.Extra
	}
	agent, err := o.w.cfg.Agent(o.ctx, req)
	if err != nil {
		return nil, err
	}
	if agent == nil || agent.Model == nil {
		return nil, errors.New("worker: agent without a model")
	}
	return agent, nil
}

// refused says that an error of [Config.Agent] will be the same next time.
func refused(err error) bool {
	return errors.Is(err, ErrUnknownAgent) || errors.Is(err, ErrNotAllowed)
}

// refusal is the reason that the dead letter of a refused input gives.
func refusal(err error) string {
	if errors.Is(err, ErrUnknownAgent) {
		return "unknown_agent"
	}
	return "not_allowed"
}

func (o *owner) newRun(agent *Agent, prompt session.InputRef, attempts int, open *loop.OpenRun, kin *family) *run {
	r := &run{
		o: o, agent: agent, prompt: prompt, attempts: attempts, family: kin,
		mask:   newMasker(slices.Concat(agent.Secrets, o.w.cfg.Secrets)),
		meter:  newMeter(agent.Limits, open),
		pulse:  newPulse(o.w.cfg.WaitingEvery),
		desk:   newDesk(o, open),
		inputs: map[loop.Message]*session.Input{},
		polled: map[subjects.Kind]uint64{},
		turn:   -1,
		begun:  time.Now(),
		log:    o.log.With("run", prompt.Seq),
	}
	if open != nil {
		r.turn = open.Turn
	}
	o.agentName = cmp.Or(agent.Name, "default")
	o.summary.Agent, o.summary.Model, o.summary.Parent = agent.Name, agent.Model.Info().ID, kin.parent()
	o.summary.Started = time.Now()
	return r
}

// prompt runs one input until it is settled.
func (o *owner) prompt(in *session.Input) error {
	kin, err := o.family(o.ctx, in.Ref)
	if err == nil {
		var end *kinError
		if end, err = kin.look(o.ctx); end != nil {
			return o.orphaned(in, end)
		}
	}
	if err != nil && !refused(err) {
		return err // the broker's: the next owner looks again
	}
	var agent *Agent
	if err == nil {
		agent, err = o.agent(in.Ref)
	}
	switch {
	case o.ctx.Err() != nil:
		return context.Cause(o.ctx)
	case refused(err):
		return o.deadLetter(in, refusal(err), 1, err, true)
	case err != nil:
		o.log.Error("preparing the agent", "error", err)
		return o.consume(in, &loop.AgentSettled{
			Outcome: loop.OutcomeFailed, Attempts: 1, PromptSeq: in.Ref.Seq, PromptID: in.ID,
			ErrorMessage: newMasker(o.w.cfg.Secrets).text(err.Error()),
		})
	}
	o.fresh = false
	r := o.newRun(agent, in.Ref, 1, nil, kin)
	if over := r.joinTree(o.ctx); over != nil {
		defer r.close()
		return o.orphaned(in, over)
	}
	r.begin(in.TraceParent)
	r.inputs[in.Message] = in
	r.polled[in.Ref.Kind] = in.Ref.Seq
	history := o.transcript.Context()
	return r.drive(func(ctx context.Context, cfg *loop.Config) iter.Seq2[loop.Event, error] {
		return loop.Run(ctx, cfg, history, in.Message)
	})
}

// drive puts what the loop says into the log, and settles.
func (r *run) drive(start func(context.Context, *loop.Config) iter.Seq2[loop.Event, error]) (err error) {
	o := r.o
	hooks := &o.w.cfg.Hooks
	call(hooks.RunStarted, o.agentName)
	defer func() {
		hooks.runEnded(o.agentName, r.settled, time.Since(r.begun))
		r.spans.endRun(r, err)
		o.agentName = UnknownAgent
	}()
	defer r.close()
	if err := o.slot.resume(o.ctx); err != nil {
		return err
	}
	r.ctx, r.cancel = context.WithCancelCause(r.spans.with(o.ctx))
	defer r.cancel(nil)
	r.wall = newWallClock(r.agent.Limits.WallTime, r.used, func() { r.cancel(errWallTime) })
	defer r.wall.stop()
	o.board("running")
	o.w.follow(o, r.family.sessions())
	defer o.w.unfollow(o, r.family.sessions())
	watching, endWatch := context.WithCancel(r.ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer endWatch()
	watch.Go(func() { r.watchAborts(watching) })
	if r.agent.Background != nil {
		watch.Go(func() { r.agent.Background(watching) })
	}
	watch.Go(func() {
		r.pulse.beat(watching, func(ev *loop.Waiting) error { return o.events.Append(o.ctx, ev) })
	})

	fault := r.follow(start(r.ctx, r.config()))
	endWatch()
	watch.Wait()
	if o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	if errors.Is(fault, errHandOver) {
		return errHandOver
	}
	if _, ok := errors.AsType[*appendError](fault); ok {
		return fault
	}
	if err := r.desk.withdraw(); err != nil {
		return err
	}
	return r.settle(fault)
}

func (r *run) close() {
	if r.agent.Close == nil {
		return
	}
	if err := r.agent.Close(); err != nil {
		r.log.Warn("closing the agent", "error", err)
	}
}

// appendError is trouble with the log, which is no fault of the run.
type appendError struct{ error }

func (e *appendError) Unwrap() error { return e.error }

// follow appends the loop's events until it ends or the session has to go to
// another worker. Nothing that happens after the session was taken away, or
// because of it, gets into the log.
func (r *run) follow(events iter.Seq2[loop.Event, error]) error {
	for ev, err := range events {
		if r.o.ctx.Err() != nil {
			return context.Cause(r.o.ctx)
		}
		if err != nil {
			return err
		}
		if _, ok := ev.(*loop.TurnStart); ok && r.o.isStopping() {
			return errHandOver
		}
		if err := r.saw(ev); err != nil {
			return &appendError{err}
		}
		if _, ok := ev.(*loop.ToolExecutionEnd); ok {
			r.leftToPeople() // those that are still open may all wait for people
		}
	}
	return nil
}

// saw takes one event of the loop.
func (r *run) saw(ev loop.Event) error {
	r.pulse.saw(ev)
	r.o.slot.saw(ev)
	switch ev := ev.(type) {
	case *loop.AgentStart:
		return r.hold(ev)
	case *loop.TurnStart:
		r.turn++
		r.spans.startTurn(r)
		r.show()
		if len(r.held) > 0 { // agent_start
			return r.hold(ev)
		}
	case *loop.MessageStart:
		if _, ok := r.inHand(ev.Message); ok {
			return r.hold(ev)
		}
	case *loop.MessageEnd:
		if in, ok := r.inHand(ev.Message); ok {
			defer r.delivered(ev.Message)
			return r.append(ev, in)
		}
		if a, ok := ev.Message.(*loop.AssistantMessage); ok {
			r.last = a
			r.meter.answered(a)
		}
	case *loop.CompactionEnd:
		r.meter.spent(ev.Usage)
	case *loop.ToolExecutionStart, *loop.ToolExecutionEnd:
		r.show()
	case *loop.TurnEnd:
		r.spans.endTurn()
	case *loop.AutoRetryStart:
		r.spans.retry(ev)
	case *loop.AgentEnd:
		r.end = ev
		return nil
	}
	return r.append(ev)
}

// hold keeps an event for the next record: agent_start, the start of the first
// turn and an input's message are one commit, so that no crash can leave an
// input that is consumed and not there.
func (r *run) hold(ev loop.Event) error {
	r.held = append(r.held, ev)
	return nil
}

func (r *run) append(ev loop.Event, inputs ...*session.Input) error {
	if len(r.held) == 0 && len(inputs) == 0 {
		if err := r.o.events.Append(r.o.ctx, ev); err != nil {
			return err
		}
		r.o.w.cfg.Hooks.appendedOne(r.o.agentName, ev)
		return r.o.apply(ev)
	}
	evs := append(r.held, ev)
	r.held = nil
	return r.o.append(evs, inputs...)
}

// apiKey asks the agent's; a key that was changed meanwhile is masked as well.
func (r *run) apiKey() func(context.Context, string) (string, error) {
	ask := r.agent.APIKey
	if ask == nil {
		return nil
	}
	return func(ctx context.Context, provider string) (string, error) {
		key, err := ask(ctx, provider)
		r.mask.add(key)
		return key, err
	}
}

// config is the loop's view of this run.
func (r *run) config() *loop.Config {
	a := r.agent
	return &loop.Config{
		Model:         &guardedModel{Model: &observedModel{a.Model, r}, barrier: r.barrier, heard: r.o.inbox.stale, mask: r.mask},
		SystemPrompt:  a.SystemPrompt,
		Tools:         guardTools(r.needApproval(r.observeTools(a.Tools)), r.barrier, r.o.inbox.stale, r.mask),
		ToolExecution: a.ToolExecution,
		Options:       a.Options,
		Retry:         a.Retry,
		Compaction:    a.Compaction,
		Interrupt:     r.interrupt,
		APIKey:        r.apiKey(),
		Steering:      r.poll(subjects.KindSteer, a.Steering),
		FollowUp:      r.poll(subjects.KindFollowUp, a.FollowUp),

		BeforeToolCall: r.meter.beforeToolCall,
		ShouldStopAfterTurn: func(ctx context.Context, t *loop.AfterTurn) (bool, error) {
			if over := r.budget.check(ctx); over != nil {
				r.meter.reach(over.text)
			}
			return r.meter.stopAfterTurn(t), nil
		},
		CallKey: func(turn, position int) string {
			return fmt.Sprintf("%s/%d/%d/%d", r.o.session, r.prompt.Seq, turn, position)
		},
	}
}

// barrier also stands for the events of this run that wait for others.
func (r *run) barrier(ctx context.Context) error {
	if err := r.o.slot.resume(ctx); err != nil {
		return err
	}
	return r.o.barrier(ctx)
}

// poll gives the loop what has come in since. Trouble with the broker is none
// of the run: the inputs stay, and the next poll finds them.
func (r *run) poll(kind subjects.Kind, mode QueueMode) func(context.Context) ([]loop.Message, error) {
	return func(ctx context.Context) ([]loop.Message, error) {
		var msgs []loop.Message
		for mode == All || len(msgs) == 0 {
			in, err := r.take(ctx, kind)
			if errors.Is(err, session.ErrNoInput) {
				break
			}
			if err != nil {
				r.log.Warn("polling the inbox", "kind", kind, "error", err)
				break
			}
			msgs = append(msgs, in.Message)
		}
		return msgs, nil
	}
}

// take notes the next input as being in the loop's hands.
func (r *run) take(ctx context.Context, kind subjects.Kind) (*session.Input, error) {
	r.taking.Lock()
	defer r.taking.Unlock()
	in, err := r.nextInput(ctx, kind)
	if err == nil {
		r.inputs[in.Message] = in
	}
	return in, err
}

// inHand gives the input of a message that the loop has and the log has not.
func (r *run) inHand(m loop.Message) (*session.Input, bool) {
	r.taking.Lock()
	defer r.taking.Unlock()
	in, ok := r.inputs[m]
	return in, ok
}

// delivered ends that, after the record.
func (r *run) delivered(m loop.Message) {
	r.taking.Lock()
	defer r.taking.Unlock()
	delete(r.inputs, m)
}

// interrupt says why no further call of the turn may start: a steer in the
// inbox that asks for it. It stays there; the poll behind the calls takes it.
func (r *run) interrupt(ctx context.Context) string {
	after := max(r.polled[subjects.KindSteer], r.o.inbox.cursor(subjects.KindSteer))
	r.o.inbox.stale() // other calls may be running
	for {
		in, err := r.o.inbox.next(ctx, subjects.KindSteer, after)
		if err != nil {
			return "" // none, or none that can be seen now
		}
		if _, spent := r.o.events.Spent(in); !spent && in.Err == nil && in.Options.Interrupts() {
			return fmt.Sprintf("a steering message (input %d) asked to interrupt before this call started", in.Ref.Seq)
		}
		after = in.Ref.Seq
	}
}

// nextInput gives the next input of the kind that the loop was not given yet.
func (r *run) nextInput(ctx context.Context, kind subjects.Kind) (*session.Input, error) {
	for {
		after := max(r.polled[kind], r.o.inbox.cursor(kind))
		in, err := r.o.inbox.next(ctx, kind, after)
		if err != nil {
			return nil, err
		}
		if len(r.inputs) > 0 && (in.Err != nil || r.repeats(in)) {
			// Its event would spend the inputs before it, which have no record
			// yet. The next poll deals with it.
			return nil, session.ErrNoInput
		}
		ok, err := r.o.usable(in, false)
		if err != nil {
			return nil, err
		}
		if ok {
			r.polled[kind] = in.Ref.Seq
			return in, nil
		}
	}
}

// repeats is true for an id that the log or this poll has already.
func (r *run) repeats(in *session.Input) bool {
	if _, spent := r.o.events.Spent(in); spent {
		return true
	}
	for _, other := range r.inputs {
		if in.ID != "" && other.ID == in.ID {
			return true
		}
	}
	return false
}

// show puts the run's state on the board.
func (r *run) show() {
	r.o.summary.Turn = r.turn + 1
	r.o.summary.Tool = r.pulse.runningTool()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shown = r.o.summary
	r.o.board(r.pulse.state())
}

// showAsking does so when a call begins or ends to wait for a person, which
// happens beside the run's own goroutine.
func (r *run) showAsking() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shown.Session == "" || r.o.ctx.Err() != nil {
		return
	}
	s := r.shown
	s.State = r.pulse.state()
	r.o.w.board.put(s)
}
