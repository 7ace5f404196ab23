package loop

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// ErrContinue is what Continue reports, wrapped, when the history doesn't end
// in a message that a model can answer.
var ErrContinue = errors.New("loop: nothing to continue from")

// maxRefused is how many answers in a row may consist of refused calls only
// (cut or malformed arguments) before the run gives up.
const maxRefused = 3

// textRequestAborted is the error message of an answer that was aborted before
// it began, as in pi.
const textRequestAborted = "Request was aborted."

// misuse is an error of the caller, with pi's words.
type misuse struct {
	text string
	kind error
}

func (e *misuse) Error() string { return e.text }
func (e *misuse) Unwrap() error { return e.kind }

// Run prompts the model and goes on until it has nothing more to do: answers,
// tool calls, steering and follow-ups. The history is read, never changed.
//
// All trouble with the model and the tools is in the events: a run that began
// ends with agent_end. Ending ctx aborts the run, which then ends in order as
// well: the calls that run are asked to stop, no further one starts, nothing
// is polled. Breaking off the iteration releases everything without further
// events. The error of the sequence is for a Config without a Model.
func Run(ctx context.Context, cfg *Config, history []Message, prompts ...Message) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		start(ctx, cfg, history, yield, func(ctx context.Context, r *run) {
			if r.emit(&AgentStart{}) && r.openTurn() && r.deliver(prompts) {
				r.loop(ctx, true)
			}
		})
	}
}

// Continue is Run without a prompt: the history ends in a message that the
// model has not answered. Otherwise the sequence has one error and no event;
// it wraps [ErrContinue].
func Continue(ctx context.Context, cfg *Config, history []Message) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := continuable(history); err != nil {
			yield(nil, err)
			return
		}
		start(ctx, cfg, history, yield, func(ctx context.Context, r *run) {
			if r.emit(&AgentStart{}) && r.openTurn() {
				r.loop(ctx, true)
			}
		})
	}
}

func continuable(history []Message) error {
	if len(history) == 0 {
		return &misuse{"Cannot continue: no messages in context", ErrContinue}
	}
	if role := history[len(history)-1].Role(); role == RoleAssistant {
		return &misuse{"Cannot continue from message role: " + role, ErrContinue}
	}
	return nil
}

// run is one run in progress. It belongs to the goroutine that reads the
// sequence.
type run struct {
	cfg   *Config
	yield func(Event, error) bool
	stop  context.CancelFunc
	tools toolset

	context []Message // history and added
	added   []Message // the run's own messages
	turns   int       // turns begun
	inTurn  bool
	refused int  // answers in a row whose calls were all refused
	broken  bool // the consumer has broken off: emit nothing
	inYield bool // the consumer is running: a panic now is its own
}

// start sets a run up, plays it and releases what it holds.
func start(ctx context.Context, cfg *Config, history []Message, yield func(Event, error) bool, play func(context.Context, *run)) {
	if cfg == nil || cfg.Model == nil {
		yield(nil, errors.New("loop: Config without a Model"))
		return
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	play(ctx, &run{
		cfg:     cfg,
		yield:   yield,
		stop:    stop,
		tools:   newToolset(cfg.Tools),
		context: slices.Clone(history),
	})
}

// emit hands one event to the consumer; false means that it has broken off,
// and everything should return.
func (r *run) emit(ev Event) bool {
	if r.broken {
		return false
	}
	r.inYield = true
	ok := r.yield(ev, nil)
	r.inYield = false
	if !ok {
		r.broken = true
		r.stop()
	}
	return ok
}

// guard calls a function of the caller's and makes a panic an error. A panic
// of the consumer, which may run below f, is passed on.
func (r *run) guard(what string, f func() error) (err error) {
	defer func() {
		if r.inYield {
			return
		}
		if p := recover(); p != nil {
			err = fmt.Errorf("%s panicked: %v", what, p)
		}
	}()
	return f()
}

// openTurn begins a turn unless one is open.
func (r *run) openTurn() bool {
	if r.inTurn {
		return true
	}
	r.inTurn = true
	r.turns++
	return r.emit(&TurnStart{})
}

func (r *run) closeTurn(msg Message, results []*ToolResultMessage) bool {
	r.inTurn = false
	return r.emit(&TurnEnd{Message: msg, ToolResults: results})
}

func (r *run) end() { r.emit(&AgentEnd{Messages: slices.Clip(r.added)}) }

// add puts a finished message into the context.
func (r *run) add(m Message) {
	r.context = append(r.context, m)
	r.added = append(r.added, m)
}

// deliver emits whole messages and adds them.
func (r *run) deliver(messages []Message) bool {
	for _, m := range messages {
		if !r.emit(&MessageStart{Message: m}) || !r.emit(&MessageEnd{Message: m}) {
			return false
		}
		r.add(m)
	}
	return true
}

// loop plays turns until there is nothing more to do, and ends the run. more
// says that the model has something to answer even without a new message.
func (r *run) loop(ctx context.Context, more bool) {
	pending, ok := r.poll(ctx, r.cfg.Steering)
	for ok {
		for more || len(pending) > 0 {
			if more, ok = r.turn(ctx, pending); !ok {
				return
			}
			if pending, ok = r.poll(ctx, r.cfg.Steering); !ok {
				return
			}
		}
		if pending, ok = r.poll(ctx, r.cfg.FollowUp); !ok {
			return
		}
		if len(pending) == 0 {
			r.end()
			return
		}
	}
}

// poll asks a queue, but not after an abort: a message that nobody will answer
// stays where it is. not ok: the run has ended.
func (r *run) poll(ctx context.Context, queue func(context.Context) ([]Message, error)) (messages []Message, ok bool) {
	if queue == nil || ctx.Err() != nil {
		return nil, true
	}
	err := r.guard("polling the queue", func() (err error) {
		messages, err = queue(ctx)
		return err
	})
	if err != nil {
		r.fail(ctx, err)
		return nil, false
	}
	return messages, true
}

// turn plays one turn. not ok: the run has ended.
func (r *run) turn(ctx context.Context, pending []Message) (more, ok bool) {
	if !r.openTurn() || !r.deliver(pending) {
		return false, false
	}
	msg, ok := r.answer(ctx)
	if !ok {
		return false, false
	}
	return r.finishTurn(ctx, msg, nil)
}

// finishTurn runs the calls of a finished answer and closes its turn. done has
// what a former owner of the run already did; nil for nothing.
func (r *run) finishTurn(ctx context.Context, msg *AssistantMessage, done *OpenRun) (more, ok bool) {
	if msg.StopReason == StopError || msg.StopReason == StopAborted {
		if r.closeTurn(msg, nil) {
			r.end()
		}
		return false, false
	}
	batch, ok := r.runCalls(ctx, msg, done)
	if !ok || !r.closeTurn(msg, batch.results) {
		return false, false
	}
	return batch.more, r.afterTurn(ctx, msg, batch.results)
}

// afterTurn decides whether the run goes on; if not, it has ended it.
func (r *run) afterTurn(ctx context.Context, msg *AssistantMessage, results []*ToolResultMessage) bool {
	if ctx.Err() != nil {
		r.end()
		return false
	}
	if r.countRefused(msg); r.refused >= maxRefused {
		r.fail(ctx, fmt.Errorf("the model's tool calls were cut or malformed %d times in a row", r.refused))
		return false
	}
	stop, err := r.shouldStop(ctx, msg, results)
	if err != nil {
		r.fail(ctx, err)
		return false
	}
	if stop {
		r.end()
	}
	return !stop
}

func (r *run) shouldStop(ctx context.Context, msg *AssistantMessage, results []*ToolResultMessage) (stop bool, err error) {
	if r.cfg.ShouldStopAfterTurn == nil {
		return false, nil
	}
	err = r.guard("ShouldStopAfterTurn", func() (err error) {
		stop, err = r.cfg.ShouldStopAfterTurn(ctx, &AfterTurn{
			Assistant: msg, ToolResults: results,
			Context: slices.Clip(r.context), NewMessages: slices.Clip(r.added),
		})
		return err
	})
	return stop, err
}

// countRefused counts answers in a row that had calls, none of them whole.
func (r *run) countRefused(msg *AssistantMessage) {
	calls := msg.toolCalls()
	whole := slices.ContainsFunc(calls, func(c *ToolCall) bool { return c.Incomplete == "" })
	if len(calls) == 0 || whole {
		r.refused = 0
		return
	}
	r.refused++
}

// fail ends the run with an error message, in the open turn or in one of its
// own. After an abort the message says that instead: what failed then failed
// because of it.
func (r *run) fail(ctx context.Context, err error) {
	msg := r.failure(ctx, err)
	if r.openTurn() && r.deliver([]Message{msg}) && r.closeTurn(msg, nil) {
		r.end()
	}
}

// failure is the message of an answer that never began.
func (r *run) failure(ctx context.Context, err error) *AssistantMessage {
	info := r.cfg.Model.Info()
	msg := &AssistantMessage{
		API: info.API, Provider: info.Provider, Model: info.ID,
		StopReason: StopError, ErrorMessage: err.Error(), Err: err,
		Timestamp: time.Now().UnixMilli(),
	}
	if ctx.Err() != nil {
		msg.StopReason, msg.ErrorMessage, msg.Err = StopAborted, textRequestAborted, context.Cause(ctx)
	}
	return msg
}
