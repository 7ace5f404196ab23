package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/loop/openai"
	"github.com/pi-worker/pi-worker/worker"
)

// startCareful runs a worker that asks before each call of echo.
func (f *fleet) startCareful(t *testing.T) {
	t.Helper()
	model, err := openai.New(openai.Config{BaseURL: f.script.BaseURL(), APIKey: "test", Info: loop.ModelInfo{ID: "scripted"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w, err := worker.New(ctx, worker.Config{
		NATS: f.NC, ID: "careful", AckWait: 2 * time.Second,
		Agent: func(context.Context, worker.AgentRequest) (*worker.Agent, error) {
			return &worker.Agent{
				Model: model, Tools: []loop.Tool{echoTool{}},
				Approvals: worker.Approvals{Needed: func(loop.Call) bool { return true }},
			}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	serve(ctx, t, w, stop, model.Close)
}

// asked prompts and waits until n calls want an approval.
func (f *fleet) asked(t *testing.T, session string, n int) *client.Client {
	t.Helper()
	f.cli(t, "prompt", "--session", session, "--detach", "go").want(t, exitOK, "", "")
	c, err := client.New(t.Context(), f.NC, nil)
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range c.Tail(t.Context(), session, &client.TailOptions{Wait: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := ev.Event.(*loop.ApprovalRequested); ok {
			if n--; n == 0 {
				return c
			}
		}
	}
	return c
}

func TestApproveListsAnswersAndTellsTheSecond(t *testing.T) {
	f := newFleet(t, looptest.Calls(
		looptest.Call{ID: "call_a", Name: "echo", Args: `{"n":1}`}, looptest.Call{ID: "call_b", Name: "echo", Args: `{"n":2}`},
	), looptest.Text("done"))
	f.startCareful(t)
	c := f.asked(t, "s", 2)

	f.cli(t, "approve", "s", "--json").want(t, exitOK, `"call": "call_a"`, "")
	f.cli(t, "deny", "s").want(t, exitOK, "call_b", "")
	f.cli(t, "approve", "s", "call_x").want(t, exitUnknown, "", "no such call")
	f.cli(t, "deny", "s", "call_a", "--reason", "not today", "--by", "ada").want(t, exitOK, "", "the answer counts")
	f.cli(t, "approve", "s", "call_a").want(t, exitError, "", "already answered: denied by ada")
	f.cli(t, "approve", "s", "call_b").want(t, exitOK, "", "the answer counts")

	results := map[string]string{}
	for ev, err := range c.Tail(t.Context(), "s", &client.TailOptions{UntilSettled: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if end, ok := ev.Event.(*loop.ToolExecutionEnd); ok {
			results[end.ToolCallID] = end.Result.Content[0].(*loop.Text).Text
		}
	}
	if !strings.Contains(results["call_a"], "refused by ada: not today") || results["call_b"] != `{"n":2}` {
		t.Errorf("results %q", results)
	}
	f.cli(t, "approve", "s").want(t, exitOK, "", "nothing waits")
}

func TestAnswerIsStoredWhileNoWorkerIsThere(t *testing.T) {
	f := newFleet(t, looptest.Calls(looptest.Call{ID: "call_a", Name: "echo", Args: `{"n":1}`}), looptest.Text("done"))
	t.Run("asked", func(t *testing.T) {
		f.startCareful(t)
		f.asked(t, "s", 1)
	}) // its worker hands the session over and ends
	f.cli(t, "approve", "s", "call_a", "--wait", "100ms").want(t, exitOK, "", "the answer is stored")
	f.startCareful(t)
	f.cli(t, "tail", "s").want(t, exitOK, "done", "")
}
