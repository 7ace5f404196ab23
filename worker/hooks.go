package worker

import (
	"errors"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
)

// UnknownAgent stands in [Hooks] for prompts that no agent took.
const UnknownAgent = "unknown"

// Hooks are told what a worker does, for metrics. A nil field is not called.
// They are called from many goroutines, some of which others wait for: they
// must not block. agent is the name of the [Agent].
type Hooks struct {
	// Claimed: a session's bell was given to this worker. ClaimEnded says why
	// it has it no more: "done", "empty" (there was nothing to do), "held"
	// (its former owner lives), "handed_over", "lease_lost", "fenced" or
	// "error".
	Claimed    func()
	ClaimEnded func(reason string)
	// TakenOver: the open run of a former owner goes on here.
	TakenOver func(agent string)
	// RunStarted and RunEnded come once each for what a worker does for one
	// prompt. Outcome is "" for a run that goes on elsewhere.
	RunStarted func(agent string)
	RunEnded   func(agent string, outcome loop.Outcome, took time.Duration)
	// Settled: a prompt has its agent_settled. It may never have begun.
	Settled     func(agent string, outcome loop.Outcome)
	TurnStarted func(agent string)
	// Used: an answer or a summary has cost this.
	Used      func(agent string, usage loop.Usage)
	Compacted func(agent string, reason loop.CompactionReason)
	// Retried: a request to the model is made again; class is the class of its
	// [loop.ModelError].
	Retried      func(agent, class string)
	ModelCalled  func(ModelCall)
	ToolCalled   func(ToolCall)
	DeadLettered func(reason string)
	Log          LogHooks
}

// LogHooks are told what happens to logs and leases.
type LogHooks = session.Hooks

// Commit is one record of a log.
type Commit = session.Commit

// ModelCall is one request to a model that has ended. Requests that were held
// back because their key rests are none.
type ModelCall struct {
	Agent, Model string
	// Result is "ok", "aborted", or the class of the [loop.ModelError].
	Result string
	// FirstByte is from the request to the first piece of the answer, 0 if
	// there was none; Silence the longest time between two pieces; Took the
	// whole.
	FirstByte, Silence, Took time.Duration
}

// ToolCall is one call that has ended. The wait for an approval is not in
// Took.
type ToolCall struct {
	Agent, Tool string
	Took        time.Duration
	Failed      bool // its result is an error
}

// call calls a hook that may be nil.
func call[T any](hook func(T), arg T) {
	if hook != nil {
		hook(arg)
	}
}

func call2[T, U any](hook func(T, U), a T, b U) {
	if hook != nil {
		hook(a, b)
	}
}

func (h *Hooks) claimed() {
	if h.Claimed != nil {
		h.Claimed()
	}
}

func (h *Hooks) runEnded(agent string, outcome loop.Outcome, took time.Duration) {
	if h.RunEnded != nil {
		h.RunEnded(agent, outcome, took)
	}
}

// appended looks at the events that count, whoever appends them.
func (h *Hooks) appended(agent string, evs []loop.Event) {
	for _, ev := range evs {
		h.appendedOne(agent, ev)
	}
}

func (h *Hooks) appendedOne(agent string, ev loop.Event) {
	switch ev := ev.(type) {
	case *loop.AgentSettled:
		call2(h.Settled, agent, ev.Outcome)
	case *loop.TurnStart:
		call(h.TurnStarted, agent)
	case *loop.CompactionEnd:
		call2(h.Used, agent, ev.Usage)
		if ev.Result != nil {
			call2(h.Compacted, agent, ev.Reason)
		}
	case *loop.AutoRetryStart:
		call2(h.Retried, agent, ev.Class)
	case *loop.MessageEnd:
		if a, ok := ev.Message.(*loop.AssistantMessage); ok {
			call2(h.Used, agent, a.Usage)
		}
	}
}

// whyEnded names the end of a claim; opened says that there was a log to write.
func whyEnded(err error, opened bool) string {
	switch {
	case err == nil && opened:
		return "done"
	case err == nil:
		return "empty"
	case errors.Is(err, errHeld):
		return "held"
	case errors.Is(err, errHandOver):
		return "handed_over"
	case errors.Is(err, session.ErrLeaseLost):
		return "lease_lost"
	case errors.Is(err, session.ErrFenced):
		return "fenced"
	}
	return "error"
}
