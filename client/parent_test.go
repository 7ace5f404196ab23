package client_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

// asking is a tool that prompts another session, as any tool may.
type asking struct {
	c      *client.Client
	parent *client.Parent
	err    error
}

func (a *asking) Spec() loop.ToolSpec {
	return loop.ToolSpec{Name: "ask", Parameters: []byte(`{"type":"object"}`)}
}

func (a *asking) Execute(ctx context.Context, _ loop.Call, _ func(loop.ToolResult)) (loop.ToolResult, error) {
	_, a.err = a.c.Prompt(ctx, "child", loop.NewUserText("help me"), &client.InputOptions{Parent: a.parent})
	return loop.TextResult("asked"), a.err
}

// A prompt that a tool sends is below the tool's run, unless it says otherwise.
func TestPromptOfAToolIsBelowItsRun(t *testing.T) {
	for name, c := range map[string]struct {
		parent *client.Parent
		want   *session.Parent
	}{
		"by default": {nil, &session.Parent{Session: "web-7", Run: 17}},
		"detached":   {&client.Parent{}, nil},
		"named":      {&client.Parent{Session: "s", Run: 3}, &session.Parent{Session: "s", Run: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			ask := &asking{c: b.c, parent: c.parent}
			cfg := &loop.Config{
				Model:   looptest.NewModel(looptest.Calls(looptest.Call{Name: "ask"}), looptest.Text("ok")),
				Tools:   []loop.Tool{ask},
				CallKey: func(int, int) string { return "web-7/17/0/0" },
			}
			if _, err := looptest.Collect(loop.Run(t.Context(), cfg, nil, loop.NewUserText("go"))); err != nil || ask.err != nil {
				t.Fatal(err, ask.err)
			}
			got := b.worker.input("child").Options.Parent
			if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Errorf("the prompt is below %v, want %v", got, c.want)
			}
		})
	}
}

func TestParentWithoutARunIsTheOpenOne(t *testing.T) {
	b := newBundle(t)
	parent, err := client.ParseParent("web-7")
	if err != nil {
		t.Fatal(err)
	}
	opts := &client.InputOptions{Parent: parent}
	if _, err := b.c.Prompt(t.Context(), "child", loop.NewUserText("hi"), opts); !errors.Is(err, client.ErrUnknownSession) {
		t.Errorf("an unknown parent: %v", err)
	}
	first, err := b.c.Prompt(t.Context(), "web-7", loop.NewUserText("go"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.c.Prompt(t.Context(), "child", loop.NewUserText("hi"), opts); !errors.Is(err, client.ErrNoRun) {
		t.Errorf("a parent that waits: %v", err)
	}
	log := b.worker.openLog("web-7")
	b.worker.begin(log, b.worker.input("web-7"))
	if _, err := b.c.Prompt(t.Context(), "child", loop.NewUserText("hi"), opts); err != nil {
		t.Fatal(err)
	}
	if got := b.worker.input("child").Options.Parent; got == nil || *got != (session.Parent{Session: "web-7", Run: first.Seq}) {
		t.Errorf("the prompt is below %v, want run %d", got, first.Seq)
	}
	b.worker.close(log)
}
