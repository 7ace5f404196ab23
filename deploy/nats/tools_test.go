package nats_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/tools/natstool"
)

// chatty is a tool with more answers than a broker allows by default. It ends
// when it is told to.
type chatty struct{ cancelled chan struct{} }

func (chatty) Spec() loop.ToolSpec {
	return loop.ToolSpec{Name: "chatty", Description: "Talks.", Parameters: json.RawMessage(`{"type":"object"}`)}
}

func (c chatty) Execute(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
	for range 5 {
		update(loop.TextResult("part"))
	}
	if strings.Contains(string(call.Args), "hang") {
		<-ctx.Done()
		close(c.cancelled)
	}
	return loop.TextResult("done"), nil
}

// A service in the role tools offers a tool that the role worker finds, calls,
// hears of while it runs, and cancels.
func TestServiceOffersToolsAndTheWorkerCallsThem(t *testing.T) {
	url := start(t, "nats.conf")
	service, boss := connect(t, url, "tools"), connect(t, url, "worker")
	tool := chatty{make(chan struct{})}
	served, err := natstool.Serve(service.nc, natstool.Config{Name: "talk", Version: "1.0.0"}, tool)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := served.Stop(); err != nil {
			t.Error(err)
		}
	}()
	directory, err := natstool.Open(t.Context(), boss.nc, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	list, _ := directory.Tools("chatty")
	if len(list) != 1 {
		t.Fatalf("%d tools are found; refused: %q, %q", len(list), service.take(t), boss.take(t))
	}
	parts := 0
	res, err := list[0].Execute(t.Context(), loop.Call{Name: "chatty", Args: json.RawMessage(`{}`)}, func(loop.ToolResult) { parts++ })
	if err != nil || res.IsError || parts != 5 {
		t.Errorf("%d parts, %+v, %v", parts, res, err)
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = list[0].Execute(ctx, loop.Call{Name: "chatty", Args: json.RawMessage(`{"hang":true}`)}, func(loop.ToolResult) { cancel(enough) })
	if !errors.Is(err, enough) {
		t.Errorf("the cancelled call: %v", err)
	}
	<-tool.cancelled
	for _, w := range []*who{service, boss} {
		if refused := w.take(t); len(refused) > 0 {
			t.Errorf("the broker refused %s:\n%s", w.name, strings.Join(refused, "\n"))
		}
	}
}
