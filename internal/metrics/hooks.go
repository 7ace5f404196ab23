package metrics

import (
	"slices"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/worker"
)

// classes are the values of a model's errors; see [loop.ModelError].
var classes = []string{
	"network", "timeout_first_byte", "timeout_silence", "timeout_total", "rate_limited", "overloaded", "server", "client",
	"stream_truncated", "stream_error", "bad_response", "content_filter", "auth", "context_overflow",
}

// known keeps a model of somebody else's from making up labels.
func known(class string) string {
	if slices.Contains(classes, class) {
		return class
	}
	return "other"
}

func (m *Metrics) runEnded(agent string, outcome loop.Outcome, took time.Duration) {
	m.runsActive.WithLabelValues(agent).Dec()
	if outcome != "" {
		m.runDuration.WithLabelValues(agent, string(outcome)).Observe(took.Seconds())
	}
}

func (m *Metrics) used(agent string, u loop.Usage) {
	for _, k := range []struct {
		kind string
		n    int64
	}{
		{"input", u.Input}, {"output", u.Output}, {"cache_read", u.CacheRead}, {"cache_write", u.CacheWrite}, {"reasoning", u.Reasoning},
	} {
		if k.n > 0 { // a counter that is taken back panics, and an endpoint may say anything
			m.tokens.WithLabelValues(agent, k.kind).Add(float64(k.n))
		}
	}
	if u.Cost.Total > 0 {
		m.cost.WithLabelValues(agent).Add(u.Cost.Total)
	}
}

func (m *Metrics) modelCalled(c worker.ModelCall) {
	result := c.Result
	if result != "ok" && result != "aborted" {
		result = known(result)
	}
	m.requests.WithLabelValues(c.Agent, result).Inc()
	m.modelDuration.WithLabelValues(c.Agent).Observe(c.Took.Seconds())
	if c.FirstByte > 0 {
		m.firstByte.WithLabelValues(c.Agent).Observe(c.FirstByte.Seconds())
		m.silence.WithLabelValues(c.Agent).Observe(c.Silence.Seconds())
	}
}

func (m *Metrics) toolCalled(c worker.ToolCall) {
	tool := m.tool(c.Tool)
	m.toolDuration.WithLabelValues(c.Agent, tool).Observe(c.Took.Seconds())
	if c.Failed {
		m.toolErrors.WithLabelValues(c.Agent, tool).Inc()
	}
}

// tool is the label of a tool: servers may offer more than a label can take.
func (m *Metrics) tool(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.tools[name] {
		if len(m.tools) >= maxTools {
			return "other"
		}
		m.tools[name] = true
	}
	return name
}

// committed is called for each record: no label is looked up.
func (m *Metrics) committed(c worker.Commit) {
	m.appendSeconds.Observe(c.Took.Seconds())
	m.commitEvents.Observe(float64(c.Events))
	events, bytes := m.durableEvents, m.durableBytes
	if c.Ephemeral {
		events, bytes = m.ephemeralEvents, m.ephemeralBytes
	}
	events.Add(float64(c.Events))
	bytes.Add(float64(c.Bytes))
}
