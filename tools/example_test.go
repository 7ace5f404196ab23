package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/tools"
)

func Example() {
	dir, err := os.MkdirTemp("", "workspace-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ws, err := tools.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.Close()

	list, err := ws.Tools("write", "read")
	if err != nil {
		log.Fatal(err)
	}
	for i, args := range []string{
		`{"path": "greeting.txt", "content": "hello\n"}`,
		`{"path": "../../etc/passwd"}`,
	} {
		r, err := list[i].Execute(context.Background(), loop.Call{Args: json.RawMessage(args)}, nil)
		if err != nil {
			fmt.Println("error:", err)
			continue
		}
		fmt.Println(r.Content[0].(*loop.Text).Text)
	}
	// Output:
	// Successfully wrote 6 bytes to greeting.txt
	// error: EACCES: path is outside the workspace
}

func ExampleFunc() {
	type Order struct {
		ID    string `json:"id" jsonschema:"the order's number"`
		Lines int    `json:"lines,omitempty" jsonschema:"how many lines to show"`
	}
	tool, err := tools.Func("order", "Look up an order.",
		func(_ context.Context, _ loop.Call, in Order) (loop.ToolResult, error) {
			return loop.TextResult("order " + in.ID + " is on its way"), nil
		}, &tools.FuncOptions{Idempotent: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(tool.Spec().Parameters))
	r, err := tool.Execute(context.Background(), loop.Call{Args: json.RawMessage(`{"id": "A7"}`)}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Content[0].(*loop.Text).Text)
	// Output:
	// {"type":"object","properties":{"id":{"type":"string","description":"the order's number"},"lines":{"type":"integer","description":"how many lines to show"}},"required":["id"],"additionalProperties":false}
	// order A7 is on its way
}
