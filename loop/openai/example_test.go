package openai_test

import (
	"context"
	"fmt"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/loop/openai"
)

func ExampleModel_Stream() {
	server := looptest.NewScript(looptest.Text("It is raining."))
	defer server.Close()

	model, err := openai.New(openai.Config{
		BaseURL: server.BaseURL(),
		Info:    loop.ModelInfo{ID: "any-model"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer model.Close()

	request := &loop.Request{Messages: []loop.Message{loop.NewUserText("What is the weather like?")}}
	for update, err := range model.Stream(context.Background(), request) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch update.Type {
		case loop.UpdateTextDelta:
			fmt.Print(update.Delta)
		case loop.UpdateDone:
			fmt.Println()
			fmt.Println(update.Message.StopReason)
		case loop.UpdateError:
			fmt.Println(update.Message.ErrorMessage)
		}
	}
	// Output:
	// It is raining.
	// stop
}
