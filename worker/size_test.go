package worker

import (
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// WISHES 29: 20 MiB of tool output pass a server with max_payload 1 MiB, come
// back whole from the log, and go with their session.
func TestTwentyMiBToolOutput(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callWork, looptest.Text("that was much")}})
	if max := b.env.NC.MaxPayload(); max != 1<<20 {
		t.Fatalf("max_payload is %d", max)
	}
	big := strings.Repeat("0123456789abcdef", 20<<20/16)
	work := &tool{spec: loop.ToolSpec{Name: "work"}, run: func(context.Context, loop.Call) (loop.ToolResult, error) {
		return loop.TextResult(big), nil
	}}
	b.start("w1", withAgent(Agent{Tools: []loop.Tool{work}}))
	b.say("s1", subjects.KindPrompt, "make much")
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
	found := 0
	for _, ev := range b.events("s1") {
		switch ev := ev.(type) {
		case *loop.ToolExecutionEnd:
			if text(ev.Result.Content) == big {
				found++
			}
		case *loop.MessageEnd:
			if m, ok := ev.Message.(*loop.ToolResultMessage); ok && text(m.Content) == big {
				found++
			}
		}
	}
	if found != 2 {
		t.Errorf("the log has the output %d times, want in the tool's end and in its message", found)
	}
	b.inboxEmpty("s1")
	if err := b.store.Remove(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	b.wantBlobs(0)
}

// A prompt with images of 5 MiB arrives, and its blob goes with the input.
func TestPromptWithImagesOfFiveMiB(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{looptest.Text("nice")}})
	image := strings.Repeat("QUJD", 5<<20/4)
	msg := loop.NewUserText("look")
	for range 2 {
		msg.Content = append(msg.Content, &loop.Image{Data: image, MIMEType: "image/png"})
	}
	b.publish("s1", subjects.KindPrompt, &session.Input{Message: msg})
	b.wantBlobs(1)
	b.start("w1", nil)
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
	if n := len(b.script.Requests()[0].Body); n < 10<<20 {
		t.Errorf("the request has %d bytes", n)
	}
	b.inboxEmpty("s1")
	b.wantBlobs(1) // the message in the log
}

func (b *bench) wantBlobs(n int) {
	b.Helper()
	store, err := b.env.JS.ObjectStore(b.Context(), subjects.Names{}.BlobBucket())
	if err != nil {
		b.Fatal(err)
	}
	list, err := store.List(b.Context())
	if err != nil && err != jetstream.ErrNoObjectsFound {
		b.Fatal(err)
	}
	if len(list) != n {
		b.Errorf("%d blobs, want %d", len(list), n)
	}
}
