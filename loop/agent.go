package loop

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
)

// ErrBusy is what an Agent's Prompt and Continue report, wrapped, while a run
// is in progress.
var ErrBusy = errors.New("loop: a run is in progress")

// QueueMode says how many waiting messages one poll takes.
type QueueMode string

const (
	// OneAtATime takes the oldest message.
	OneAtATime QueueMode = "one-at-a-time"
	// All takes every message.
	All QueueMode = "all"
)

// AgentConfig is what an [Agent] needs. Steering and FollowUp of Config must
// be nil: the Agent has its own queues.
type AgentConfig struct {
	Config
	Messages                   []Message // the transcript to begin with; copied
	SteeringMode, FollowUpMode QueueMode // "" means OneAtATime
	// Polled, if set, is told of each poll of a queue ("steering" or
	// "followUp") and how many messages it gave.
	Polled func(queue string, n int)
}

// Agent is the loop with a memory: a transcript that grows by its runs, and
// queues that may be filled while one is in progress. It is for programs that
// embed the loop without a broker. Its methods are safe for use by several
// goroutines; one run at a time.
type Agent struct {
	cfg Config

	mu       sync.Mutex
	messages []Message
	steering queue
	followUp queue
	polled   func(string, int)
	idle     chan struct{} // closed when no run is in progress
	cancel   context.CancelCauseFunc
	errText  string
	calls    map[string]int // tool calls in progress, by id
}

// AgentState is a snapshot of an [Agent].
type AgentState struct {
	Messages         []Message
	Running          bool
	ErrorMessage     string // of the last run, if a turn of it failed or it was aborted
	PendingToolCalls []string
	Queued           bool // messages wait in a queue
}

// queue holds messages for later.
type queue struct {
	mode     QueueMode
	messages []Message
}

func (q *queue) take() []Message {
	n := len(q.messages)
	if n > 1 && q.mode != All {
		n = 1
	}
	out := q.messages[:n:n]
	q.messages = q.messages[n:]
	return out
}

// NewAgent returns an idle agent.
func NewAgent(cfg AgentConfig) *Agent {
	idle := make(chan struct{})
	close(idle)
	return &Agent{
		cfg:      cfg.Config,
		messages: slices.Clone(cfg.Messages),
		steering: queue{mode: cfg.SteeringMode},
		followUp: queue{mode: cfg.FollowUpMode},
		polled:   cfg.Polled,
		idle:     idle,
		calls:    map[string]int{},
	}
}

// Prompt runs the loop with new messages; the run happens while the sequence
// is read. If a run is in progress the sequence has one error, which wraps
// [ErrBusy].
func (a *Agent) Prompt(ctx context.Context, prompts ...Message) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, err := a.begin(ctx, "Agent is already processing a prompt. Use steer() or followUp() to queue messages, or wait for completion.")
		if err != nil {
			yield(nil, err)
			return
		}
		defer a.finish()
		a.play(ctx, Run(ctx, a.config(false), a.transcript(), prompts...), yield)
	}
}

// Continue runs the loop on the transcript as it is. If that ends in an
// answer, a waiting steering or follow-up message is the prompt. The
// sequence's error wraps [ErrBusy] or [ErrContinue].
func (a *Agent) Continue(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, err := a.begin(ctx, "Agent is already processing. Wait for completion before continuing.")
		if err != nil {
			yield(nil, err)
			return
		}
		defer a.finish()
		history := a.transcript()
		if len(history) == 0 {
			yield(nil, &misuse{"No messages to continue from", ErrContinue})
			return
		}
		if history[len(history)-1].Role() != RoleAssistant {
			a.play(ctx, Continue(ctx, a.config(false), history), yield)
			return
		}
		if queued := a.take("steering", &a.steering); len(queued) > 0 {
			a.play(ctx, Run(ctx, a.config(true), history, queued...), yield)
			return
		}
		if queued := a.take("followUp", &a.followUp); len(queued) > 0 {
			a.play(ctx, Run(ctx, a.config(false), history, queued...), yield)
			return
		}
		yield(nil, continuable(history))
	}
}

// begin makes the agent busy.
func (a *Agent) begin(ctx context.Context, busy string) (context.Context, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.idle:
	default:
		return nil, &misuse{busy, ErrBusy}
	}
	a.idle = make(chan struct{})
	ctx, a.cancel = context.WithCancelCause(ctx)
	return ctx, nil
}

func (a *Agent) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancel(nil)
	a.cancel = nil
	clear(a.calls)
	close(a.idle)
}

// config is the run's configuration. The first poll is left out when its
// message has just been taken as the prompt.
func (a *Agent) config(skipFirst bool) *Config {
	cfg := a.cfg
	cfg.Steering = func(context.Context) ([]Message, error) {
		if skipFirst {
			skipFirst = false
			return nil, nil
		}
		return a.take("steering", &a.steering), nil
	}
	cfg.FollowUp = func(context.Context) ([]Message, error) {
		return a.take("followUp", &a.followUp), nil
	}
	return &cfg
}

func (a *Agent) take(name string, q *queue) []Message {
	a.mu.Lock()
	messages := q.take()
	a.mu.Unlock()
	if a.polled != nil {
		a.polled(name, len(messages))
	}
	return messages
}

// play passes a run's events on, keeping the state in step: an event's effect
// is seen by whoever gets it.
func (a *Agent) play(ctx context.Context, run iter.Seq2[Event, error], yield func(Event, error) bool) {
	a.mu.Lock()
	a.errText = ""
	a.mu.Unlock()
	for ev, err := range run {
		if err == nil {
			a.apply(ctx, ev)
		}
		if !yield(ev, err) {
			return
		}
	}
}

func (a *Agent) apply(ctx context.Context, ev Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch ev := ev.(type) {
	case *MessageEnd:
		a.messages = append(a.messages, ev.Message)
	case *CompactionEnd:
		if c := ev.Result; c != nil {
			kept := a.messages[max(0, len(a.messages)-c.Kept):]
			a.messages = append([]Message{c.message()}, kept...)
		}
	case *ToolExecutionStart:
		a.calls[ev.ToolCallID]++
	case *ToolExecutionEnd:
		if a.calls[ev.ToolCallID]--; a.calls[ev.ToolCallID] <= 0 {
			delete(a.calls, ev.ToolCallID)
		}
	case *TurnEnd:
		if msg, ok := ev.Message.(*AssistantMessage); ok && msg.ErrorMessage != "" {
			a.errText = msg.ErrorMessage
		}
	case *AgentEnd:
		// A run that was aborted while tools ran has no message that says so.
		if ctx.Err() != nil && len(ev.Messages) > 0 && ev.Messages[len(ev.Messages)-1].Role() != RoleAssistant {
			a.errText = textRequestAborted
		}
	}
}

// Steer queues a message for the next turn of the run (or the next run).
func (a *Agent) Steer(m Message) { a.enqueue(&a.steering, m) }

// FollowUp queues a message for when the run would stop.
func (a *Agent) FollowUp(m Message) { a.enqueue(&a.followUp, m) }

func (a *Agent) enqueue(q *queue, m Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q.messages = append(q.messages, m)
}

// ClearSteering drops the waiting steering messages.
func (a *Agent) ClearSteering() { a.clear(&a.steering) }

// ClearFollowUp drops the waiting follow-ups.
func (a *Agent) ClearFollowUp() { a.clear(&a.followUp) }

// ClearQueues drops everything that waits.
func (a *Agent) ClearQueues() { a.clear(&a.steering, &a.followUp) }

func (a *Agent) clear(queues ...*queue) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range queues {
		q.messages = nil
	}
}

// SetSteeringMode applies from the next poll on.
func (a *Agent) SetSteeringMode(m QueueMode) { a.setMode(&a.steering, m) }

// SetFollowUpMode applies from the next poll on.
func (a *Agent) SetFollowUpMode(m QueueMode) { a.setMode(&a.followUp, m) }

func (a *Agent) setMode(q *queue, m QueueMode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q.mode = m
}

// SetMessages replaces the transcript; a run in progress keeps its own.
func (a *Agent) SetMessages(messages []Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.messages = slices.Clone(messages)
}

// Reset drops the transcript, the queues and the last error.
func (a *Agent) Reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.messages, a.errText = nil, ""
	a.steering.messages, a.followUp.messages = nil, nil
}

// Abort ends the run in progress, if any; the queues keep their messages.
func (a *Agent) Abort() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancel != nil {
		a.cancel(errors.New("aborted"))
	}
}

// Wait returns when no run is in progress, or with ctx's error.
func (a *Agent) Wait(ctx context.Context) error {
	a.mu.Lock()
	idle := a.idle
	a.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// State is a snapshot of the agent.
func (a *Agent) State() AgentState {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := AgentState{
		Messages: slices.Clone(a.messages), ErrorMessage: a.errText,
		PendingToolCalls: slices.Sorted(maps.Keys(a.calls)),
		Queued:           len(a.steering.messages)+len(a.followUp.messages) > 0,
	}
	select {
	case <-a.idle:
	default:
		s.Running = true
	}
	return s
}

func (a *Agent) transcript() []Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.messages)
}
