package worker

import (
	"context"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// pulse knows what a run waits for, and says so when nothing else happens.
type pulse struct {
	every time.Duration

	mu    sync.Mutex // guards what is below
	last  time.Time  // of the last event
	what  string     // "model", "tool", "retry"
	since time.Time  // since when it waits for that
	tools map[string]string
	tool  string    // a tool that runs, "" none
	asks  int       // calls that wait for an approval
	asked time.Time // since when there are any
}

func newPulse(every time.Duration) *pulse {
	now := time.Now()
	return &pulse{every: every, last: now, since: now, what: "model", tools: map[string]string{}}
}

// saw takes note of an event of the run.
func (p *pulse) saw(ev loop.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
	switch ev := ev.(type) {
	case *loop.ToolExecutionStart:
		p.tools[ev.ToolCallID], p.tool = ev.ToolName, ev.ToolName
		p.waitForLocked("tool")
	case *loop.ToolExecutionEnd:
		delete(p.tools, ev.ToolCallID)
		p.tool = ""
		for _, name := range p.tools {
			p.tool = name
		}
		if len(p.tools) == 0 {
			p.waitForLocked("model")
		}
	case *loop.AutoRetryStart:
		p.waitForLocked("retry")
	case *loop.MessageUpdate:
		p.since = p.last
	case *loop.ToolExecutionUpdate:
		// The tool is still the one that it was: since stays.
	default:
		if len(p.tools) == 0 {
			p.waitForLocked("model")
		}
	}
}

func (p *pulse) waitForLocked(what string) {
	p.what, p.since = what, p.last
}

// due is the waiting event if the run was silent for long enough, otherwise
// nil and when to ask again.
func (p *pulse) due() (*loop.Waiting, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rest := p.every - time.Since(p.last); rest > 0 {
		return nil, rest
	}
	p.last = time.Now()
	if p.asks > 0 {
		return &loop.Waiting{For: "approval", Since: p.asked.UnixMilli()}, p.every
	}
	return &loop.Waiting{For: p.what, Since: p.since.UnixMilli()}, p.every
}

// beat calls say with each waiting event, until ctx ends or say fails.
func (p *pulse) beat(ctx context.Context, say func(*loop.Waiting) error) {
	t := time.NewTimer(p.every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		ev, next := p.due()
		if ev != nil && say(ev) != nil {
			return
		}
		t.Reset(next)
	}
}

// asking counts the calls that wait for a person.
func (p *pulse) asking(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asks == 0 {
		p.asked = time.Now()
	}
	p.asks += n
	p.last = time.Now()
}

// onlyAsks says that nothing of the run goes on but its wait for people.
func (p *pulse) onlyAsks() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asks > 0 && p.asks >= len(p.tools)
}

// state is what ps shows.
func (p *pulse) state() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asks > 0 {
		return "approval"
	}
	return "running"
}

func (p *pulse) runningTool() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tool
}
