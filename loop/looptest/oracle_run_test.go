package looptest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// player replays one scenario and records what happens.
type player struct {
	s      *scenario
	script *looptest.Script
	cfg    *loop.Config
	agent  *loop.Agent // agent driver only

	background sync.WaitGroup // delayed actions and late steps

	mu          sync.Mutex
	aborts      context.CancelFunc
	got         expectation
	seen        map[int]int // events matched so far, by action
	executed    map[string]int
	llm         int
	lastRequest *loop.Request
	stages      []*stage // calls of the current turn
	stageDone   chan struct{}
	faults      []string
}

// stage is one call of the current turn: the order in which JavaScript would
// have run what happens at one moment.
type stage struct {
	id             string
	started, ended bool
	sleep          int
}

// recorded is a time after every recording.
var recorded = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// replay plays a scenario to its end. It is called in a synctest bubble: the
// scenario's times pass in virtual time, so that their order is certain.
func replay(t *testing.T, s *scenario) *expectation {
	// A bubble begins in the year 2000; a date in a scenario was meant for the
	// time of its recording.
	time.Sleep(time.Until(recorded)) // costs nothing: this is a bubble
	p := &player{s: s, seen: map[int]int{}, executed: map[string]int{}, stageDone: make(chan struct{})}
	p.got = expectation{Name: s.Name, Polls: map[string]int{"steering": 0, "followUp": 0}}
	answers := make([]looptest.Answer, len(s.Responses))
	for i, r := range s.Responses {
		answers[i] = r
	}
	p.script = looptest.NewMemoryScript(answers...)
	defer p.script.Close()
	p.script.OnRequest(p.onRequest)
	if s.Divergence != nil {
		// Where pi made fewer requests than it should have.
		p.script.Otherwise(func(*looptest.Request) looptest.Answer { return looptest.Text("(more)") })
	}
	if err := p.configure(); err != nil {
		t.Fatal(err)
	}
	limit := s.TimeoutMS
	if limit == 0 {
		limit = 15000
	}
	ctx, cancel := context.WithTimeout(t.Context(), ms(limit))
	defer cancel()
	p.play(ctx, t)
	if ctx.Err() != nil {
		p.fault("the run did not end within %d ms", limit)
	}
	time.Sleep(ms(s.SettleMS)) // what comes late must not be recorded
	p.background.Wait()
	p.finish(t)
	return &p.got
}

func (p *player) fault(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fmt.Sprintf(format, args...))
}

func (p *player) trace(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got.Trace = append(p.got.Trace, fmt.Sprintf(format, args...))
}

// play runs the scenario's runs with its driver.
func (p *player) play(ctx context.Context, t *testing.T) {
	history, err := parseMessages(p.s.Messages)
	if err != nil {
		t.Fatal(err)
	}
	switch p.s.Driver {
	case "agent":
		p.playAgent(ctx, t, history)
	case "loop", "stream":
		p.playLoop(ctx, t, history)
	default:
		t.Fatalf("unknown driver %q", p.s.Driver)
	}
}

func (p *player) playLoop(ctx context.Context, t *testing.T, history []loop.Message) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.setAbort(cancel)
	p.before()
	// The spare room would show an append to the caller's list.
	history = slices.Grow(history, 8)
	run := p.sequence(t, p.s.Mode, p.s.Prompts,
		func(prompts []loop.Message) iter.Seq2[loop.Event, error] {
			return loop.Run(ctx, p.cfg, history, prompts...)
		},
		func() iter.Seq2[loop.Event, error] { return loop.Continue(ctx, p.cfg, history) })
	p.consume(run)
	for i, m := range history[:cap(history)][len(history):] {
		if m != nil {
			p.fault("message %d was appended to the caller's list", len(history)+i)
		}
	}
	n := float64(len(history))
	p.got.CallerContext = map[string]any{"messagesBefore": n, "messagesAfter": n}
}

func (p *player) playAgent(ctx context.Context, t *testing.T, history []loop.Message) {
	p.agent = loop.NewAgent(loop.AgentConfig{
		Config: *p.cfg, Messages: history,
		SteeringMode: loop.QueueMode(p.s.Options.SteeringMode), FollowUpMode: loop.QueueMode(p.s.Options.FollowUpMode),
		Polled: func(queue string, n int) { p.polled(queue, fmt.Sprint(n)) },
	})
	p.setAbort(p.agent.Abort)
	p.before()
	runs := append([]thenRun{{p.s.Mode, p.s.Prompts}}, p.s.ThenRuns...)
	for i, r := range runs {
		if i > 0 {
			p.trace("run:%d", i+1)
		}
		p.consume(p.sequence(t, r.Mode, r.Prompts,
			func(prompts []loop.Message) iter.Seq2[loop.Event, error] { return p.agent.Prompt(ctx, prompts...) },
			func() iter.Seq2[loop.Event, error] { return p.agent.Continue(ctx) }))
		if len(runs) > 1 {
			p.got.Runs = append(p.got.Runs, runOutcome{p.got.Outcome, p.got.Error})
		}
	}
}

func (p *player) sequence(t *testing.T, mode string, raw []json.RawMessage, prompt func([]loop.Message) iter.Seq2[loop.Event, error], cont func() iter.Seq2[loop.Event, error]) iter.Seq2[loop.Event, error] {
	switch mode {
	case "prompt":
		prompts, err := parseMessages(raw)
		if err != nil {
			t.Fatal(err)
		}
		return prompt(prompts)
	case "continue":
		return cont()
	}
	t.Fatalf("unknown mode %q", mode)
	return nil
}

// consume reads one run.
func (p *player) consume(run iter.Seq2[loop.Event, error]) {
	p.got.Outcome, p.got.Error = "ok", ""
	for ev, err := range run {
		if err != nil {
			p.got.Outcome, p.got.Error = "throw", err.Error()
			continue
		}
		p.event(ev)
	}
}

// event records an event and does the actions that wait for it.
func (p *player) event(ev loop.Event) {
	typ := ev.EventType()
	switch typ {
	case "auto_retry_start", "auto_retry_end":
		return // ours; pi's client library retries in silence
	}
	p.stageEvent(ev)
	p.mu.Lock()
	p.got.Events = append(p.got.Events, normalEvent(ev))
	p.mu.Unlock()
	role, update := eventRole(ev), ""
	if u, ok := ev.(*loop.MessageUpdate); ok {
		update = string(u.Update.Type)
	}
	p.trace("%s", traceName(ev, role, update))
	if end, ok := ev.(*loop.AgentEnd); ok && p.agent == nil {
		p.got.Messages = normalMessages(end.Messages)
	}
	for i := range p.s.Actions {
		w := p.s.Actions[i].When.Event
		if w == nil || w.Type != typ || (w.Role != "" && w.Role != role) || (w.Update != "" && w.Update != update) {
			continue
		}
		if p.seen[i]++; p.seen[i] == max(w.Count, 1) {
			p.do(&p.s.Actions[i], p.s.Actions[i].When.AfterMS)
		}
	}
}

func traceName(ev loop.Event, role, update string) string {
	typ := ev.EventType()
	switch ev := ev.(type) {
	case *loop.MessageStart, *loop.MessageEnd:
		return typ + ":" + role
	case *loop.MessageUpdate:
		return typ + ":" + update
	case *loop.ToolExecutionStart:
		return typ + ":" + ev.ToolCallID
	case *loop.ToolExecutionUpdate:
		return typ + ":" + ev.ToolCallID
	case *loop.ToolExecutionEnd:
		return typ + ":" + ev.ToolCallID
	}
	return typ
}

func eventRole(ev loop.Event) string {
	switch ev := ev.(type) {
	case *loop.MessageStart:
		return ev.Message.Role()
	case *loop.MessageEnd:
		return ev.Message.Role()
	case *loop.MessageUpdate:
		return loop.RoleAssistant
	case *loop.TurnEnd:
		return ev.Message.Role()
	}
	return ""
}

func (p *player) setAbort(abort context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.aborts = abort
}

func (p *player) before() {
	for i := range p.s.Actions {
		a := &p.s.Actions[i]
		if a.When.Before != nil {
			p.do(a, a.When.AfterMS)
		}
	}
}

func (p *player) onRequest(r *looptest.Request) {
	for i := range p.s.Actions {
		a := &p.s.Actions[i]
		if w := a.When.Request; w != nil && w.Number == r.Number {
			p.do(a, w.AfterMS+a.When.AfterMS)
		}
	}
}

// do performs an action, now or after a delay.
func (p *player) do(a *action, afterMS int) {
	if afterMS == 0 {
		p.doNow(a)
		return
	}
	p.background.Go(func() {
		time.Sleep(ms(afterMS)) // the scenario's own delay
		p.doNow(a)
	})
}

func (p *player) doNow(a *action) {
	switch a.Do {
	case "abort":
		p.trace("abort")
		p.mu.Lock()
		abort := p.aborts
		p.mu.Unlock()
		abort()
	case "steer", "followUp":
		p.trace("action:%s", a.Do)
		m, err := loop.ParseMessage(a.Message)
		if err != nil {
			p.fault("action %s: %v", a.Do, err)
			return
		}
		if a.Do == "steer" {
			p.agent.Steer(m)
		} else {
			p.agent.FollowUp(m)
		}
	case "clearAll":
		p.trace("action:clearAll")
		p.agent.ClearQueues()
	case "setSteeringMode":
		p.trace("action:setSteeringMode:%s", a.Value)
		p.agent.SetSteeringMode(loop.QueueMode(a.Value))
	case "prompt":
		p.trace("action:prompt")
		prompts, err := parseMessages(a.Prompts)
		if err != nil {
			p.fault("action prompt: %v", err)
		}
		p.expectError(p.agent.Prompt(context.Background(), prompts...))
	case "continue":
		p.trace("action:continue")
		p.expectError(p.agent.Continue(context.Background()))
	default:
		p.fault("unknown action %q", a.Do)
	}
}

func (p *player) expectError(run iter.Seq2[loop.Event, error]) {
	for _, err := range run {
		if err == nil {
			p.fault("an action began a run")
			return
		}
		p.mu.Lock()
		p.got.ActionErrors = append(p.got.ActionErrors, err.Error())
		p.mu.Unlock()
	}
}

func (p *player) polled(queue, answer string) {
	p.trace("poll:%s->%s", queue, answer)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got.Polls[queue]++
}

// finish adds what is known only at the end.
func (p *player) finish(t *testing.T) {
	for _, r := range p.script.Requests() {
		p.got.Requests = append(p.got.Requests, recordRequest(r, p.s))
	}
	if p.agent != nil {
		st := p.agent.State()
		p.got.AgentState = map[string]any{
			"messages": normalMessages(st.Messages), "errorMessage": nil, "isStreaming": st.Running,
			"pendingToolCalls": toAny(st.PendingToolCalls), "hasQueuedMessages": st.Queued,
		}
		if st.ErrorMessage != "" {
			p.got.AgentState["errorMessage"] = st.ErrorMessage
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		t.Error(f)
	}
}

func toAny(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// recordRequest keeps what the oracle records of a request.
func recordRequest(r *looptest.Request, s *scenario) request {
	out := request{Method: r.Method, Path: r.Path, Headers: map[string]string{}}
	for name := range r.Header {
		key := strings.ToLower(name)
		_, extra := s.Options.Headers[key]
		switch {
		case key == "authorization", key == "content-type", strings.Contains(key, "session"), key == "x-client-request-id", extra:
			out.Headers[key] = r.Header.Get(name)
		}
	}
	for name := range s.Options.Headers {
		if v := r.Header.Get(name); v != "" {
			out.Headers[strings.ToLower(name)] = v
		}
	}
	if err := json.Unmarshal(r.Body, &out.Body); err != nil {
		out.Body = "not JSON: " + err.Error()
	}
	return out
}
