package loop

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// Texts of the results that the loop itself gives.
const (
	textBlocked = "Tool execution was blocked"
	textAborted = "Not run: the run was aborted before this call started"
)

const defaultAbortGrace = 10 * time.Second

// emptyDetails are the details of the loop's own results, as pi gives them.
var emptyDetails = json.RawMessage("{}")

// toolset is the tools of one run by name; of two with one name the first
// counts.
type toolset struct {
	specs  []ToolSpec // nil if the configuration has no list
	byName map[string]*toolEntry
}

type toolEntry struct {
	tool Tool
	spec ToolSpec
}

func newToolset(tools []Tool) toolset {
	t := toolset{byName: make(map[string]*toolEntry, len(tools))}
	if tools != nil {
		t.specs = make([]ToolSpec, 0, len(tools))
	}
	for _, tool := range tools {
		spec := tool.Spec()
		t.specs = append(t.specs, spec)
		if _, ok := t.byName[spec.Name]; !ok {
			t.byName[spec.Name] = &toolEntry{tool, spec}
		}
	}
	return t
}

// refusal is why a call does not run, in words for the model.
type refusal string

func (r refusal) Error() string { return string(r) }

// outcome is how a call ended.
type outcome struct {
	result  ToolResult
	isError bool
}

func failed(text string) *outcome {
	return &outcome{
		result:  ToolResult{Content: []Block{&Text{Text: text}}, Details: emptyDetails},
		isError: true,
	}
}

// callState is one call of an answer on its way to its result.
type callState struct {
	call  *ToolCall
	pos   int // among the answer's calls
	entry *toolEntry
	args  json.RawMessage // validated

	started  bool // tool_execution_start is out
	ended    bool // tool_execution_end is out
	answered bool // its result message is out
	outcome  *outcome
	message  *ToolResultMessage
}

// batch is what the calls of one answer gave.
type batch struct {
	results []*ToolResultMessage // in call order
	more    bool                 // the model is to see them
}

// runCalls runs the calls of an answer and adds their results to the context,
// once all of them are there. done is what a former owner of the run has done
// of it. not ok: the consumer has broken off.
func (r *run) runCalls(ctx context.Context, msg *AssistantMessage, done *OpenRun) (batch, bool) {
	calls := r.callStates(msg, done)
	if len(calls) == 0 {
		return batch{}, true
	}
	b := calling{run: r, msg: msg}
	if r.sequential(calls) {
		for i := range calls {
			if !b.play(ctx, calls[i:i+1]) {
				return batch{}, false
			}
		}
	} else if !b.play(ctx, calls) {
		return batch{}, false
	}
	out := batch{results: make([]*ToolResultMessage, 0, len(calls))}
	for _, c := range calls {
		r.add(c.message)
		out.results = append(out.results, c.message)
		out.more = out.more || !c.outcome.result.Terminate
	}
	return out, true
}

// callStates lists the calls with what is already known of each.
func (r *run) callStates(msg *AssistantMessage, done *OpenRun) []*callState {
	calls := msg.toolCalls()
	states := make([]*callState, len(calls))
	for i, call := range calls {
		states[i] = &callState{call: call, pos: i, entry: r.tools.byName[call.Name]}
	}
	if done != nil {
		resumeCalls(states, done)
	}
	return states
}

// sequential says whether calls run one after the other: one tool that wants
// it decides for all.
func (r *run) sequential(calls []*callState) bool {
	return r.cfg.ToolExecution == ExecutionSequential ||
		slices.ContainsFunc(calls, func(c *callState) bool {
			return c.entry != nil && c.entry.spec.ExecutionMode == ExecutionSequential
		})
}

// calling plays the calls of one answer.
type calling struct {
	*run
	msg         *AssistantMessage
	interrupted string // why no further call starts, "" while they may
}

// play prepares the calls in order, runs those that may run side by side, and
// emits the result messages in order.
func (b *calling) play(ctx context.Context, calls []*callState) bool {
	var ready []*callState
	for _, c := range calls {
		if c.outcome == nil && !b.begin(ctx, c) {
			return false
		}
		if c.outcome == nil {
			ready = append(ready, c)
		} else if !b.emitEnd(c) {
			return false
		}
	}
	// What has come in since a call was prepared counts as well: a hook of a
	// later call may have taken its time, or aborted the run.
	if err := b.halted(ctx); err != nil {
		for _, c := range ready {
			c.outcome = failed(err.Error())
			if !b.emitEnd(c) {
				return false
			}
		}
	} else if !b.execute(ctx, ready) {
		return false
	}
	for _, c := range calls {
		if !b.emitMessage(c) {
			return false
		}
	}
	return true
}

// begin announces a call and prepares it; a call that cannot run has its
// outcome then.
func (b *calling) begin(ctx context.Context, c *callState) bool {
	if !c.started {
		c.started = true
		ok := b.emit(&ToolExecutionStart{
			ToolCallID: c.call.ID, ToolName: c.call.Name, Args: c.call.Arguments,
		})
		if !ok {
			return false
		}
	}
	err := b.halted(ctx)
	if err == nil {
		err = b.prepare(ctx, c)
	}
	if err == nil && ctx.Err() != nil {
		err = refusal(textAborted)
	}
	if err != nil {
		c.outcome = failed(err.Error())
	}
	return true
}

// halted says why no further call of the batch may start; nil if it may.
func (b *calling) halted(ctx context.Context) error {
	if ctx.Err() != nil {
		return refusal(textAborted)
	}
	if b.cfg.Interrupt == nil || b.interrupted != "" {
		return b.interruption()
	}
	return b.guard("Interrupt", func() error {
		b.interrupted = b.cfg.Interrupt(ctx)
		return b.interruption()
	})
}

func (b *calling) interruption() error {
	if b.interrupted == "" {
		return nil
	}
	return refusal("Not run: " + b.interrupted)
}

// prepare finds the tool and makes the arguments that it will get.
func (b *calling) prepare(ctx context.Context, c *callState) error {
	if c.call.Incomplete != "" {
		return refusal("Not run: " + c.call.Incomplete)
	}
	if c.entry == nil {
		return refusal("Tool " + c.call.Name + " not found")
	}
	args := c.call.Arguments
	if p, ok := c.entry.tool.(ArgumentPreparer); ok {
		err := b.guard("preparing the arguments", func() (err error) {
			args, err = p.PrepareArguments(args)
			return err
		})
		if err != nil {
			return err
		}
	}
	args, err := validateArguments(&c.entry.spec, args)
	if err != nil {
		return err
	}
	c.args = args
	return b.before(ctx, c)
}

// before asks the hook whether the call may run, and with what arguments.
func (b *calling) before(ctx context.Context, c *callState) error {
	if b.cfg.BeforeToolCall == nil {
		return nil
	}
	var decision BeforeDecision
	err := b.guard("BeforeToolCall", func() (err error) {
		decision, err = b.cfg.BeforeToolCall(ctx, &BeforeToolCall{
			Assistant: b.msg, ToolCall: c.call, Args: c.args, Context: slices.Clip(b.context),
		})
		return err
	})
	switch {
	case err != nil:
		return err
	case decision.Block && decision.Reason != "":
		return refusal(decision.Reason)
	case decision.Block:
		return refusal(textBlocked)
	case decision.Args != nil:
		c.args, err = validateArguments(&c.entry.spec, decision.Args)
	}
	return err
}

// finish takes a tool's outcome, asks the hook after it, and emits the end.
func (b *calling) finish(ctx context.Context, c *callState, o *outcome) bool {
	c.outcome = o
	if b.broken {
		return false
	}
	if b.cfg.AfterToolCall != nil {
		b.after(ctx, c)
	}
	return b.emitEnd(c)
}

func (b *calling) after(ctx context.Context, c *callState) {
	var change *ResultOverride
	err := b.guard("AfterToolCall", func() (err error) {
		change, err = b.cfg.AfterToolCall(ctx, &AfterToolCall{
			Assistant: b.msg, ToolCall: c.call, Args: c.args,
			Result: c.outcome.result, IsError: c.outcome.isError, Context: slices.Clip(b.context),
		})
		return err
	})
	if err != nil {
		c.outcome = failed(err.Error())
		return
	}
	if change == nil {
		return
	}
	if change.Content != nil {
		c.outcome.result.Content = change.Content
	}
	if change.Details != nil {
		c.outcome.result.Details = change.Details
	}
	if change.IsError != nil {
		c.outcome.isError = *change.IsError
	}
	if change.Terminate != nil {
		c.outcome.result.Terminate = *change.Terminate
	}
}

func (b *calling) emitEnd(c *callState) bool {
	if c.ended {
		return true
	}
	c.ended = true
	return b.emit(&ToolExecutionEnd{
		ToolCallID: c.call.ID, ToolName: c.call.Name,
		Result: c.outcome.result, IsError: c.outcome.isError,
	})
}

func (b *calling) emitMessage(c *callState) bool {
	if c.answered {
		return true
	}
	c.answered = true
	c.message = &ToolResultMessage{
		ToolCallID: c.call.ID, ToolName: c.call.Name,
		Content: c.outcome.result.Content, Details: c.outcome.result.Details,
		IsError: c.outcome.isError, Timestamp: time.Now().UnixMilli(),
	}
	return b.emit(&MessageStart{Message: c.message}) && b.emit(&MessageEnd{Message: c.message})
}
