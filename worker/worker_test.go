package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pi-worker/pi-worker/internal/secret"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

func TestPromptSettlesOnce(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{
		looptest.Reply{Text: "hello there", Usage: &looptest.Usage{Input: 10, Output: 2}},
	}})
	b.start("w1", nil)
	seq := b.publish("s1", subjects.KindPrompt, &session.Input{ID: "p-1", Message: loop.NewUserText("hi")})
	got := b.settle("s1", 1)
	b.wantOutcomes(got, loop.OutcomeCompleted)
	s := got[0]
	if s.PromptSeq != seq || s.PromptID != "p-1" || s.Attempts != 1 || s.Usage.TotalTokens != 12 {
		t.Errorf("settled %+v, want prompt %d of id p-1, 1 attempt, 12 tokens", s, seq)
	}
	b.inboxEmpty("s1")
	evs := b.events("s1")
	if last := evs[len(evs)-1].EventType(); last != "agent_settled" {
		t.Errorf("last event is %s", last)
	}
	b.check("s1")
}

func TestPromptIsOneRecordWithItsInput(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{looptest.Text("ok")}})
	b.start("w1", nil)
	seq := b.say("s1", subjects.KindPrompt, "hi")
	b.settle("s1", 1)
	for _, rec := range b.records("s1") {
		for _, ref := range rec.Inputs {
			if ref.Seq != seq {
				continue
			}
			var types []string
			for _, ev := range rec.Events {
				types = append(types, ev.EventType())
			}
			if want := []string{"session_claimed", "agent_start", "turn_start", "message_start", "message_end"}; !slices.Equal(types, want) {
				t.Errorf("the consuming record has %v, want %v", types, want)
			}
			return
		}
	}
	t.Error("no record consumed the prompt")
}

// stepping is an agent whose tool stops until the test lets it go on.
type stepping struct {
	started, release chan struct{}
	tool             *tool
	runs             atomic.Int32
}

func newStepping() *stepping {
	s := &stepping{started: make(chan struct{}, 16), release: make(chan struct{})}
	s.tool = &tool{spec: loop.ToolSpec{Name: "work"}, run: func(ctx context.Context, _ loop.Call) (loop.ToolResult, error) {
		s.runs.Add(1)
		s.started <- struct{}{}
		select {
		case <-s.release:
			return loop.TextResult("done"), nil
		case <-ctx.Done():
			return loop.ToolResult{}, context.Cause(ctx)
		}
	}}
	return s
}

func (s *stepping) agent() func(*Config) { return withAgent(Agent{Tools: []loop.Tool{s.tool}}) }

var callWork = looptest.Calls(looptest.Call{Name: "work"})

func TestSteerReachesRunningTurn(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callWork, looptest.Text("steered")}})
	s := newStepping()
	b.start("w1", s.agent())
	b.say("s1", subjects.KindPrompt, "begin")
	<-s.started
	b.say("s1", subjects.KindSteer, "rather this")
	close(s.release)
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
	b.wantUsers("s1", "begin", "rather this")
	if reqs := b.script.Requests(); len(reqs) != 2 || !reqs[1].Contains("user", "rather this") {
		t.Errorf("%d requests; the second must have the steer", len(reqs))
	}
	b.inboxEmpty("s1")
	b.check("s1")
}

func TestSteerWithoutRunBecomesPrompt(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{looptest.Text("ok")}})
	b.start("w1", nil)
	seq := b.say("s1", subjects.KindSteer, "anybody there?")
	got := b.settle("s1", 1)
	b.wantOutcomes(got, loop.OutcomeCompleted)
	if got[0].PromptSeq != seq {
		t.Errorf("settled prompt %d, want the steer %d", got[0].PromptSeq, seq)
	}
	b.wantUsers("s1", "anybody there?")
	b.inboxEmpty("s1")
}

func TestFollowUpRunsAtEnd(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{
		callWork, looptest.Text("first"), looptest.Text("second"), looptest.Text("third"),
	}})
	s := newStepping()
	b.start("w1", s.agent())
	b.say("s1", subjects.KindPrompt, "begin")
	<-s.started
	b.say("s1", subjects.KindPrompt, "the next prompt")
	b.say("s1", subjects.KindFollowUp, "and then")
	close(s.release)
	b.wantOutcomes(b.settle("s1", 2), loop.OutcomeCompleted, loop.OutcomeCompleted)
	b.wantUsers("s1", "begin", "and then", "the next prompt")
	b.inboxEmpty("s1")
	b.check("s1")
}

func TestSameIDOneEffect(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("ok") })
	b.start("w1", nil)
	b.publish("s1", subjects.KindPrompt, &session.Input{ID: "twice", Message: loop.NewUserText("once")})
	b.settle("s1", 1)
	// A stranger's publish without Nats-Msg-Id passes the broker's window.
	body := []byte(`{"id":"twice","message":{"role":"user","content":"once"}}`)
	if _, err := b.env.JS.Publish(t.Context(), "agent.s1.prompt", body); err != nil {
		t.Fatal(err)
	}
	b.say("s1", subjects.KindPrompt, "another")
	b.settle("s1", 2)
	b.wantUsers("s1", "once", "another")
	var dup []*loop.InputReturned
	for _, ev := range b.events("s1") {
		if r, ok := ev.(*loop.InputReturned); ok {
			dup = append(dup, r)
		}
	}
	if len(dup) != 1 || dup[0].Reason != "duplicate" || dup[0].ID != "twice" {
		t.Errorf("events of the repeated input: %+v, want one duplicate", dup)
	}
	b.inboxEmpty("s1")
	b.check("s1")
}

func TestMalformedPromptDeadLettered(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{looptest.Text("ok")}})
	b.start("w1", nil)
	if _, err := b.env.JS.Publish(t.Context(), "agent.s1.prompt", []byte(`{"message": broken`)); err != nil {
		t.Fatal(err)
	}
	b.say("s1", subjects.KindPrompt, "fine")
	b.wantOutcomes(b.settle("s1", 2), loop.OutcomeDeadLetter, loop.OutcomeCompleted)
	b.wantUsers("s1", "fine")
	b.wantDead("s1", 1)
	b.inboxEmpty("s1")
	b.check("s1")
}

func (b *bench) wantDead(id string, n uint64) {
	b.Helper()
	names := subjects.Names{}
	s, err := b.env.JS.Stream(b.Context(), names.DLQStream())
	if err != nil {
		b.Fatal(err)
	}
	msg, err := s.GetLastMsgForSubject(b.Context(), names.DLQ(id))
	if err != nil {
		b.Fatalf("dead letters of %s: %v", id, err)
	}
	if msg.Header.Get(subjects.HeaderReason) == "" {
		b.Errorf("dead letter without a reason: %v", msg.Header)
	}
	if info, err := s.Info(b.Context()); err != nil || info.State.Msgs != n {
		b.Errorf("%d dead letters, want %d (%v)", info.State.Msgs, n, err)
	}
}

func TestRefusalNamesItsReasonInTheDeadLetter(t *testing.T) {
	for reason, cause := range map[string]error{"unknown_agent": ErrUnknownAgent, "not_allowed": ErrNotAllowed} {
		b := newBench(t, benchOptions{})
		b.start("w1", func(c *Config) {
			c.Agent = func(context.Context, AgentRequest) (*Agent, error) { return nil, fmt.Errorf("%w: huge", cause) }
		})
		b.say("s1", subjects.KindPrompt, "hi")
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeDeadLetter)
		for d, err := range b.store.DeadLetters(t.Context(), "s1") {
			if err != nil || d.Reason != reason {
				t.Errorf("the reason of %v is %+v (%v), want %s", cause, d, err, reason)
			}
		}
		b.wantDead("s1", 1)
	}
}

func TestUnknownAgentDeadLettered(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{looptest.Text("ok")}})
	b.start("w1", func(c *Config) {
		base := c.Agent
		c.Agent = func(ctx context.Context, req AgentRequest) (*Agent, error) {
			if req.Name != "" {
				return nil, fmt.Errorf("%w: %q", ErrUnknownAgent, req.Name)
			}
			return base(ctx, req)
		}
	})
	b.publish("s1", subjects.KindPrompt, &session.Input{
		Message: loop.NewUserText("hi"), Options: session.InputOptions{Agent: "nobody"},
	})
	b.say("s1", subjects.KindPrompt, "fine")
	b.wantOutcomes(b.settle("s1", 2), loop.OutcomeDeadLetter, loop.OutcomeCompleted)
	b.wantDead("s1", 1)
	b.check("s1")
}

func TestFailedModelSettlesFailed(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{
		looptest.Reply{Status: 400, Text: "no such model, key sk-verysecret"}, looptest.Text("ok"),
	}})
	b.start("w1", func(c *Config) { c.Secrets = []string{"sk-verysecret"} })
	b.say("s1", subjects.KindPrompt, "hi")
	b.say("s1", subjects.KindPrompt, "again")
	got := b.settle("s1", 2)
	b.wantOutcomes(got, loop.OutcomeFailed, loop.OutcomeCompleted)
	if !strings.Contains(got[0].ErrorMessage, "no such model") {
		t.Errorf("error %q lacks the provider's text", got[0].ErrorMessage)
	}
	if strings.Contains(b.dump("s1"), "sk-verysecret") {
		t.Errorf("a secret is in the log:\n%s", b.dump("s1"))
	}
}

func TestSecretsNeverInToolResults(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{
		looptest.Calls(looptest.Call{Name: "env"}, looptest.Call{Name: "fail"}), looptest.Text("ok"),
	}})
	leak := func(err error) *tool {
		return &tool{spec: loop.ToolSpec{Name: "env"}, run: func(context.Context, loop.Call) (loop.ToolResult, error) {
			return loop.TextResult("KEY=sk-verysecret\n"), err
		}}
	}
	fail := leak(fmt.Errorf("running with sk-verysecret: %w", context.DeadlineExceeded))
	fail.spec.Name = "fail"
	b.start("w1", withAgent(Agent{Tools: []loop.Tool{leak(nil), fail}, Secrets: []string{"sk-verysecret"}}))
	b.say("s1", subjects.KindPrompt, "hi")
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
	if log := b.dump("s1"); strings.Contains(log, "sk-verysecret") || !strings.Contains(log, secret.Placeholder) {
		t.Errorf("want the secret masked:\n%s", log)
	}
	if strings.Contains(string(b.script.Requests()[1].Body), "sk-verysecret") {
		t.Error("a secret went to the model")
	}
}

func TestPromptsInOrderNeverTwoAtOnce(t *testing.T) {
	const sessions, prompts = 20, 5
	b := newBench(t, benchOptions{})
	b.script.Otherwise(func(r *looptest.Request) looptest.Answer { return looptest.Text("answer to " + r.LastUser()) })
	for i := range 3 {
		b.start(fmt.Sprint("w", i+1), func(c *Config) { c.Sessions = 8 })
	}
	for p := range prompts {
		for s := range sessions {
			b.say(fmt.Sprint("s", s), subjects.KindPrompt, fmt.Sprint("prompt ", p))
		}
	}
	want := []string{"prompt 0", "prompt 1", "prompt 2", "prompt 3", "prompt 4"}
	for s := range sessions {
		id := fmt.Sprint("s", s)
		b.settle(id, prompts)
		b.wantUsers(id, want...)
		b.check(id)
	}
}

func TestSteerAtAnyTimeDeliveredOnce(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.script.Otherwise(func(r *looptest.Request) looptest.Answer {
		if r.LastUser() == "begin" && r.ToolResults() == 0 {
			return looptest.Calls(looptest.Call{Name: "quick"})
		}
		return looptest.Text("ok")
	})
	quick := &tool{spec: loop.ToolSpec{Name: "quick"}, run: func(context.Context, loop.Call) (loop.ToolResult, error) {
		return loop.TextResult("done"), nil
	}}
	for i := range 2 {
		b.start(fmt.Sprint("w", i+1), withAgent(Agent{Tools: []loop.Tool{quick}, Limits: Limits{Turns: 2}}))
	}
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		id := fmt.Sprint("s", round)
		n := rapid.IntRange(1, 4).Draw(rt, "steers")
		b.say(id, subjects.KindPrompt, "begin")
		want := []string{"begin"}
		for i := range n {
			sleep(t.Context(), time.Duration(rapid.IntRange(0, 12_000).Draw(rt, "pause"))*time.Microsecond)
			kind := rapid.SampledFrom([]subjects.Kind{subjects.KindSteer, subjects.KindFollowUp}).Draw(rt, "kind")
			text := fmt.Sprint("steer ", i)
			b.say(id, kind, text)
			want = append(want, text)
		}
		b.inboxEmpty(id)
		b.quiet(id)
		got := b.users(id)
		slices.Sort(got[1:])
		if !slices.Equal(got, want) {
			rt.Fatalf("delivered %q, want each of %q once\n%s", got, want, b.dump(id))
		}
		b.check(id)
	})
}

// quiet waits until the session's last run has settled.
func (b *bench) quiet(id string) {
	b.Helper()
	runs := 0
	b.watch(id, func(ev loop.Event) bool {
		switch ev.(type) {
		case *loop.AgentStart:
			runs++
		case *loop.AgentSettled:
			runs--
			_, err := b.store.NextInput(b.Context(), id, "", 0)
			return runs == 0 && err != nil && !b.openRun(id)
		}
		return false
	})
}

func (b *bench) openRun(id string) bool {
	st, err := b.store.Fold(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	return st.Transcript.Open() != nil
}

func TestSteeringModes(t *testing.T) {
	for _, c := range []struct {
		mode     QueueMode
		requests int
	}{{OneAtATime, 3}, {All, 2}, {"", 3}} {
		t.Run(string(c.mode), func(t *testing.T) {
			b := newBench(t, benchOptions{answers: []looptest.Answer{callWork}})
			b.script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("ok") })
			s := newStepping()
			b.start("w1", withAgent(Agent{Tools: []loop.Tool{s.tool}, Steering: c.mode}))
			b.say("s1", subjects.KindPrompt, "begin")
			<-s.started
			b.say("s1", subjects.KindSteer, "one")
			b.say("s1", subjects.KindSteer, "two")
			close(s.release)
			b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
			b.wantUsers("s1", "begin", "one", "two")
			if n := len(b.script.Requests()); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			b.check("s1")
		})
	}
}

func TestMalformedSteerDoesNotDisturbRun(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callWork, looptest.Text("ok")}})
	s := newStepping()
	b.start("w1", s.agent())
	b.say("s1", subjects.KindPrompt, "begin")
	<-s.started
	if _, err := b.env.JS.Publish(t.Context(), "agent.s1.steer", []byte(`{"message": broken`)); err != nil {
		t.Fatal(err)
	}
	b.say("s1", subjects.KindSteer, "a good one")
	close(s.release)
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
	b.wantUsers("s1", "begin", "a good one")
	b.wantDead("s1", 1)
	b.inboxEmpty("s1")
	b.check("s1")
}

func TestSummaryShowsWhatRuns(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{
		callWork, looptest.Reply{Text: "ok", Usage: &looptest.Usage{Input: 5, Output: 5}},
	}})
	s := newStepping()
	b.start("w1", s.agent())
	b.say("s1", subjects.KindPrompt, "begin")
	<-s.started
	b.summary(func(sum *session.Summary) bool {
		return sum.State == "running" && sum.Worker == "w1" && sum.Tool == "work" && sum.Turn == 1 && sum.Model == "scripted"
	})
	close(s.release)
	b.summary(func(sum *session.Summary) bool {
		return sum.State == "idle" && sum.Tool == "" && sum.Outcome == loop.OutcomeCompleted && sum.Tokens == 10 && sum.Prompts == 1
	})
}

// summary waits until s1's summary is as wanted.
func (b *bench) summary(want func(*session.Summary) bool) {
	b.Helper()
	var last session.Summary
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); sleep(b.Context(), 20*time.Millisecond) {
		for sum, err := range b.store.Summaries(b.Context()) {
			if err != nil {
				b.Fatal(err)
			}
			if last = *sum; want(sum) {
				return
			}
		}
	}
	b.Fatalf("the last summary is %+v", last)
}
