package main

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// traces is a collector that keeps spans.
type traces struct {
	mu    sync.Mutex // guards spans
	spans []*tracepb.Span
}

func (c *traces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	var got tracepb.TracesData // a request of the service has the same one field
	if err == nil {
		err = proto.Unmarshal(b, &got)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range got.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
}

// One trace, from the publisher's context on, over a prompt whose worker is
// replaced in the middle of an answer.
func TestOneTraceOverAPromptWhoseWorkerIsReplaced(t *testing.T) {
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	plain(t)
	env := natstest.Start(t, nil)
	collected := &traces{}
	collector := httptest.NewServer(collected)
	defer collector.Close()
	script := looptest.NewScript()
	defer func() { _ = script.Close() }()
	hold := make(chan struct{})
	script.Add(
		looptest.Calls(looptest.Call{Name: "ls", Args: "{}"}),
		looptest.Reply{Text: "half an answer", Hold: hold},
		looptest.Text("a whole answer"),
	)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	args := []string{"--server", env.Server.ClientURL(), "--base-url", script.BaseURL(), "--grace", "0s"}
	first := startRun(t, append(args, "--id", "first")...)

	store, err := session.Open(t.Context(), env.NC, subjects.Names{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := &session.Input{Message: loop.NewUserText("hello"), TraceParent: "00-" + trace + "-" + span + "-01"}
	if _, err := store.Publish(t.Context(), "s1", subjects.KindPrompt, in); err != nil {
		t.Fatal(err)
	}
	until(t, store, func(ev loop.Event) bool {
		u, ok := ev.(*loop.MessageUpdate)
		return ok && u.Update.Type == loop.UpdateTextDelta
	})
	first.stop()
	first.waitFor("worker ended")
	close(hold)
	second := startRun(t, append(args, "--id", "second")...)
	untilSettled(t, store, "s1", second.errOut)
	second.waitFor("run settled")
	if s := second.errOut.String(); !strings.Contains(s, "trace="+trace) || !strings.Contains(s, "session=s1") || !strings.Contains(s, "run=") || !strings.Contains(s, "epoch=") {
		t.Errorf("the log of a run lacks its trace, session, run or epoch:\n%s", s)
	}
	second.stop()
	second.waitFor("worker ended")
	count := func(name string) (n int) {
		collected.mu.Lock()
		defer collected.mu.Unlock()
		for _, s := range collected.spans {
			if s.Name == name {
				n++
			}
		}
		return n
	}
	// The last ones are sent while the worker ends.
	eventually(t, func() bool { return count("invoke_agent default") == 2 }, func() string { return "no two spans of the run" })
	collected.mu.Lock()
	defer collected.mu.Unlock()
	ids, names := map[string]bool{span: true}, map[string]int{}
	for _, s := range collected.spans {
		ids[hex.EncodeToString(s.SpanId)] = true
		names[s.Name]++
	}
	for _, s := range collected.spans {
		if got := hex.EncodeToString(s.TraceId); got != trace {
			t.Errorf("span %s is of trace %s", s.Name, got)
		}
		if parent := hex.EncodeToString(s.ParentSpanId); !ids[parent] {
			t.Errorf("span %s has the parent %s, which nobody has", s.Name, parent)
		}
	}
	if names["claim"] != 2 || names["execute_tool ls"] != 1 || names["turn"] < 2 || !slices.ContainsFunc(collected.spans, func(s *tracepb.Span) bool { return strings.HasPrefix(s.Name, "chat ") }) {
		t.Errorf("spans: %v", names)
	}
}

func until(t *testing.T, store *session.Store, ok func(loop.Event) bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for rec, err := range store.Tail(ctx, "s1", session.From{Start: true, Wait: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(rec.Events, ok) {
			return
		}
	}
}
