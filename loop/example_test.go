package loop_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

// clock is a tool.
type clock struct{}

func (clock) Spec() loop.ToolSpec {
	return loop.ToolSpec{
		Name: "clock", Description: "Tells the time of a city.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`),
	}
}

func (clock) Execute(_ context.Context, call loop.Call, _ func(loop.ToolResult)) (loop.ToolResult, error) {
	var args struct{ City string }
	if err := json.Unmarshal(call.Args, &args); err != nil {
		return loop.ToolResult{}, err
	}
	return loop.TextResult("noon in " + args.City), nil
}

// A model that is scripted here; see package openai for real ones.
func Example() {
	cfg := &loop.Config{
		Model: looptest.NewModel(
			looptest.Calls(looptest.Call{Name: "clock", Args: `{"city":"Vienna"}`}),
			looptest.Text("It is noon."),
		),
		Tools: []loop.Tool{clock{}},
	}
	for ev, err := range loop.Run(context.Background(), cfg, nil, loop.NewUserText("What time is it in Vienna?")) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch ev := ev.(type) {
		case *loop.ToolExecutionEnd:
			fmt.Println(ev.ToolName, "->", ev.Result.Content[0].(*loop.Text).Text)
		case *loop.MessageUpdate:
			fmt.Print(ev.Update.Delta)
		case *loop.AgentEnd:
			fmt.Printf("\n%d messages\n", len(ev.Messages))
		}
	}
	// Output:
	// {"city":"Vienna"}clock -> noon in Vienna
	// It is noon.
	// 4 messages
}

// An Agent remembers, and can be steered while it runs.
func ExampleAgent() {
	agent := loop.NewAgent(loop.AgentConfig{Config: loop.Config{
		Model: looptest.NewModel(looptest.Text("Hello."), looptest.Text("Goodbye.")),
	}})
	agent.FollowUp(loop.NewUserText("And now?"))
	for ev, err := range agent.Prompt(context.Background(), loop.NewUserText("Hi")) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if u, ok := ev.(*loop.MessageUpdate); ok && u.Update.Type == loop.UpdateTextEnd {
			fmt.Println(u.Update.Content)
		}
	}
	fmt.Println(len(agent.State().Messages), "messages")
	// Output:
	// Hello.
	// Goodbye.
	// 4 messages
}
