package loop

import (
	"context"
	"encoding/json"
)

// ExecutionMode says whether calls of one message run side by side.
type ExecutionMode string

const (
	ExecutionDefault    ExecutionMode = ""
	ExecutionParallel   ExecutionMode = "parallel"
	ExecutionSequential ExecutionMode = "sequential"
)

// ToolSpec is what the model is told of a tool, and what the loop must know.
type ToolSpec struct {
	Name        string
	Label       string // for people, "" means Name
	Description string
	Parameters  json.RawMessage // JSON Schema
	// ExecutionMode sequential makes every batch with this tool sequential.
	ExecutionMode ExecutionMode
	// Idempotent tools are run again when a worker died in the middle of a
	// call; others are answered "interrupted: outcome unknown".
	Idempotent bool
}

// Tool runs calls. A returned error, and a panic, become error results.
type Tool interface {
	Spec() ToolSpec
	// Execute runs one call. ctx ends on abort. update publishes progress
	// (the new part only); it may be called from any goroutine until Execute
	// returns, later calls are dropped.
	Execute(ctx context.Context, call Call, update func(ToolResult)) (ToolResult, error)
}

// ArgumentPreparer is implemented by tools that rewrite their arguments before
// validation.
type ArgumentPreparer interface {
	PrepareArguments(args json.RawMessage) (json.RawMessage, error)
}

// Call is one execution of a tool.
type Call struct {
	ID   string
	Name string
	// Args are validated and coerced.
	Args json.RawMessage
	// Key is the same for every attempt of this call (session, run, turn,
	// position), for the tool's own deduplication; "" when the loop runs
	// without a session.
	Key string
}

type callKey struct{}

// CallKey is the [Call].Key of the tool call that ctx was given to, "" in no
// call or one without a key. So what a tool calls can tell where it comes from.
func CallKey(ctx context.Context) string {
	key, _ := ctx.Value(callKey{}).(string)
	return key
}

// WithCallKey gives ctx to a call as [CallKey] has it, for those who run tools
// without a loop; "" leaves the key of an outer call where there is none.
func WithCallKey(ctx context.Context, key string) context.Context {
	if key == "" {
		return ctx
	}
	return context.WithValue(ctx, callKey{}, key)
}

// ToolResult is what a tool answers.
type ToolResult struct {
	Content []Block         // Text and Image
	Details json.RawMessage // nil: none
	// Terminate ends the run if every result of the batch has it.
	Terminate bool
	// IsError marks a result that is a failure without a Go error.
	IsError bool
}

// TextResult is a result of one text block.
func TextResult(text string) ToolResult {
	return ToolResult{Content: []Block{&Text{Text: text}}}
}
