package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/loop/openai"
	"github.com/pi-worker/pi-worker/subjects"
	"github.com/pi-worker/pi-worker/worker"
)

// longTool keeps its whole output in the object store, as bash does.
type longTool struct{ f *fleet }

func (longTool) Spec() loop.ToolSpec {
	return loop.ToolSpec{Name: "long", Description: "Says much.", Parameters: json.RawMessage(`{"type":"object"}`)}
}

func (l longTool) Execute(ctx context.Context, call loop.Call, _ func(loop.ToolResult)) (loop.ToolResult, error) {
	res := loop.TextResult("the end")
	switch call.ID {
	case "c1":
		store, err := l.f.JS.ObjectStore(ctx, subjects.Names{}.BlobBucket())
		if err != nil {
			return res, err
		}
		if _, err := store.PutString(ctx, "s/output/x.log", "all\x1b[2Jof it\n"); err != nil {
			return res, err
		}
		res.Details = json.RawMessage(`{"output":{"blob":"s/output/x.log","size":14}}`)
	case "c2": // another session's
		res.Details = json.RawMessage(`{"output":{"blob":"other/output/x.log","size":14}}`)
	case "c3":
		res.Details = json.RawMessage(`{"output":{"blob":"s/output/gone.log","size":14}}`)
	case "c4":
		res.Details = json.RawMessage(`["of another tool"]`)
	}
	return res, nil
}

// The whole output is written as it is; where there is none, the exit code
// says so.
func TestShowOutputOfACall(t *testing.T) {
	var calls []looptest.Call
	for _, id := range []string{"c1", "c2", "c3", "c4"} {
		calls = append(calls, looptest.Call{ID: id, Name: "long"})
	}
	f := newFleet(t, looptest.Calls(calls...), looptest.Text("done"))
	model, err := openai.New(openai.Config{BaseURL: f.script.BaseURL(), APIKey: "test", Info: loop.ModelInfo{ID: "scripted"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w, err := worker.New(ctx, worker.Config{
		NATS: f.NC, ID: "w1", AckWait: 2 * time.Second,
		Agent: func(context.Context, worker.AgentRequest) (*worker.Agent, error) {
			return &worker.Agent{Model: model, Tools: []loop.Tool{longTool{f}}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	serve(ctx, t, w, stop, model.Close)
	if r := f.cli(t, "prompt", "--session", "s", "go"); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	if r := f.cli(t, "show", "s", "--output", "c1"); r.code != exitOK || r.out != "all\x1b[2Jof it\n" {
		t.Errorf("%+v", r)
	}
	for call, words := range map[string]string{"c2": "no output is stored", "c3": "is deleted", "c4": "no output is stored", "c5": "no such finished tool call"} {
		if r := f.cli(t, "show", "s", "--output", call); r.code != exitUnknown || r.out != "" || !strings.Contains(r.err, words) {
			t.Errorf("%s: %+v", call, r)
		}
	}
	if r := f.cli(t, "show", "s", "--output", "c1", "--json"); r.code != exitUsage {
		t.Errorf("%+v", r)
	}
}
