package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pi-worker/pi-worker/worker"
)

const (
	// depthEvery is how often the broker is asked at most, depthAge how long
	// an answer is shown when there is no newer one, and depthWait how long
	// one scrape waits for it.
	depthEvery = 5 * time.Second
	depthAge   = time.Minute
	depthWait  = 3 * time.Second
)

// Sources are asked when somebody scrapes.
type Sources struct {
	Worker *worker.Worker
	NATS   *nats.Conn
	// Ready is what /readyz asks.
	Ready func() error
}

// Watch adds what is not counted but looked up. It may be called once.
func (m *Metrics) Watch(s Sources) {
	m.look("sessions", "Sessions that the worker owns now.", func() float64 { return float64(s.Worker.Sessions()) })
	m.look("slots", "Sessions that may be at work at once.", func() float64 { return float64(s.Worker.Slots()) })
	m.look("buffer_bytes", "Bytes that wait for the broker's acknowledgement, in all logs.", func() float64 { return float64(s.Worker.Buffered()) })
	m.look("ready", "1 if /readyz would say ok.", func() float64 { return truth(s.Ready() == nil) })
	m.look("nats_connected", "1 while the connection to the broker is there.", func() float64 { return truth(s.NATS.IsConnected()) })
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: prefix + "nats_reconnects_total", Help: "Times that the connection to the broker came back.",
	}, func() float64 { return float64(s.NATS.Stats().Reconnects) }))
	errs := m.counter("queue_errors_total", "Times that the broker's figures could not be read.").WithLabelValues()
	m.registry.MustRegister(&depth{ask: s.Worker.Depth, errs: errs})
}

func (m *Metrics) look(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help}, value))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// depth shows what the broker says of the queue.
type depth struct {
	ask  func(context.Context) (*worker.Depth, error)
	errs prometheus.Counter

	mu    sync.Mutex // guards what is below, and keeps scrapes from asking side by side
	last  *worker.Depth
	at    time.Time // of last
	tried time.Time
}

var (
	descSessions = prometheus.NewDesc(prefix+"queue_sessions", "Sessions with something to do, in the whole fleet: scale on the sum.", []string{"state"}, nil)
	descOldest   = prometheus.NewDesc(prefix+"queue_oldest_seconds", "Age of the oldest session that no worker has been given.", nil, nil)
	descInputs   = prometheus.NewDesc(prefix+"queue_inputs", "Inputs in the inbox.", nil, nil)
	descOldestIn = prometheus.NewDesc(prefix+"queue_oldest_input_seconds", "Age of the oldest input in the inbox.", nil, nil)
	descDead     = prometheus.NewDesc(prefix+"dead_letters", "Dead letters that are kept.", nil, nil)
	descReaders  = prometheus.NewDesc(prefix+"readers", "Readers of the event logs at the broker.", nil, nil)
	descSlow     = prometheus.NewDesc(prefix+"slow_readers", "Readers with more than 1,000 records before them.", nil, nil)
)

// Describe is Prometheus's.
func (d *depth) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{descSessions, descOldest, descInputs, descOldestIn, descDead, descReaders, descSlow} {
		ch <- desc
	}
}

// Collect is Prometheus's.
func (d *depth) Collect(ch chan<- prometheus.Metric) {
	now := d.look()
	if now == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	gauge(descSessions, float64(now.Waiting), "waiting")
	gauge(descSessions, float64(now.InProgress), "in_progress")
	gauge(descOldest, now.Oldest.Seconds())
	gauge(descInputs, float64(now.Inputs))
	gauge(descOldestIn, now.OldestIn.Seconds())
	gauge(descDead, float64(now.Dead))
	gauge(descReaders, float64(now.Readers))
	gauge(descSlow, float64(now.Slow))
}

// look asks the broker unless it was asked a moment ago; nil if nothing is
// known that is not too old.
func (d *depth) look() *worker.Depth {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.tried) >= depthEvery {
		ctx, cancel := context.WithTimeout(context.Background(), depthWait)
		defer cancel()
		if now, err := d.ask(ctx); err == nil {
			d.last, d.at = now, time.Now()
		} else {
			d.errs.Inc()
		}
		d.tried = time.Now()
	}
	if time.Since(d.at) > depthAge {
		return nil
	}
	return d.last
}
