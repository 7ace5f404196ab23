package client_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
)

func TestWaitGivesOutcomeTextAndUsage(t *testing.T) {
	b := newBundle(t)
	for _, outcome := range []loop.Outcome{loop.OutcomeCompleted, loop.OutcomeFailed, loop.OutcomeAborted, loop.OutcomeLimit, loop.OutcomeDeadLetter} {
		t.Run(string(outcome), func(t *testing.T) {
			id := "s-" + string(outcome)
			r := b.prompt(t, id, "name a river")
			l := b.worker.openLog(id)
			b.worker.answer(l, b.worker.input(id), "the Po", outcome)
			b.worker.close(l)
			res, err := b.c.Wait(within(t), r)
			if err != nil {
				t.Fatal(err)
			}
			if res.Outcome != outcome || res.Text != "the Po" || res.Usage.TotalTokens != 5 || len(res.Messages) != 2 {
				t.Errorf("result is %+v", res)
			}
		})
	}
}

func TestFollowGivesOneRunOnly(t *testing.T) {
	b := newBundle(t)
	first, second := b.prompt(t, "s", "one"), b.prompt(t, "s", "two")
	var got [2][]seen
	var wg sync.WaitGroup
	for i, r := range []*client.Receipt{first, second} {
		wg.Go(func() { got[i] = collect(t, b.c.Follow(within(t), r), 0) })
	}
	log := b.worker.openLog("s")
	b.worker.answer(log, b.worker.input("s"), "the Rhine", loop.OutcomeCompleted)
	b.worker.answer(log, b.worker.input("s"), "the Po", loop.OutcomeFailed)
	b.worker.close(log)
	wg.Wait()
	for i, events := range got {
		if len(events) < 10 || events[0].Type != "agent_start" || events[len(events)-1].Type != "agent_settled" {
			t.Fatalf("prompt %d is %v", i, events)
		}
		starts := 0
		for _, ev := range events {
			if ev.Type == "agent_start" {
				starts++
			}
		}
		if starts != 1 {
			t.Errorf("prompt %d has %d runs", i, starts)
		}
	}
	res, err := b.c.Wait(within(t), second)
	if err != nil || res.Text != "the Po" || res.Outcome != loop.OutcomeFailed {
		t.Errorf("waiting for the second afterwards gives %+v, %v", res, err)
	}
}

func TestRepeatedIDIsAnsweredWithTheFirstRun(t *testing.T) {
	b := newBundle(t)
	opts := &client.InputOptions{ID: "order-17"}
	msg := loop.NewUserText("hi")
	if _, err := b.c.Prompt(t.Context(), "s", msg, opts); err != nil {
		t.Fatal(err)
	}
	log := b.worker.openLog("s")
	b.worker.answer(log, b.worker.input("s"), "the Po", loop.OutcomeCompleted)
	b.worker.close(log)
	again, err := b.c.Prompt(t.Context(), "s", msg, opts)
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.c.Wait(within(t), again)
	if err != nil || res.Text != "the Po" {
		t.Errorf("the second prompt with the id gives %+v, %v", res, err)
	}
}

func TestReturnedPromptIsAborted(t *testing.T) {
	b := newBundle(t)
	r := b.prompt(t, "s", "one")
	in := b.worker.input("s")
	log := b.worker.openLog("s")
	err := log.AppendAll(t.Context(), []loop.Event{
		&loop.InputReturned{Kind: "prompt", Seq: in.Ref.Seq, ID: in.ID, Reason: "abort"},
		&loop.AgentSettled{Outcome: loop.OutcomeAborted, PromptSeq: in.Ref.Seq, PromptID: in.ID},
	}, in.Ref)
	if err != nil {
		t.Fatal(err)
	}
	b.worker.close(log)
	events := collect(t, b.c.Follow(within(t), r), 0)
	if len(events) != 2 {
		t.Errorf("events are %v", events)
	}
	res, err := b.c.Wait(within(t), r)
	if err != nil || res.Outcome != loop.OutcomeAborted {
		t.Errorf("result is %+v, %v", res, err)
	}
}

func TestWaitForReturnedSteerEnds(t *testing.T) {
	b := newBundle(t)
	b.prompt(t, "s", "one")
	r, err := b.c.Steer(t.Context(), "s", loop.NewUserText("two"), nil)
	if err != nil {
		t.Fatal(err)
	}
	log := b.worker.openLog("s")
	b.worker.append(log, &loop.InputReturned{Kind: "steer", Seq: r.Seq, ID: r.ID, Reason: "dead_letter"})
	b.worker.close(log)
	res, err := b.c.Wait(within(t), r)
	if err != nil || res.Outcome != loop.OutcomeDeadLetter {
		t.Errorf("result is %+v, %v", res, err)
	}
}

func TestWaitLostIsNoResult(t *testing.T) {
	b := newBundle(t)
	nc := b.Connect()
	c, err := client.New(t.Context(), nc, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := b.prompt(t, "s", "one")
	log := b.worker.openLog("s")
	b.worker.begin(log, b.worker.input("s"))
	b.worker.close(log)
	n := 0
	var last error
	for _, err := range c.Follow(within(t), r) {
		if last = err; err == nil {
			if n++; n == 4 {
				nc.Close()
			}
		}
	}
	if !errors.Is(last, client.ErrLost) {
		t.Errorf("following ends with %v, want ErrLost", last)
	}
	if res, err := c.Wait(within(t), r); !errors.Is(err, client.ErrLost) || res != nil {
		t.Errorf("waiting gives %+v, %v, want ErrLost", res, err)
	}
}

func TestTranscriptHasFinishedMessages(t *testing.T) {
	b := newBundle(t)
	b.twoRuns(t, "s")
	b.prompt(t, "s", "three")
	log := b.worker.openLog("s")
	b.worker.begin(log, b.worker.input("s"))
	b.worker.close(log)
	tr, err := b.c.Transcript(within(t), "s")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(tr.Messages()); n != 5 || tr.Open() == nil {
		t.Errorf("transcript has %d messages, open run %v; want 5 and one", n, tr.Open())
	}
}

func TestPromptThatRepeatsASteerIsAnsweredWithItsRun(t *testing.T) {
	b := newBundle(t)
	b.prompt(t, "s", "one")
	opts := &client.InputOptions{ID: "order-17"}
	log := b.worker.openLog("s")
	in := b.worker.input("s")
	b.worker.begin(log, in)
	if _, err := b.c.Steer(t.Context(), "s", loop.NewUserText("two"), opts); err != nil {
		t.Fatal(err)
	}
	steer := b.worker.input("s")
	err := log.AppendAll(t.Context(), []loop.Event{
		&loop.MessageStart{Message: steer.Message}, &loop.MessageEnd{Message: steer.Message},
	}, steer.Ref)
	if err != nil {
		t.Fatal(err)
	}
	b.worker.stream(log, "the Po", true)
	b.worker.append(log, &loop.TurnEnd{}, &loop.AgentEnd{}, &loop.AgentSettled{Outcome: loop.OutcomeLimit, PromptSeq: in.Ref.Seq})
	b.worker.close(log)
	// The sender never got its receipt, and sends it as a prompt.
	again, err := b.c.Prompt(t.Context(), "s", loop.NewUserText("two"), opts)
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.c.Wait(within(t), again)
	if err != nil || res.Text != "the Po" || res.Outcome != loop.OutcomeLimit {
		t.Errorf("result is %+v, %v", res, err)
	}
}

func TestPromptOverThePayloadLimitArrives(t *testing.T) {
	b := newBundle(t) // a server with max_payload 1 MiB
	text := strings.Repeat("0123456789abcdef", 3<<16)
	r := b.prompt(t, "s", text)
	in := b.worker.input("s")
	if got := in.Message.(*loop.UserMessage).Content[0].(*loop.Text).Text; got != text {
		t.Errorf("%d bytes arrive of %d", len(got), len(text))
	}
	log := b.worker.openLog("s")
	b.worker.answer(log, in, "long", loop.OutcomeCompleted)
	b.worker.close(log)
	res, err := b.c.Wait(within(t), r)
	if err != nil || len(res.Messages) != 2 {
		t.Fatalf("result is %+v, %v", res, err)
	}
	if got := res.Messages[0].(*loop.UserMessage).Content[0].(*loop.Text).Text; got != text {
		t.Errorf("the log gives %d bytes of %d", len(got), len(text))
	}
}
