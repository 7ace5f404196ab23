package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/pi-worker/pi-worker/subjects"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/loop"
)

func TestPromptRefusals(t *testing.T) {
	b := newBundle(t)
	small, err := client.New(t.Context(), b.NC, &client.Options{MaxInputBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	text := loop.NewUserText
	tests := []struct {
		name    string
		c       *client.Client
		session string
		msg     *loop.UserMessage
		want    error
	}{
		{"dot", b.c, "a.b", text("hi"), client.ErrSession},
		{"wildcard", b.c, "*", text("hi"), client.ErrSession},
		{"rest wildcard", b.c, ">", text("hi"), client.ErrSession},
		{"blank", b.c, "a b", text("hi"), client.ErrSession},
		{"65 characters", b.c, strings.Repeat("x", 65), text("hi"), client.ErrSession},
		{"no message", b.c, "s", nil, client.ErrEmptyPrompt},
		{"no content", b.c, "s", &loop.UserMessage{}, client.ErrEmptyPrompt},
		{"white space", b.c, "s", text(" \n\t"), client.ErrEmptyPrompt},
		{"over the limit", small, "s", text(strings.Repeat("x", 1001)), client.ErrTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := tt.c.Prompt(t.Context(), tt.session, tt.msg, nil); !errors.Is(err, tt.want) {
				t.Errorf("error is %v, want %v", err, tt.want)
			}
		})
	}
	if n := b.inboxSize(t); n != 0 {
		t.Errorf("%d refused inputs are in the inbox", n)
	}
	if _, err := b.c.Prompt(t.Context(), strings.Repeat("x", 64), text("hi"), nil); err != nil {
		t.Errorf("a session of 64 characters is refused: %v", err)
	}
}

func TestTooLargeNamesBothNumbers(t *testing.T) {
	b := newBundle(t)
	c, err := client.New(t.Context(), b.NC, &client.Options{MaxInputBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Prompt(t.Context(), "s", loop.NewUserText(strings.Repeat("x", 5000)), nil)
	if err == nil || !strings.Contains(err.Error(), "1000") || !strings.Contains(err.Error(), "50") {
		t.Errorf("error is %v, want the size and the limit of 1000", err)
	}
}

func TestPromptMakesSession(t *testing.T) {
	b := newBundle(t)
	one, two := b.prompt(t, "", "a"), b.prompt(t, "", "b")
	if _, err := client.ParseSession(one.Session); err != nil || one.Session == two.Session {
		t.Errorf("made up sessions %q and %q: %v", one.Session, two.Session, err)
	}
}

func TestSameIDIsDuplicate(t *testing.T) {
	b := newBundle(t)
	opts := &client.InputOptions{ID: "order-17"}
	first, err := b.c.Prompt(t.Context(), "s", loop.NewUserText("a"), opts)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.c.Prompt(t.Context(), "s", loop.NewUserText("a"), opts)
	if err != nil {
		t.Fatal(err)
	}
	if first.Duplicate || !again.Duplicate || again.Seq != first.Seq {
		t.Errorf("receipts are %+v and %+v, want a duplicate with the first sequence", first, again)
	}
	if n := b.inboxSize(t); n != 1 {
		t.Errorf("inbox has %d inputs, want 1", n)
	}
	other, err := b.c.Prompt(t.Context(), "other", loop.NewUserText("a"), opts)
	if err != nil || other.Duplicate {
		t.Errorf("the same id in another session: %+v, %v", other, err)
	}
}

func TestFullSessionRefuses(t *testing.T) {
	b := newBundle(t)
	for i := range 64 {
		if _, err := b.c.Prompt(t.Context(), "s", loop.NewUserText(fmt.Sprint(i)), nil); err != nil {
			t.Fatalf("prompt %d: %v", i, err)
		}
	}
	if _, err := b.c.Prompt(t.Context(), "s", loop.NewUserText("one more"), nil); !errors.Is(err, client.ErrFull) {
		t.Errorf("error is %v, want ErrFull", err)
	}
	if _, err := b.c.Prompt(t.Context(), "other", loop.NewUserText("hi"), nil); err != nil {
		t.Errorf("another session is refused as well: %v", err)
	}
}

func TestUnknownSessionIsNotSteered(t *testing.T) {
	b := newBundle(t)
	msg := loop.NewUserText("hi")
	_, steerErr := b.c.Steer(t.Context(), "misspelt", msg, nil)
	_, followErr := b.c.FollowUp(t.Context(), "misspelt", msg, nil)
	_, abortErr := b.c.Abort(t.Context(), "misspelt", client.QueueKeep)
	_, showErr := b.c.Transcript(t.Context(), "misspelt")
	for _, err := range []error{steerErr, followErr, abortErr, showErr} {
		if !errors.Is(err, client.ErrUnknownSession) {
			t.Errorf("error is %v, want ErrUnknownSession", err)
		}
	}
	for _, err := range b.c.Tail(within(t), "misspelt", nil) {
		if !errors.Is(err, client.ErrUnknownSession) {
			t.Errorf("tail's error is %v, want ErrUnknownSession", err)
		}
	}
	if n := b.inboxSize(t); n != 0 {
		t.Errorf("%d inputs were published", n)
	}
	// A session whose first prompt nobody has begun is known.
	b.prompt(t, "waiting", "hi")
	if _, err := b.c.Steer(t.Context(), "waiting", msg, nil); err != nil {
		t.Errorf("steering a waiting session: %v", err)
	}
}

func TestAbortRefusesOtherQueues(t *testing.T) {
	b := newBundle(t)
	b.prompt(t, "s", "hi")
	if _, err := b.c.Abort(t.Context(), "s", "burn"); !errors.Is(err, client.ErrQueue) {
		t.Errorf("error is %v, want ErrQueue", err)
	}
	if _, err := b.c.Abort(t.Context(), "s", client.QueueReturn); err != nil {
		t.Errorf("abort: %v", err)
	}
}

func TestNoStreamsIsSaid(t *testing.T) {
	env := natstest.Start(t, nil)
	c, err := client.New(t.Context(), env.NC, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Prompt(t.Context(), "s", loop.NewUserText("hi"), nil); !errors.Is(err, client.ErrNoStreams) {
		t.Errorf("prompt: %v, want ErrNoStreams", err)
	}
	if _, err := c.Prompt(t.Context(), "s", loop.NewUserText("hi"), &client.InputOptions{ID: "x"}); !errors.Is(err, client.ErrNoStreams) {
		t.Errorf("prompt with an id: %v, want ErrNoStreams", err)
	}
	if _, err := c.Sessions(t.Context()); !errors.Is(err, client.ErrNoStreams) {
		t.Errorf("sessions: %v, want ErrNoStreams", err)
	}
}

func TestReceiptSurvivesJSON(t *testing.T) {
	want := client.Receipt{Session: "s", Kind: client.KindPrompt, ID: "i", Seq: 7, Duplicate: true, After: 3}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got client.Receipt
	if err := json.Unmarshal(b, &got); err != nil || got != want {
		t.Errorf("%s gives %+v, %v", b, got, err)
	}
}

func TestSteerMayInterrupt(t *testing.T) {
	b := newBundle(t)
	if _, err := b.c.Prompt(t.Context(), "s", loop.NewUserText("a"), nil); err != nil {
		t.Fatal(err)
	}
	receipt, err := b.c.Steer(t.Context(), "s", loop.NewUserText("stop that"), &client.InputOptions{Interrupt: true})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := b.JS.Stream(t.Context(), subjects.Names{}.InboxStream())
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetMsg(t.Context(), receipt.Seq)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(msg.Data), `"urgency":"interrupt"`) {
		t.Errorf("published %s", msg.Data)
	}
}

func TestTraceContextOfTheCtxTravels(t *testing.T) {
	b := newBundle(t)
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{15: 1}, SpanID: trace.SpanID{7: 2}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), sc)
	const ofCtx = "00-00000000000000000000000000000001-0000000000000002-01"
	const named = "00-00000000000000000000000000000003-0000000000000004-01"
	for _, c := range []struct {
		ctx  context.Context
		opts *client.InputOptions
		want string
	}{
		{ctx, nil, ofCtx},
		{ctx, &client.InputOptions{TraceParent: named}, named},
		{t.Context(), nil, ""},
	} {
		receipt, err := b.c.Prompt(c.ctx, "", loop.NewUserText("a"), c.opts)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := b.JS.Stream(t.Context(), subjects.Names{}.InboxStream())
		if err != nil {
			t.Fatal(err)
		}
		msg, err := stream.GetMsg(t.Context(), receipt.Seq)
		if err != nil {
			t.Fatal(err)
		}
		if got := msg.Header.Get(subjects.HeaderTraceParent); got != c.want {
			t.Errorf("traceparent %q, want %q", got, c.want)
		}
	}
}
