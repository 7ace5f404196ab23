package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// Limits end a run that would go on for too long. The run keeps what it has
// and settles with the outcome "limit". Zero means no limit, for each field.
type Limits struct {
	// Turns counts answers of the model in one run.
	Turns int
	// ToolCalls counts calls in one run; calls beyond it are answered with an
	// error and not run.
	ToolCalls int
	// IdenticalCalls counts calls of one tool with the same arguments in one
	// run.
	IdenticalCalls int
	// WallTime is counted from the run's start, by the log, whoever goes on with
	// it; what it waits for a person does not count.
	WallTime time.Duration
	// Tokens counts input and output of all answers in one run.
	Tokens int64
	// Cost is US dollars for one run.
	Cost float64
	// TreeTokens and TreeCost are for the run and all below it together. At
	// the end every one of them ends.
	TreeTokens int64
	TreeCost   float64
}

// Lower gives the stricter of both in every field: a prompt may lower what its
// agent allows, never raise it.
func (l Limits) Lower(by Limits) Limits {
	return Limits{
		Turns:          lower(l.Turns, by.Turns),
		ToolCalls:      lower(l.ToolCalls, by.ToolCalls),
		IdenticalCalls: lower(l.IdenticalCalls, by.IdenticalCalls),
		WallTime:       lower(l.WallTime, by.WallTime),
		Tokens:         lower(l.Tokens, by.Tokens),
		Cost:           lower(l.Cost, by.Cost),
		TreeTokens:     lower(l.TreeTokens, by.TreeTokens),
		TreeCost:       lower(l.TreeCost, by.TreeCost),
	}
}

func lower[T int | int64 | float64 | time.Duration](a, b T) T {
	if b > 0 && (a == 0 || b < a) {
		return b
	}
	return a
}

// meter counts what a run uses, against its limits.
type meter struct {
	limits Limits

	mu        sync.Mutex // guards what is below; tools may run side by side
	turns     int
	calls     int
	identical map[string]int
	usage     loop.Usage
	reached   string // why the run has to end, "" while it may go on
	ended     bool   // the limit did cut the run short
}

// newMeter goes on from what an open run has used; open is nil for a new run.
func newMeter(limits Limits, open *loop.OpenRun) *meter {
	m := &meter{limits: limits, identical: map[string]int{}}
	if open == nil {
		return m
	}
	for _, msg := range open.NewMessages {
		a, ok := msg.(*loop.AssistantMessage)
		if !ok {
			continue
		}
		m.turns++
		for _, b := range a.Content {
			if c, ok := b.(*loop.ToolCall); ok && a != open.Assistant {
				m.calls++
				m.identical[signature(c.Name, c.Arguments)]++
			}
		}
	}
	m.usage = open.Usage
	return m
}

func signature(tool string, args []byte) string {
	return tool + "\x00" + strings.TrimSpace(string(args))
}

// answered counts one answer of the model.
func (m *meter) answered(a *loop.AssistantMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turns++
	if l := m.limits.Turns; l > 0 && m.turns >= l {
		m.reachedLocked("%d turns", l)
	}
	m.spentLocked(a.Usage)
}

// spent counts what was used beside the answers.
func (m *meter) spent(u loop.Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spentLocked(u)
}

func (m *meter) spentLocked(u loop.Usage) {
	m.usage = addUsage(m.usage, u)
	l := m.limits
	switch {
	case l.Tokens > 0 && m.usage.TotalTokens >= l.Tokens:
		m.reachedLocked("%d tokens", l.Tokens)
	case l.Cost > 0 && m.usage.Cost.Total >= l.Cost:
		m.reachedLocked("%.4g dollars", l.Cost)
	}
}

// reach is a limit that was found elsewhere.
func (m *meter) reach(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reachedLocked("%s", what)
}

func (m *meter) reachedLocked(format string, args ...any) {
	if m.reached == "" {
		m.reached = fmt.Sprintf(format, args...)
	}
}

// beforeToolCall refuses calls beyond the limits; the run ends after the turn.
func (m *meter) beforeToolCall(_ context.Context, c *loop.BeforeToolCall) (loop.BeforeDecision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sig := signature(c.ToolCall.Name, c.ToolCall.Arguments)
	m.calls++
	m.identical[sig]++
	l := m.limits
	switch {
	case l.ToolCalls > 0 && m.calls > l.ToolCalls:
		m.reachedLocked("%d tool calls", l.ToolCalls)
	case l.IdenticalCalls > 0 && m.identical[sig] > l.IdenticalCalls:
		m.reachedLocked("%d identical calls of %s", l.IdenticalCalls, c.ToolCall.Name)
	default:
		return loop.BeforeDecision{}, nil
	}
	return loop.BeforeDecision{Block: true, Reason: "not run: the limit of " + m.reached + " is reached"}, nil
}

// stopAfterTurn ends the run at the end of a turn once a limit is reached. A
// run that had nothing left to do is not cut short by it.
func (m *meter) stopAfterTurn(t *loop.AfterTurn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reached == "" {
		return false
	}
	m.ended = m.ended || len(t.ToolResults) > 0
	return true
}

// cut says which limit ended the run, "" if none did.
func (m *meter) cut() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended {
		return ""
	}
	return m.reached
}

// used is what all answers of the run cost.
func (m *meter) used() loop.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usage
}

func addUsage(a, b loop.Usage) loop.Usage {
	a.Input += b.Input
	a.Output += b.Output
	a.CacheRead += b.CacheRead
	a.CacheWrite += b.CacheWrite
	a.TotalTokens += b.TotalTokens
	a.Reasoning += b.Reasoning
	a.Cost.Input += b.Cost.Input
	a.Cost.Output += b.Cost.Output
	a.Cost.CacheRead += b.Cost.CacheRead
	a.Cost.CacheWrite += b.Cost.CacheWrite
	a.Cost.Total += b.Cost.Total
	a.Cost.Stated = a.Cost.Stated || b.Cost.Stated
	a.Estimated = a.Estimated || b.Estimated
	return a
}
