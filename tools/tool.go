package tools

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/pi-worker/pi-worker/loop"
)

// errAborted is what a call answers that was cancelled.
var errAborted = errors.New("Operation aborted") //nolint:staticcheck // the model reads it as a sentence

// updater publishes the new part of a call's progress.
type updater func(loop.ToolResult)

// builtin is one tool of a workspace.
type builtin struct {
	spec    loop.ToolSpec
	prepare func(json.RawMessage) json.RawMessage // nil: none
	aborted error
	ready   func() error
	run     func(ctx context.Context, args json.RawMessage, update updater) (loop.ToolResult, error)
}

func (b *builtin) Spec() loop.ToolSpec { return b.spec }

// PrepareArguments accepts the forms of arguments that models write.
func (b *builtin) PrepareArguments(args json.RawMessage) (json.RawMessage, error) {
	if b.prepare == nil {
		return args, nil
	}
	return b.prepare(args), nil
}

func (b *builtin) Execute(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
	if ctx.Err() != nil {
		return loop.ToolResult{}, b.aborted
	}
	if update == nil {
		update = func(loop.ToolResult) {}
	}
	if err := b.ready(); err != nil {
		return loop.ToolResult{}, err
	}
	return b.run(ctx, call.Args, update)
}

func (w *Workspace) tool(name string) loop.Tool {
	b := &builtin{aborted: errAborted, ready: w.ready, spec: loop.ToolSpec{
		Name: name, Label: name, Description: descriptions[name],
		Parameters: json.RawMessage(parameters[name]),
	}}
	switch name {
	case "read":
		b.run = w.read
	case "write":
		b.run, b.spec.ExecutionMode = w.write, loop.ExecutionSequential
	case "edit":
		b.run, b.prepare, b.spec.ExecutionMode = w.edit, prepareEdit, loop.ExecutionSequential
	case "bash":
		b.run, b.aborted = w.bash, errors.New("Command aborted")
	case "find":
		b.run = w.find
	case "ls":
		b.run = w.ls
	case "grep":
		b.run = w.grep
	}
	return b
}
