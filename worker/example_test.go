package worker_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/natsd"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/loop/openai"
	"github.com/pi-worker/pi-worker/subjects"
	"github.com/pi-worker/pi-worker/worker"
)

// A worker with one agent answers a prompt that a stranger publishes.
func Example() {
	if err := example(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	// Output:
	// the prompt is completed: true
}

func example() error {
	srv, err := natsd.Start(natsd.Config{}) // yours is somewhere else
	if err != nil {
		return err
	}
	defer func() { _ = srv.Close() }()
	script := looptest.NewScript(looptest.Text("Elbe, Spree, Oder")) // and so is your model
	defer func() { _ = script.Close() }()

	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := subjects.Ensure(ctx, js, subjects.Names{}, nil); err != nil {
		return err
	}
	model, err := openai.New(openai.Config{
		BaseURL: script.BaseURL(), HTTPClient: script.Client(), Info: loop.ModelInfo{ID: "scripted"},
	})
	if err != nil {
		return err
	}
	w, err := worker.New(ctx, worker.Config{
		NATS: nc,
		Agent: func(context.Context, worker.AgentRequest) (*worker.Agent, error) {
			return &worker.Agent{Model: model, SystemPrompt: "You know rivers."}, nil
		},
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	events, err := nc.SubscribeSync(subjects.Names{}.Events("s1"))
	if err != nil {
		return err
	}
	if err := nc.Publish(subjects.Names{}.Input("s1", subjects.KindPrompt), []byte("name three rivers")); err != nil {
		return err
	}
	for {
		m, err := events.NextMsgWithContext(ctx)
		if err != nil {
			return err
		}
		if settled := string(m.Data); strings.Contains(settled, "agent_settled") {
			fmt.Println("the prompt is completed:", strings.Contains(settled, `"outcome":"completed"`))
			break
		}
	}
	cancel()
	return <-ended
}
