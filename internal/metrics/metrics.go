// Package metrics counts what a worker does, for Prometheus. docs/metrics.md
// has every name, and is an interface; a test holds the two together.
//
//	m := metrics.New("v1.2.3")
//	cfg.Hooks = m.Hooks()
//	w, err := worker.New(ctx, cfg)
//	m.Watch(metrics.Sources{Worker: w, NATS: nc, Ready: w.Ready})
//	http.Handle("/metrics", m.Handler())
//
// Hooks are called where a run waits for them. What is called for each record
// of a log costs a few atomic additions; what looks labels up is called for
// whole requests, calls and runs. Nothing is called for a piece of an answer.
package metrics

import (
	"net/http"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/worker"
)

const prefix = "pi_worker_"

// maxTools bounds the values of the label tool.
const maxTools = 200

// Buckets, in seconds unless named otherwise.
var (
	requestBuckets = []float64{.05, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300}
	runBuckets     = []float64{.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200}
	toolBuckets    = []float64{.005, .025, .1, .5, 1, 5, 15, 60, 300, 1800}
	appendBuckets  = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	commitBuckets  = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512} // events
)

// Metrics are one worker's.
type Metrics struct {
	registry *prometheus.Registry

	claims, leasesLost, fenced, appendRetries, bufferFull, slowConsumer prometheus.Counter

	claimsEnded, deadLettered                                    *prometheus.CounterVec
	takeovers, runs, turns, tokens, cost, compactions, retries   *prometheus.CounterVec
	requests, toolErrors                                         *prometheus.CounterVec
	runsActive                                                   *prometheus.GaugeVec
	runDuration, firstByte, silence, modelDuration, toolDuration *prometheus.HistogramVec
	appendSeconds, commitEvents                                  prometheus.Histogram
	durableEvents, ephemeralEvents, durableBytes, ephemeralBytes prometheus.Counter

	mu    sync.Mutex // guards tools
	tools map[string]bool
}

// New makes them; version is that of the program.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), tools: map[string]bool{}}
	m.makeRuns()
	m.makeModels()
	m.makeLog()
	info := m.gauge("build_info", "Always 1.", "version", "goversion")
	info.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves them.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4})
}

// SlowConsumer counts one time that the worker was too slow for the broker.
func (m *Metrics) SlowConsumer() { m.slowConsumer.Inc() }

func (m *Metrics) makeRuns() {
	m.claims = m.counter("claims_total", "Bells that this worker was given.").WithLabelValues()
	m.claimsEnded = m.counter("claims_ended_total", "How claims ended.", "reason")
	m.takeovers = m.counter("takeovers_total", "Open runs of former owners that went on here.", "agent")
	m.runsActive = m.gauge("runs_active", "Runs that are open here.", "agent")
	m.runs = m.counter("runs_total", "Prompts that settled here.", "agent", "outcome")
	m.runDuration = m.histogram("run_duration_seconds", "From the run's beginning, or its take-over, on this worker.", runBuckets, "agent", "outcome")
	m.turns = m.counter("turns_total", "Turns that began.", "agent")
	m.tokens = m.counter("tokens_total", "Tokens of all answers and summaries; reasoning is a part of output.", "agent", "kind")
	m.cost = m.counter("cost_dollars_total", "US dollars.", "agent")
	m.deadLettered = m.counter("dead_letters_total", "Dead letters that this worker wrote.", "reason")
	m.compactions = m.counter("compactions_total", "Contexts that were summarised.", "agent", "reason")
}

func (m *Metrics) makeModels() {
	m.requests = m.counter("model_requests_total", "Requests to models that ended.", "agent", "result")
	m.firstByte = m.histogram("model_first_byte_seconds", "From the request to the first piece of the answer.", requestBuckets, "agent")
	m.silence = m.histogram("model_silence_seconds", "The longest time between two pieces of an answer.", requestBuckets, "agent")
	m.modelDuration = m.histogram("model_duration_seconds", "From the request to the end of the answer.", requestBuckets, "agent")
	m.retries = m.counter("retries_total", "Requests to models that are made again.", "agent", "class")
	m.toolDuration = m.histogram("tool_duration_seconds", "Tool calls that ran, without the wait for an approval.", toolBuckets, "agent", "tool")
	m.toolErrors = m.counter("tool_errors_total", "Tool calls whose result is an error.", "agent", "tool")
}

func (m *Metrics) makeLog() {
	m.appendSeconds = m.plainHistogram("append_seconds", "From sending a record until its outcome is known.", appendBuckets)
	m.appendRetries = m.counter("append_retries_total", "Attempts to append beyond the first.").WithLabelValues()
	m.commitEvents = m.plainHistogram("commit_events", "Events of a record.", commitBuckets)
	events := m.counter("events_total", "Events that the broker has acknowledged.", "kind")
	bytes := m.counter("event_bytes_total", "Bytes of their records, without headers.", "kind")
	m.durableEvents, m.ephemeralEvents = events.WithLabelValues("durable"), events.WithLabelValues("ephemeral")
	m.durableBytes, m.ephemeralBytes = bytes.WithLabelValues("durable"), bytes.WithLabelValues("ephemeral")
	m.fenced = m.counter("fenced_total", "Writes that the broker refused because another worker has the session.").WithLabelValues()
	m.leasesLost = m.counter("leases_lost_total", "Leases that ran out under this worker.").WithLabelValues()
	m.bufferFull = m.counter("buffer_full_total", "Times that a run waited because 4 MiB were not acknowledged.").WithLabelValues()
	m.slowConsumer = m.counter("nats_slow_consumer_total", "Times that the worker was too slow for its own subscriptions.").WithLabelValues()
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) plainHistogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets})
	m.registry.MustRegister(h)
	return h
}

// Hooks are for worker.Config.
func (m *Metrics) Hooks() worker.Hooks {
	return worker.Hooks{
		Claimed:      m.claims.Inc,
		ClaimEnded:   func(reason string) { m.claimsEnded.WithLabelValues(reason).Inc() },
		TakenOver:    func(agent string) { m.takeovers.WithLabelValues(agent).Inc() },
		RunStarted:   func(agent string) { m.runsActive.WithLabelValues(agent).Inc() },
		RunEnded:     m.runEnded,
		Settled:      func(agent string, o loop.Outcome) { m.runs.WithLabelValues(agent, string(o)).Inc() },
		TurnStarted:  func(agent string) { m.turns.WithLabelValues(agent).Inc() },
		Used:         m.used,
		Compacted:    func(agent string, r loop.CompactionReason) { m.compactions.WithLabelValues(agent, string(r)).Inc() },
		Retried:      func(agent, class string) { m.retries.WithLabelValues(agent, known(class)).Inc() },
		ModelCalled:  m.modelCalled,
		ToolCalled:   m.toolCalled,
		DeadLettered: func(reason string) { m.deadLettered.WithLabelValues(reason).Inc() },
		Log: worker.LogHooks{
			Committed: m.committed, AppendRetried: m.appendRetries.Inc, Fenced: m.fenced.Inc,
			LeaseLost: m.leasesLost.Inc, BufferFull: m.bufferFull.Inc,
		},
	}
}
