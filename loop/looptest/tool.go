package looptest

import (
	"context"

	"github.com/pi-worker/pi-worker/loop"
)

// Tool is a [loop.Tool] made of a function. A nil Run answers "<name> ok".
type Tool struct {
	loop.ToolSpec
	Run func(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error)
}

// Spec implements [loop.Tool].
func (t *Tool) Spec() loop.ToolSpec { return t.ToolSpec }

// Execute implements [loop.Tool].
func (t *Tool) Execute(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
	if t.Run == nil {
		return loop.TextResult(t.Name + " ok"), nil
	}
	return t.Run(ctx, call, update)
}
