package natstool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/tools/natstool"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(serviceEnv); url != "" {
		serveUntilKilled(url)
	}
	goleak.VerifyTestMain(m)
}

// fake is a tool of one function.
type fake struct {
	spec loop.ToolSpec
	run  func(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error)
}

func (f *fake) Spec() loop.ToolSpec { return f.spec }

func (f *fake) Execute(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
	return f.run(ctx, call, update)
}

func named(name string) *fake {
	return &fake{
		spec: loop.ToolSpec{Name: name, Description: "does " + name, Parameters: json.RawMessage(`{"type":"object","properties":{"n":{"type":"number"}}}`)},
		run: func(_ context.Context, call loop.Call, _ func(loop.ToolResult)) (loop.ToolResult, error) {
			return loop.TextResult(name + " got " + string(call.Args)), nil
		},
	}
}

func serve(t testing.TB, nc *nats.Conn, cfg natstool.Config, list ...loop.Tool) *natstool.Service {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "test"
	}
	s, err := natstool.Serve(nc, cfg, list...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func open(t testing.TB, nc *nats.Conn, opts *natstool.Options) *natstool.Directory {
	t.Helper()
	d, err := natstool.Open(t.Context(), nc, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func one(t testing.TB, d *natstool.Directory, name string) loop.Tool {
	t.Helper()
	list, missing := d.Tools(name)
	if len(list) != 1 {
		t.Fatalf("%d tools for %s, missing %v", len(list), name, missing)
	}
	return list[0]
}

func text(r loop.ToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if t, ok := c.(*loop.Text); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

func wantFailure(t testing.TB, r loop.ToolResult, want natstool.Failure) {
	t.Helper()
	var d struct {
		Error natstool.Failure `json:"error"`
	}
	if err := json.Unmarshal(r.Details, &d); err != nil || d.Error != want || !r.IsError {
		t.Errorf("result %q, details %s, error %v: want failure %s", text(r), r.Details, r.IsError, want)
	}
}

func TestToolIsFoundByNameAndPattern(t *testing.T) {
	e := natstest.Start(t, nil)
	a := named("weather_today")
	a.spec.Label, a.spec.Idempotent, a.spec.ExecutionMode = "Weather", true, loop.ExecutionSequential
	serve(t, e.Connect(), natstool.Config{}, a, named("weather_week"), named("invoice"))
	d := open(t, e.NC, nil)
	list, missing := d.Tools("weather_*", "stock")
	var names []string
	for _, tool := range list {
		names = append(names, tool.Spec().Name)
	}
	if !slices.Equal(names, []string{"weather_today", "weather_week"}) || !slices.Equal(missing, []string{"stock"}) {
		t.Errorf("found %v, missing %v", names, missing)
	}
	got, want := list[0].Spec(), a.spec
	if got.Label != want.Label || got.Description != want.Description || string(got.Parameters) != string(want.Parameters) ||
		!got.Idempotent || got.ExecutionMode != loop.ExecutionSequential {
		t.Errorf("spec %+v, want %+v", got, want)
	}
	if o := natstool.Origin(list[0]); !strings.Contains(o, "tools.weather_today") {
		t.Errorf("origin %q", o)
	}
}

func TestCallCarriesKeyAndDeadlineAndGivesProgressInOrder(t *testing.T) {
	e := natstest.Start(t, nil)
	tool := named("work")
	var got loop.Call
	var left time.Duration
	tool.run = func(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
		got = call
		if key := loop.CallKey(ctx); key != call.Key {
			t.Errorf("the context has the key %q", key)
		}
		if end, ok := ctx.Deadline(); ok {
			left = time.Until(end)
		}
		for i := range 50 {
			update(loop.TextResult(fmt.Sprint(i, ".")))
		}
		res := loop.TextResult("done")
		res.Content = append(res.Content, &loop.Image{Data: "aGk=", MIMEType: "image/png"})
		res.Details = json.RawMessage(`{"n":7}`)
		return res, nil
	}
	serve(t, e.Connect(), natstool.Config{Timeout: time.Minute}, tool)
	var progress strings.Builder
	res, err := one(t, open(t, e.NC, nil), "work").Execute(t.Context(),
		loop.Call{ID: "call_1\nx", Name: "work", Args: json.RawMessage(`{"n":1}`), Key: "s1/7/0/0"},
		func(r loop.ToolResult) { progress.WriteString(text(r)) })
	if err != nil || res.IsError {
		t.Fatal(err, text(res))
	}
	if got.Key != "s1/7/0/0" || got.ID != "call_1 x" || string(got.Args) != `{"n":1}` || got.Name != "work" {
		t.Errorf("the service got %+v", got)
	}
	if left <= 0 || left > time.Minute {
		t.Errorf("deadline in %v, want within a minute", left)
	}
	var want strings.Builder
	for i := range 50 {
		fmt.Fprint(&want, i, ".")
	}
	if progress.String() != want.String() {
		t.Errorf("progress %q", progress.String())
	}
	if len(res.Content) != 2 || string(res.Details) != `{"n":7}` {
		t.Errorf("%d blocks, details %s", len(res.Content), res.Details)
	}
}

func TestCancelReachesTheService(t *testing.T) {
	e := natstest.Start(t, nil)
	tool := named("wait")
	started, ended := make(chan struct{}), make(chan struct{})
	tool.run = func(ctx context.Context, _ loop.Call, _ func(loop.ToolResult)) (loop.ToolResult, error) {
		close(started)
		<-ctx.Done()
		close(ended)
		return loop.ToolResult{}, ctx.Err()
	}
	serve(t, e.Connect(), natstool.Config{}, tool)
	remote := one(t, open(t, e.NC, nil), "wait")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("changed my mind")
	var wg sync.WaitGroup
	wg.Go(func() {
		<-started
		cancel(why)
	})
	if _, err := remote.Execute(ctx, loop.Call{Name: "wait"}, nil); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
	<-ended
	wg.Wait()
}

func TestLoadIsSpreadOverInstances(t *testing.T) {
	e := natstest.Start(t, nil)
	var mu sync.Mutex
	calls := map[int]int{}
	for i := range 3 {
		tool := named("work")
		tool.run = func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[i]++
			return loop.TextResult("ok"), nil
		}
		serve(t, e.Connect(), natstool.Config{}, tool)
	}
	remote := one(t, open(t, e.NC, nil), "work")
	for range 60 {
		if res, err := remote.Execute(t.Context(), loop.Call{Name: "work"}, nil); err != nil || text(res) != "ok" {
			t.Fatal(err, text(res))
		}
	}
	if len(calls) != 3 {
		t.Errorf("calls by instance: %v, want all three to work", calls)
	}
}

func TestServiceErrorIsTyped(t *testing.T) {
	e := natstest.Start(t, nil)
	svc, err := micro.AddService(e.NC, micro.Config{Name: "raw", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = svc.Stop() }()
	for name, answer := range map[string]func(micro.Request){
		"broken":  func(r micro.Request) { _ = r.Error("418", "no coffee here", nil) },
		"strange": func(r micro.Request) { _ = r.Respond([]byte(`{"content":[{"type":"toolCall","name":"x"}]}`)) },
		"plain":   func(r micro.Request) { _ = r.Respond([]byte("just text")) },
		"short":   func(r micro.Request) { _ = r.Respond([]byte(`{"content":"no","isError":true}`)) },
	} {
		err := svc.AddEndpoint(name, micro.HandlerFunc(answer), micro.WithEndpointMetadata(map[string]string{natstool.MetaTool: name}))
		if err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, e.NC, nil)
	call := func(name string) loop.ToolResult {
		res, err := one(t, d, name).Execute(t.Context(), loop.Call{Name: name, Args: json.RawMessage(`{}`)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	res := call("broken")
	wantFailure(t, res, natstool.FailureService)
	if text(res) != "no coffee here" || !strings.Contains(string(res.Details), "418") {
		t.Errorf("result %q %s", text(res), res.Details)
	}
	wantFailure(t, call("strange"), natstool.FailureProtocol)
	if res := call("plain"); text(res) != "just text" || res.IsError {
		t.Errorf("plain answer gave %q, error %v", text(res), res.IsError)
	}
	if res := call("short"); text(res) != "no" || !res.IsError {
		t.Errorf("short answer gave %q, error %v", text(res), res.IsError)
	}
}

func TestNoResponderIsTyped(t *testing.T) {
	e := natstest.Start(t, nil)
	s, err := natstool.Serve(e.Connect(), natstool.Config{Name: "test"}, named("work"))
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan []string, 4)
	d := open(t, e.NC, &natstool.Options{Settle: 50 * time.Millisecond, Refresh: 20 * time.Millisecond,
		Changed: func(_, departed []string) { changed <- departed }})
	remote := one(t, d, "work")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	res, err := remote.Execute(t.Context(), loop.Call{Name: "work"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantFailure(t, res, natstool.FailureNoService)
	for departed := range changed { // the first one is the arrival
		if slices.Equal(departed, []string{"work"}) {
			break
		}
	}
	if list, _ := d.Tools("*"); len(list) != 0 {
		t.Errorf("%d tools after the service left", len(list))
	}
}

func TestTooLargeArgumentsAreTyped(t *testing.T) {
	e := natstest.Start(t, nil)
	serve(t, e.Connect(), natstool.Config{}, named("work"))
	args := json.RawMessage(`"` + strings.Repeat("x", int(e.NC.MaxPayload())) + `"`)
	res, err := one(t, open(t, e.NC, nil), "work").Execute(t.Context(), loop.Call{Name: "work", Args: args}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantFailure(t, res, natstool.FailureTooLarge)
}

func TestTooLargeResultIsAnErrorAtOnce(t *testing.T) {
	e := natstest.Start(t, nil)
	tool := named("big")
	tool.run = func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
		return loop.TextResult(strings.Repeat("x", 2<<20)), nil
	}
	serve(t, e.Connect(), natstool.Config{}, tool)
	res, err := one(t, open(t, e.NC, nil), "big").Execute(t.Context(), loop.Call{Name: "big"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantFailure(t, res, natstool.FailureService)
}

func TestPanicIsAnErrorResult(t *testing.T) {
	e := natstest.Start(t, nil)
	tool := named("boom")
	tool.run = func(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) { panic("ouch") }
	serve(t, e.Connect(), natstool.Config{}, tool)
	res, err := one(t, open(t, e.NC, nil), "boom").Execute(t.Context(), loop.Call{Name: "boom"}, nil)
	if err != nil || !res.IsError || !strings.Contains(text(res), "ouch") {
		t.Errorf("got %q, %v", text(res), err)
	}
}

func TestTwoServicesOfOneNameAreRefused(t *testing.T) {
	e := natstest.Start(t, nil)
	serve(t, e.Connect(), natstool.Config{Name: "first"}, named("same"), named("own"))
	second := serve(t, e.Connect(), natstool.Config{Name: "second", Subjects: "other"}, named("same"))
	d := open(t, e.NC, nil)
	list, missing := d.Tools("same", "own")
	if len(list) != 1 || list[0].Spec().Name != "own" || !slices.Equal(missing, []string{"same"}) {
		t.Errorf("%d tools, missing %v: a name of two services must be nobody's", len(list), missing)
	}
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := d.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	one(t, d, "same")
}

func TestHigherVersionCounts(t *testing.T) {
	e := natstest.Start(t, nil)
	for _, v := range []string{"1.9.0", "1.10.0", "1.2.0"} {
		tool := named("work")
		tool.spec.Description = "version " + v
		serve(t, e.Connect(), natstool.Config{Version: v}, tool)
	}
	if got := one(t, open(t, e.NC, nil), "work").Spec().Description; got != "version 1.10.0" {
		t.Errorf("got %q", got)
	}
}

func TestServeRefusesWhatIsNoTool(t *testing.T) {
	e := natstest.Start(t, nil)
	for _, bad := range []loop.Tool{named("a b"), named(""), &fake{spec: loop.ToolSpec{Name: "x", Parameters: json.RawMessage(`[]`)}}} {
		if s, err := natstool.Serve(e.NC, natstool.Config{Name: "test"}, bad); err == nil {
			t.Errorf("%+v was offered", bad.Spec())
			_ = s.Stop()
		}
	}
}
