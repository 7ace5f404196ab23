package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/internal/natsd"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// A prompt to a new session, and how it ended.
func Example() {
	ctx := context.Background()
	url, stop := broker() // a NATS with JetStream, and a worker
	defer stop()

	nc, err := nats.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	c, err := client.New(ctx, nc, nil)
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := c.Prompt(ctx, "rivers", loop.NewUserText("name a river"), nil)
	if err != nil {
		log.Fatal(err)
	}
	result, err := c.Wait(ctx, receipt)
	if err != nil {
		log.Fatal(err) // we know nothing of how it ended
	}
	fmt.Println(result.Outcome, result.Text)
	// Output: completed the Po
}

// The answer as it is written, with the outcome at the end.
func ExampleClient_Follow() {
	ctx := context.Background()
	c, stop := connected(ctx)
	defer stop()

	receipt, err := c.Prompt(ctx, "rivers", loop.NewUserText("name a river"), nil)
	if err != nil {
		log.Fatal(err)
	}
	for ev, err := range c.Follow(ctx, receipt) {
		if err != nil {
			log.Fatal(err)
		}
		switch e := ev.Event.(type) {
		case *loop.MessageUpdate:
			fmt.Print(e.Update.Delta)
		case *loop.MessageDiscarded:
			fmt.Println("\nthe answer starts again")
		case *loop.AgentSettled:
			fmt.Println("\n" + e.Outcome)
		}
	}
	// Output:
	// the Po
	// completed
}

// A reader that comes back goes on where it was.
func ExampleClient_Tail() {
	ctx := context.Background()
	c, stop := connected(ctx)
	defer stop()
	receipt, err := c.Prompt(ctx, "rivers", loop.NewUserText("name a river"), nil)
	if err != nil {
		log.Fatal(err)
	}

	var next uint64 // store this where a restart finds it
	opts := &client.TailOptions{Wait: true}
	for ev, err := range c.Tail(ctx, receipt.Session, opts) {
		if err != nil {
			log.Fatal(err)
		}
		if _, ok := ev.Event.(*loop.AgentStart); ok {
			break // for some reason
		}
		next = ev.Seq + 1
	}
	opts = &client.TailOptions{Seq: next, UntilSettled: true}
	for ev, err := range c.Tail(ctx, receipt.Session, opts) {
		if err != nil {
			log.Fatal(err)
		}
		switch ev.Event.(type) {
		case *loop.AgentStart, *loop.TurnStart, *loop.TurnEnd, *loop.AgentEnd, *loop.AgentSettled:
			fmt.Println(ev.Event.EventType())
		}
	}
	// Output:
	// agent_start
	// turn_start
	// turn_end
	// agent_end
	// agent_settled
}

// The same id twice has one effect, so a publisher that does not know whether
// its first attempt arrived sends it again.
func ExampleClient_Prompt_again() {
	ctx := context.Background()
	c, stop := connected(ctx)
	defer stop()

	msg := loop.NewUserText("name a river")
	opts := &client.InputOptions{ID: "order-17"}
	for range 2 {
		receipt, err := c.Prompt(ctx, "rivers", msg, opts)
		if err != nil {
			log.Fatal(err)
		}
		result, err := c.Wait(ctx, receipt)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(receipt.Seq, result.Text)
	}
	// Output:
	// 1 the Po
	// 1 the Po
}

// Session ids are checked before anything is sent.
func ExampleClient_Steer() {
	ctx := context.Background()
	c, stop := connected(ctx)
	defer stop()

	_, err := c.Steer(ctx, "no.such", loop.NewUserText("not that file"), nil)
	fmt.Println(errors.Is(err, client.ErrSession))
	_, err = c.Steer(ctx, "misspelt", loop.NewUserText("not that file"), nil)
	fmt.Println(errors.Is(err, client.ErrUnknownSession))
	// Output:
	// true
	// true
}

// connected is a client of a broker of its own.
func connected(ctx context.Context) (*client.Client, func()) {
	url, stop := broker()
	nc, err := nats.Connect(url)
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.New(ctx, nc, nil)
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		nc.Close()
		stop()
	}
}

// broker starts a NATS with our streams and something that answers every prompt
// of session rivers with "the Po".
func broker() (url string, stop func()) {
	srv, err := natsd.Start(natsd.Config{})
	if err != nil {
		log.Fatal(err)
	}
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := subjects.Ensure(ctx, js, subjects.Names{}, nil); err != nil {
		log.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { answerAll(ctx, js, nc) })
	return srv.ClientURL(), func() {
		cancel()
		wg.Wait()
		nc.Close()
		if err := srv.Close(); err != nil {
			log.Fatal(err)
		}
	}
}

func answerAll(ctx context.Context, js jetstream.JetStream, nc *nats.Conn) {
	// What was begun is finished, also when the example has ended.
	work := context.WithoutCancel(ctx)
	p := newPretender(work, func(v ...any) { log.Fatal(v...) }, nc)
	consumer, err := js.OrderedConsumer(work, "AGENT_INBOX", jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"agent.rivers.prompt"},
	})
	if err != nil {
		log.Fatal(err)
	}
	msgs, err := consumer.Messages()
	if err != nil {
		log.Fatal(err)
	}
	defer context.AfterFunc(ctx, msgs.Stop)()
	for {
		if _, err := msgs.Next(); err != nil {
			return
		}
		l := p.openLog("rivers")
		p.answer(l, p.input("rivers"), "the Po", loop.OutcomeCompleted)
		p.close(l)
	}
}
