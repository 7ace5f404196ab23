package loop

import (
	"context"
	"encoding/json"
	"time"
)

// Config is what a run needs. It is read only; one Config may serve many runs
// at once.
type Config struct {
	Model        Model
	SystemPrompt string
	// Tools nil means that the context has no list of tools.
	Tools         []Tool
	ToolExecution ExecutionMode // default parallel
	Options       ModelOptions
	Retry         RetryPolicy
	// Compaction summarises a context that has become too long; nil never does.
	Compaction *Compaction

	// AbortGrace is how long the calls that run may go on after an abort
	// before they are answered without their result (and left to end by
	// themselves); 0 means 10 s, a negative value waits for ever.
	AbortGrace time.Duration

	// The functions below are called one at a time, from the goroutine that
	// reads the run. An error or a panic of one never leaves a run without
	// its agent_end: around a tool call it becomes the call's error result,
	// elsewhere the run ends with an error message. Slices that they get are
	// theirs to append to.

	// Steering is polled at the head of the run and after each turn, FollowUp
	// when the run would stop; neither after an abort. nil is never polled.
	Steering, FollowUp func(context.Context) ([]Message, error)

	// Interrupt is asked before each tool call starts whether something more
	// urgent has come in. Its reason, if not "", is the error result of this
	// call and of those after it; calls that run go on, and steering is polled
	// when they have ended. Without it a steering message waits for all calls
	// of the turn. nil never interrupts.
	Interrupt func(context.Context) (reason string)

	BeforeToolCall      func(context.Context, *BeforeToolCall) (BeforeDecision, error)
	AfterToolCall       func(context.Context, *AfterToolCall) (*ResultOverride, error)
	ShouldStopAfterTurn func(context.Context, *AfterTurn) (bool, error)

	// ConvertToLLM turns the context into messages for the model; nil keeps
	// user, assistant and toolResult messages.
	ConvertToLLM func(context.Context, []Message) ([]Message, error)
	// TransformContext changes the context of one model call.
	TransformContext func(context.Context, []Message) ([]Message, error)
	// APIKey is asked before each model call; "" means Options.APIKey.
	APIKey func(ctx context.Context, provider string) (string, error)

	// CallKey gives each tool call its stable key; nil gives none. turn
	// counts the run's turns from 0, position the calls of its message.
	CallKey func(turn, position int) string
}

// BeforeToolCall is what the hook before a call sees.
type BeforeToolCall struct {
	Assistant *AssistantMessage
	ToolCall  *ToolCall       // as the model wrote it
	Args      json.RawMessage // validated and coerced
	Context   []Message
}

// BeforeDecision is the hook's answer; the zero value lets the call pass.
type BeforeDecision struct {
	Block  bool
	Reason string
	// Args replaces the arguments, and is validated again; nil keeps them.
	Args json.RawMessage
}

// AfterToolCall is what the hook after a call sees.
type AfterToolCall struct {
	Assistant *AssistantMessage
	ToolCall  *ToolCall
	Args      json.RawMessage
	Result    ToolResult
	IsError   bool
	Context   []Message
}

// ResultOverride changes parts of a result; nil fields keep them.
type ResultOverride struct {
	Content   []Block // non-nil replaces, even when empty
	Details   json.RawMessage
	IsError   *bool
	Terminate *bool
}

// AfterTurn is what ShouldStopAfterTurn sees.
type AfterTurn struct {
	Assistant   *AssistantMessage
	ToolResults []*ToolResultMessage
	Context     []Message
	NewMessages []Message
}
