package worker

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/pi-worker/pi-worker/loop"
)

// barrier waits until everything that was appended so far is acknowledged by
// the broker. Nothing with an effect outside happens before it returned nil.
type barrier func(context.Context) error

// guardedModel sends no request before the log holds what led to it.
type guardedModel struct {
	loop.Model
	barrier barrier
	heard   func() // called when the model has said something
	mask    masker
}

func (m *guardedModel) Stream(ctx context.Context, req *loop.Request) iter.Seq2[*loop.Update, error] {
	return func(yield func(*loop.Update, error) bool) {
		if err := m.barrier(ctx); err != nil {
			yield(m.refused(err), nil)
			return
		}
		defer m.heard()
		for u, err := range m.Model.Stream(ctx, req) {
			if u != nil && u.Type == loop.UpdateError {
				clean := *u
				clean.Message = m.mask.answer(u.Message)
				u = &clean
			}
			if !yield(u, err) {
				return
			}
		}
	}
}

// refused is the answer to a request that was never sent. The run ends by the
// cause that made the barrier fail, so the message itself is seldom kept.
func (m *guardedModel) refused(err error) *loop.Update {
	info := m.Info()
	return &loop.Update{Type: loop.UpdateError, Message: &loop.AssistantMessage{
		API: info.API, Provider: info.Provider, Model: info.ID,
		StopReason: loop.StopAborted, ErrorMessage: err.Error(), Err: err,
	}}
}

// guardedTool starts no call before its tool_execution_start is in the log,
// and keeps secrets out of what the call says.
type guardedTool struct {
	loop.Tool
	barrier barrier
	heard   func() // called when the tool has said something
	mask    masker
}

func (t *guardedTool) Execute(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
	if err := t.barrier(ctx); err != nil {
		return loop.ToolResult{}, err
	}
	defer t.heard()
	output := t.mask.known.Stream()
	var mu sync.Mutex // a tool may tell of its progress from several goroutines
	res, err := t.Tool.Execute(ctx, call, func(r loop.ToolResult) {
		mu.Lock()
		r = t.mask.piece(r, output)
		mu.Unlock()
		update(r)
	})
	return t.mask.result(res), t.mask.err(err)
}

// PrepareArguments passes on to the tool, if it rewrites arguments at all.
func (t *guardedTool) PrepareArguments(args json.RawMessage) (json.RawMessage, error) {
	if p, ok := t.Tool.(loop.ArgumentPreparer); ok {
		return p.PrepareArguments(args)
	}
	return args, nil
}

func guardTools(tools []loop.Tool, b barrier, heard func(), m masker) []loop.Tool {
	if tools == nil {
		return nil // nil means that no list is sent at all
	}
	out := make([]loop.Tool, len(tools))
	for i, t := range tools {
		out[i] = &guardedTool{Tool: t, barrier: b, heard: heard, mask: m}
	}
	// By name, so that a request's first bytes are the same whatever the order
	// in which the configuration, a server or a service named its tools.
	slices.SortStableFunc(out, func(a, b loop.Tool) int { return strings.Compare(a.Spec().Name, b.Spec().Name) })
	return out
}
