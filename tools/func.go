package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/pi-worker/pi-worker/loop"
)

// FuncOptions change a tool made by [Func]. The zero value is fit for use.
type FuncOptions struct {
	Label string // for people; "" means the name
	// ExecutionMode sequential makes every batch with this tool sequential.
	ExecutionMode loop.ExecutionMode
	// Idempotent says that a call may be run again after a worker died in the
	// middle of it.
	Idempotent bool
}

// Func makes a tool of a function. The schema of its arguments comes from In, a
// struct: names from the json tags, descriptions from the jsonschema tags, and
// fields with omitempty or omitzero are optional. The arguments that reach f
// were checked against it. An error of f is what the model reads. call has the
// key that stays the same when the call is tried again.
//
// nil options are the defaults. The error is for a name or a type that cannot
// be a tool's.
func Func[In any](name, description string, f func(ctx context.Context, call loop.Call, in In) (loop.ToolResult, error), opt *FuncOptions) (loop.Tool, error) {
	if name == "" || f == nil {
		return nil, errors.New("tools: a function tool needs a name and a function")
	}
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		return nil, fmt.Errorf("tools: schema of %s: %w", name, err)
	}
	if schema.Type != "object" {
		return nil, fmt.Errorf("tools: the arguments of %s must be a struct, not %T", name, *new(In))
	}
	raw, err := json.Marshal(schema)
	if err != nil {
		return nil, fmt.Errorf("tools: schema of %s: %w", name, err)
	}
	if opt == nil {
		opt = &FuncOptions{}
	}
	return &funcTool[In]{f: f, spec: loop.ToolSpec{
		Name: name, Label: opt.Label, Description: description, Parameters: raw,
		ExecutionMode: opt.ExecutionMode, Idempotent: opt.Idempotent,
	}}, nil
}

type funcTool[In any] struct {
	spec loop.ToolSpec
	f    func(context.Context, loop.Call, In) (loop.ToolResult, error)
}

func (t *funcTool[In]) Spec() loop.ToolSpec { return t.spec }

func (t *funcTool[In]) Execute(ctx context.Context, call loop.Call, _ func(loop.ToolResult)) (loop.ToolResult, error) {
	in, err := unmarshalArgs[In](call.Args)
	if err != nil {
		return loop.ToolResult{}, err
	}
	return t.f(ctx, call, in)
}
