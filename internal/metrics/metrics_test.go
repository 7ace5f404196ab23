package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
	"github.com/pi-worker/pi-worker/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape gives what a Prometheus would read.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("status %d, %v: %s", w.Code, err, body)
	}
	return string(body)
}

// value is that of a series, "" if there is none.
func value(text, series string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

func want(t *testing.T, text string, values map[string]string) {
	t.Helper()
	for series, want := range values {
		if got := value(text, series); got != want {
			t.Errorf("%s is %q, want %q", series, got, want)
		}
	}
}

var (
	descText = regexp.MustCompile(`fqName: "(pi_worker_[a-z_]+)".*variableLabels: \{([a-z,]*)\}`)
	rowText  = regexp.MustCompile("^\\| `(pi_worker_[a-z_]+)` \\| (counter|gauge|histogram) \\|([^|]*)\\|")
	label    = regexp.MustCompile("(?:^ |, )`([a-z]+)`")
)

// Every metric with its labels is in docs/metrics.md, and the other way round.
func TestDocumentHasEveryMetric(t *testing.T) {
	env := natstest.Start(t, nil)
	m := New("v")
	w := idle(t, env, m)
	m.Watch(Sources{Worker: w, NATS: env.NC, Ready: w.Ready})
	ch := make(chan *prometheus.Desc, 200)
	m.registry.Describe(ch)
	close(ch)
	code := map[string]string{}
	for desc := range ch {
		if found := descText.FindStringSubmatch(desc.String()); found != nil {
			labels := strings.Split(found[2], ",")
			slices.Sort(labels)
			code[found[1]] = strings.Join(labels, ",")
		}
	}
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := map[string]string{}
	for line := range strings.Lines(string(text)) {
		row := rowText.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		var labels []string
		for _, l := range label.FindAllStringSubmatch(strings.Split(row[3], ":")[0], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		doc[row[1]] = strings.Join(labels, ",")
	}
	if len(code) < 40 {
		t.Fatalf("only %d metrics are registered", len(code))
	}
	for name, labels := range code {
		if got, ok := doc[name]; !ok || got != labels {
			t.Errorf("%s{%s} is in the document as {%s} (there: %t)", name, labels, got, ok)
		}
	}
	for name := range doc {
		if _, ok := code[name]; !ok {
			t.Errorf("%s is in the document only", name)
		}
	}
}

// idle is a worker that does not run.
func idle(t *testing.T, env *natstest.Env, m *Metrics) *worker.Worker {
	t.Helper()
	w, err := worker.New(t.Context(), config(t, env, m, looptest.NewModel()))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func config(t *testing.T, env *natstest.Env, m *Metrics, model loop.Model) worker.Config {
	t.Helper()
	if err := subjects.Ensure(t.Context(), env.JS, subjects.Names{}, nil); err != nil {
		t.Fatal(err)
	}
	return worker.Config{
		NATS: env.NC, ID: "w1", Sessions: 3, Hooks: m.Hooks(),
		Agent: func(context.Context, worker.AgentRequest) (*worker.Agent, error) {
			return &worker.Agent{Name: "coder", Model: model}, nil
		},
	}
}

func TestMetricsOfARun(t *testing.T) {
	env := natstest.Start(t, nil)
	m := New("v1")
	w, err := worker.New(t.Context(), config(t, env, m, looptest.NewModel(
		looptest.Reply{Text: "hello", Usage: &looptest.Usage{Input: 10, Output: 3, Cached: 4}},
	)))
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(Sources{Worker: w, NATS: env.NC, Ready: w.Ready})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	sub, err := env.NC.SubscribeSync("agent.s1.events")
	if err != nil {
		t.Fatal(err)
	}
	if err := env.NC.Publish("agent.s1.prompt", []byte("hi")); err != nil {
		t.Fatal(err)
	}
	for text := ""; !strings.Contains(text, "agent_settled"); {
		msg, err := sub.NextMsg(2 * time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		text = string(msg.Data)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	text := scrape(t, m)
	want(t, text, map[string]string{
		`pi_worker_claims_total`:                                                  "1",
		`pi_worker_runs_total{agent="coder",outcome="completed"}`:                 "1",
		`pi_worker_runs_active{agent="coder"}`:                                    "0",
		`pi_worker_turns_total{agent="coder"}`:                                    "1",
		`pi_worker_tokens_total{agent="coder",kind="input"}`:                      "6",
		`pi_worker_tokens_total{agent="coder",kind="cache_read"}`:                 "4",
		`pi_worker_tokens_total{agent="coder",kind="output"}`:                     "3",
		`pi_worker_model_requests_total{agent="coder",result="ok"}`:               "1",
		`pi_worker_model_first_byte_seconds_count{agent="coder"}`:                 "1",
		`pi_worker_run_duration_seconds_count{agent="coder",outcome="completed"}`: "1",
		`pi_worker_sessions`:                                                      "0",
		`pi_worker_slots`:                                                         "3",
		`pi_worker_buffer_bytes`:                                                  "0",
		`pi_worker_nats_connected`:                                                "1",
		`pi_worker_fenced_total`:                                                  "0",
		`pi_worker_queue_sessions{state="waiting"}`:                               "0",
		`pi_worker_queue_inputs`:                                                  "0",
	})
	if value(text, `pi_worker_events_total{kind="durable"}`) == "0" || value(text, "pi_worker_append_seconds_count") == "0" {
		t.Error("no event was counted")
	}
	if strings.Contains(text, "s1") {
		t.Error("a session's id is a label")
	}
}

// The figure for autoscalers counts what waits and what a worker has.
func TestQueueCountsWaitingAndInProgress(t *testing.T) {
	env := natstest.Start(t, nil)
	m := New("v1")
	w := idle(t, env, m)
	for i := range 5 {
		if err := env.NC.Publish(fmt.Sprintf("agent-bell.s%d", i), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := env.JS.Publish(t.Context(), fmt.Sprintf("agent.s%d.prompt", i), []byte("hi")); err != nil {
			t.Fatal(err)
		}
	}
	cons, err := env.JS.Consumer(t.Context(), "AGENT_BELL", "workers")
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := cons.Fetch(2, jetstream.FetchMaxWait(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for range claimed.Messages() {
	}
	m.Watch(Sources{Worker: w, NATS: env.NC, Ready: w.Ready})
	text := scrape(t, m)
	want(t, text, map[string]string{
		`pi_worker_queue_sessions{state="waiting"}`:     "3",
		`pi_worker_queue_sessions{state="in_progress"}`: "2",
		`pi_worker_queue_inputs`:                        "5",
		`pi_worker_readers`:                             "0",
		`pi_worker_queue_errors_total`:                  "0",
	})
	for _, name := range []string{"pi_worker_queue_oldest_seconds", "pi_worker_queue_oldest_input_seconds"} {
		if v := value(text, name); v == "" || v == "0" {
			t.Errorf("%s is %q, want an age", name, v)
		}
	}
}

func TestSlowReadersAreCounted(t *testing.T) {
	env := natstest.Start(t, nil)
	m := New("v1")
	w := idle(t, env, m)
	for range 1001 {
		if _, err := env.JS.PublishAsync("agent.s1.events", []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	<-env.JS.PublishAsyncComplete()
	for _, filter := range []string{"agent.s1.events", "agent.s2.events"} {
		if _, err := env.JS.CreateConsumer(t.Context(), "AGENT_EVENTS", jetstream.ConsumerConfig{FilterSubject: filter}); err != nil {
			t.Fatal(err)
		}
	}
	m.Watch(Sources{Worker: w, NATS: env.NC, Ready: w.Ready})
	want(t, scrape(t, m), map[string]string{"pi_worker_readers": "2", "pi_worker_slow_readers": "1"})
}

func TestQueueGoesAwayWithTheBroker(t *testing.T) {
	d := &depth{errs: prometheus.NewCounter(prometheus.CounterOpts{Name: "x"})}
	d.ask = func(context.Context) (*worker.Depth, error) { return &worker.Depth{Waiting: 7}, nil }
	if got := d.look(); got == nil || got.Waiting != 7 {
		t.Fatalf("got %+v", got)
	}
	d.ask = func(context.Context) (*worker.Depth, error) { return nil, errors.New("away") }
	d.tried = time.Time{}
	if got := d.look(); got == nil || got.Waiting != 7 {
		t.Errorf("the last value is gone at once: %+v", got)
	}
	d.tried, d.at = time.Time{}, time.Now().Add(-2*depthAge)
	if got := d.look(); got != nil {
		t.Errorf("an old value is still shown: %+v", got)
	}
}

func TestLabelsAreBounded(t *testing.T) {
	m := New("v")
	for i := range 2 * maxTools {
		m.toolCalled(worker.ToolCall{Agent: "a", Tool: fmt.Sprint("tool", i)})
	}
	m.modelCalled(worker.ModelCall{Agent: "a", Result: "made up by a server"})
	text := scrape(t, m)
	if n := strings.Count(text, "pi_worker_tool_duration_seconds_count{"); n != maxTools+1 {
		t.Errorf("%d tools, want %d and other", n, maxTools)
	}
	want(t, text, map[string]string{`pi_worker_model_requests_total{agent="a",result="other"}`: "1"})
}

// BenchmarkCommitted is what the metrics cost a record.
func BenchmarkCommitted(b *testing.B) {
	m := New("v")
	h := m.Hooks().Log
	b.ReportAllocs()
	for b.Loop() {
		h.Committed(worker.Commit{Events: 8, Bytes: 900, Ephemeral: true, Took: time.Millisecond})
	}
}
