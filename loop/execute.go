package loop

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// news is what a running tool has to say: an update, or its outcome.
type news struct {
	call    *callState
	update  *ToolResult
	outcome *outcome
}

// execute runs calls side by side. What they say is emitted here, in the
// consumer's goroutine, in the order in which it comes. It returns when all
// have ended; after an abort (or when the consumer breaks off) it waits for
// the grace and then answers what is left without its tool.
func (b *calling) execute(ctx context.Context, calls []*callState) bool {
	if len(calls) == 0 {
		return true
	}
	inbox := make(chan news)
	done := make(chan struct{}) // nobody reads inbox any more
	defer close(done)
	var wg sync.WaitGroup
	for _, c := range calls {
		wg.Go(func() { b.runTool(ctx, c, inbox, done) })
	}
	running := len(calls)
	aborted := ctx.Done()
	var grace <-chan time.Time
	for running > 0 {
		select {
		case n := <-inbox:
			if n.update != nil {
				b.emitUpdate(n.call, n.update)
				continue
			}
			running--
			b.finish(ctx, n.call, n.outcome)
		case <-aborted:
			aborted = nil
			timer := b.graceTimer()
			if timer != nil {
				defer timer.Stop()
				grace = timer.C
			}
		case <-grace:
			b.abandon(calls)
			return !b.broken
		}
	}
	wg.Wait()
	return !b.broken
}

func (b *calling) graceTimer() *time.Timer {
	if b.cfg.AbortGrace < 0 {
		return nil
	}
	return time.NewTimer(or(b.cfg.AbortGrace, defaultAbortGrace))
}

// abandon answers the calls that don't heed the abort.
func (b *calling) abandon(calls []*callState) {
	for _, c := range calls {
		if c.outcome != nil {
			continue
		}
		c.outcome = failed(fmt.Sprintf("Tool %s did not stop after the abort: outcome unknown", c.call.Name))
		b.emitEnd(c)
	}
}

func (b *calling) emitUpdate(c *callState, update *ToolResult) {
	if c.outcome != nil {
		return
	}
	b.emit(&ToolExecutionUpdate{
		ToolCallID: c.call.ID, ToolName: c.call.Name,
		Args: c.call.Arguments, PartialResult: *update,
	})
}

// runTool runs one tool in a goroutine of its own and sends what it says.
// However the tool ends, by return, error, panic or Goexit, an outcome is
// sent.
func (b *calling) runTool(ctx context.Context, c *callState, inbox chan<- news, done <-chan struct{}) {
	send := func(n news) {
		select {
		case inbox <- n:
		case <-done:
		}
	}
	gate := updateGate{send: func(res ToolResult) { send(news{call: c, update: &res}) }}
	out := failed(fmt.Sprintf("Tool %s ended without a result", c.call.Name))
	defer func() {
		if p := recover(); p != nil {
			out = failed(fmt.Sprintf("Tool %s panicked: %v", c.call.Name, p))
		}
		gate.close()
		send(news{call: c, outcome: out})
	}()
	call := Call{ID: c.call.ID, Name: c.call.Name, Args: c.args}
	if b.cfg.CallKey != nil {
		call.Key = b.cfg.CallKey(b.turns-1, c.pos)
	}
	res, err := c.entry.tool.Execute(WithCallKey(ctx, call.Key), call, gate.update)
	if err != nil {
		out = failed(err.Error())
		return
	}
	out = &outcome{result: res, isError: res.IsError}
}

// updateGate drops the updates that come after a tool has returned.
type updateGate struct {
	send func(ToolResult)

	mu     sync.RWMutex
	closed bool
}

func (g *updateGate) update(res ToolResult) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if !g.closed {
		g.send(res)
	}
}

// close waits for the updates that are being sent.
func (g *updateGate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
