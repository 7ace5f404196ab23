package worker

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// observedModel measures requests. What the reader of an answer does between
// two pieces is no silence of the model.
type observedModel struct {
	loop.Model
	run *run
}

func (m *observedModel) Stream(ctx context.Context, req *loop.Request) iter.Seq2[*loop.Update, error] {
	return func(yield func(*loop.Update, error) bool) {
		c := ModelCall{Agent: m.run.agent.Name, Model: m.Info().ID, Result: "aborted"}
		ctx, span := m.run.spans.model(ctx, m.run, m.Info(), req)
		begun := time.Now()
		var waits time.Duration // since when the next piece is waited for, after begun
		var final *loop.AssistantMessage
		defer func() {
			c.Took = time.Since(begun)
			span.end(&c, final)
			if c.Result != "" {
				call(m.run.o.w.cfg.Hooks.ModelCalled, c)
			}
		}()
		told := m.run.o.w.cfg.Hooks.ModelCalled != nil || span.IsRecording()
		for u, err := range m.Model.Stream(ctx, req) {
			switch {
			case u == nil:
			case u.Type == loop.UpdateDone, u.Type == loop.UpdateError:
				final = u.Message
				c.Result = result(final)
			case told && c.FirstByte == 0:
				c.FirstByte = max(time.Since(begun), 1)
			case told:
				c.Silence = max(c.Silence, time.Since(begun)-waits)
			}
			if !yield(u, err) {
				return
			}
			if told { // the monotonic clock alone is twice as fast
				waits = time.Since(begun)
			}
		}
	}
}

// result is the Result of a ModelCall, "" if nothing was sent.
func result(a *loop.AssistantMessage) string {
	if a == nil {
		return "bad_response"
	}
	if me, ok := errors.AsType[*loop.ModelError](a.Err); ok {
		if me.Paused {
			return ""
		}
		return me.Class
	}
	switch a.StopReason {
	case loop.StopAborted:
		return "aborted"
	case loop.StopError:
		return "other"
	}
	return "ok"
}

// observedTool measures calls.
type observedTool struct {
	loop.Tool
	run *run
}

func (t *observedTool) Execute(ctx context.Context, tc loop.Call, update func(loop.ToolResult)) (res loop.ToolResult, err error) {
	ctx, span := t.run.spans.tool(ctx, t.run, tc)
	begun := time.Now()
	c := ToolCall{Agent: t.run.agent.Name, Tool: t.Spec().Name, Failed: true} // a panic is a failure
	defer func() {
		c.Took = time.Since(begun)
		span.end(&c, res, err)
		call(t.run.o.w.cfg.Hooks.ToolCalled, c)
	}()
	res, err = t.Tool.Execute(ctx, tc, update)
	c.Failed = err != nil || res.IsError
	return res, err
}

// PrepareArguments passes on to the tool, if it rewrites arguments at all.
func (t *observedTool) PrepareArguments(args json.RawMessage) (json.RawMessage, error) {
	if p, ok := t.Tool.(loop.ArgumentPreparer); ok {
		return p.PrepareArguments(args)
	}
	return args, nil
}

func (r *run) observeTools(tools []loop.Tool) []loop.Tool {
	if tools == nil {
		return nil
	}
	out := make([]loop.Tool, len(tools))
	for i, t := range tools {
		out[i] = &observedTool{Tool: t, run: r}
	}
	return out
}
