package looptest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// configure builds the loop's configuration from the scenario.
func (p *player) configure() error {
	s, o := p.s, &p.s.Options
	model, err := s.model(p.script)
	if err != nil {
		return err
	}
	p.cfg = &loop.Config{
		Model: &tracedModel{Model: model, p: p}, SystemPrompt: s.SystemPrompt,
		ToolExecution: loop.ExecutionMode(o.ToolExecution),
		Options:       loop.ModelOptions{SessionID: o.SessionID, Reasoning: o.Reasoning, APIKey: "test"},
		Retry:         loop.RetryPolicy{MaxRetries: 2, BaseDelay: ms(20), MaxDelay: ms(40)},
		CallKey:       func(turn, position int) string { return strconv.Itoa(position) },
	}
	if o.APIKey.set {
		p.cfg.Options.APIKey = ""
		if o.APIKey.value != nil {
			p.cfg.Options.APIKey = *o.APIKey.value
		}
	}
	if s.Driver != "agent" {
		p.cfg.Options.Temperature = o.Temperature
		p.cfg.Options.CacheRetention = o.CacheRetention
		p.cfg.Options.Headers = o.Headers
		if o.MaxTokens != nil {
			p.cfg.Options.MaxTokens = *o.MaxTokens
		}
		if o.MaxRetries != nil {
			p.cfg.Retry.MaxRetries = *o.MaxRetries
		}
	}
	if s.Tools != nil {
		p.cfg.Tools = []loop.Tool{}
		for i := range s.Tools {
			p.cfg.Tools = append(p.cfg.Tools, p.tool(&s.Tools[i]))
		}
	}
	p.toolHooks()
	p.queueHooks()
	return p.contextHooks()
}

// tracedModel notes each model call.
type tracedModel struct {
	loop.Model
	p *player
}

func (m *tracedModel) Stream(ctx context.Context, req *loop.Request) iter.Seq2[*loop.Update, error] {
	// Attempts of one call have the same request.
	if m.p.lastRequest != req {
		m.p.lastRequest = req
		m.p.llm++
		m.p.trace("llm:%d", m.p.llm)
	}
	return m.Model.Stream(ctx, req)
}

// scriptedTool plays a toolScript.
type scriptedTool struct {
	p *player
	t *toolScript
}

// preparingTool is a scriptedTool that rewrites its arguments.
type preparingTool struct{ *scriptedTool }

func (p *player) tool(t *toolScript) loop.Tool {
	st := &scriptedTool{p, t}
	if t.PrepareArguments != nil {
		return &preparingTool{st}
	}
	return st
}

func (t *scriptedTool) Spec() loop.ToolSpec {
	return loop.ToolSpec{
		Name: t.t.Name, Description: t.t.Description, Parameters: t.t.Parameters,
		ExecutionMode: loop.ExecutionMode(t.t.ExecutionMode),
	}
}

func (t *preparingTool) PrepareArguments(args json.RawMessage) (json.RawMessage, error) {
	prep := t.t.PrepareArguments
	if prep.Throw != nil {
		return nil, errors.New(*prep.Throw)
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(args, &m); err != nil {
		return nil, err
	}
	for from, to := range prep.Rename {
		if v, ok := m[from]; ok {
			delete(m, from)
			m[to] = v
		}
	}
	return json.Marshal(m)
}

func (t *scriptedTool) Execute(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
	p := t.p
	n, cs, st := t.begin(ctx, call)
	// In the bubble time passes when nobody can go on: all calls of the batch
	// have begun then, as they would have in JavaScript.
	time.Sleep(1 * time.Nanosecond) // of the bubble
	for i := range p.s.Actions {
		a := &p.s.Actions[i]
		if w := a.When.Tool; w != nil && w.Tool == t.t.Name && max(w.Call, 1) == n {
			p.do(a, w.AfterMS+a.When.AfterMS)
		}
	}
	defer func() {
		if len(cs.Late) > 0 {
			p.background.Go(func() { p.steps(context.Background(), &callScript{Steps: cs.Late}, update) })
		}
	}()
	res, err := p.steps(ctx, cs, update)
	if ctx.Err() == nil {
		p.waitStage(ctx, func(earlier *stage) bool { return earlier.sleep != st.sleep || earlier.ended }, st)
	}
	return res, err
}

// begin records the start of an execution, in the order of the calls.
func (t *scriptedTool) begin(ctx context.Context, call loop.Call) (n int, cs *callScript, st *stage) {
	p := t.p
	pos, _ := strconv.Atoi(call.Key)
	p.mu.Lock()
	st = p.stages[pos]
	p.mu.Unlock()
	p.waitStage(ctx, func(earlier *stage) bool { return earlier.started || earlier.ended }, st)
	p.mu.Lock()
	p.executed[t.t.Name]++
	n = p.executed[t.t.Name]
	if len(t.t.Calls) == 0 {
		p.faults = append(p.faults, fmt.Sprintf("tool %s was executed and has no calls", t.t.Name))
		t.t.Calls = []callScript{{}}
	}
	cs = &t.t.Calls[min(n, len(t.t.Calls))-1]
	for _, s := range cs.Steps {
		st.sleep += s.SleepMS
	}
	st.started = true
	p.stageChanged()
	p.got.Trace = append(p.got.Trace, fmt.Sprintf("exec:%s:%s", t.t.Name, call.ID))
	p.got.ToolExecutions = append(p.got.ToolExecutions, map[string]any{
		"tool": t.t.Name, "call": float64(n), "toolCallId": call.ID,
		"args": decoded(call.Args), "signalAborted": ctx.Err() != nil,
	})
	p.mu.Unlock()
	return n, cs, st
}

// waitStage waits until ok holds for all earlier calls of the turn: things
// that happen at one moment then happen in the order of the calls.
func (p *player) waitStage(ctx context.Context, ok func(*stage) bool, st *stage) {
	for {
		p.mu.Lock()
		ready, changed := true, p.stageDone
		for _, earlier := range p.stages {
			if earlier == st {
				break
			}
			ready = ready && ok(earlier)
		}
		p.mu.Unlock()
		if ready {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// stageChanged wakes those who wait; p.mu is held.
func (p *player) stageChanged() {
	close(p.stageDone)
	p.stageDone = make(chan struct{})
}

func (p *player) stageEvent(ev loop.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch ev := ev.(type) {
	case *loop.TurnStart:
		p.stages = nil
	case *loop.ToolExecutionStart:
		p.stages = append(p.stages, &stage{id: ev.ToolCallID})
	case *loop.ToolExecutionEnd:
		for _, st := range p.stages {
			if st.id == ev.ToolCallID && !st.ended {
				st.ended = true
				break
			}
		}
	}
	p.stageChanged()
}

func (p *player) steps(ctx context.Context, cs *callScript, update func(loop.ToolResult)) (loop.ToolResult, error) {
	for _, s := range cs.Steps {
		switch {
		case s.Update != nil:
			update(p.result(s.Update))
		case s.Return != nil:
			return p.result(s.Return), nil
		case s.Throw != nil:
			return loop.ToolResult{}, errors.New(*s.Throw)
		default:
			var aborted <-chan struct{}
			if cs.OnAbort == "reject" {
				aborted = ctx.Done()
			}
			select {
			case <-time.After(ms(s.SleepMS)):
			case <-aborted:
				if cs.AbortError == "" {
					return loop.ToolResult{}, errors.New("Aborted by signal")
				}
				return loop.ToolResult{}, errors.New(cs.AbortError)
			}
		}
	}
	return loop.ToolResult{}, nil
}

func (p *player) result(raw json.RawMessage) loop.ToolResult {
	var res loop.ToolResult
	if err := json.Unmarshal(raw, &res); err != nil {
		p.fault("tool result: %v", err)
	}
	return res
}

func (p *player) hookCall(call map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got.HookCalls = append(p.got.HookCalls, call)
}

func (p *player) toolHooks() {
	h := &p.s.Hooks
	if h.BeforeToolCall != nil {
		p.cfg.BeforeToolCall = p.beforeToolCall
	}
	if h.AfterToolCall != nil {
		p.cfg.AfterToolCall = p.afterToolCall
	}
	if h.ShouldStopAfterTurn == nil {
		return
	}
	calls := 0
	p.cfg.ShouldStopAfterTurn = func(_ context.Context, a *loop.AfterTurn) (bool, error) {
		answers := *h.ShouldStopAfterTurn
		calls++
		stop := calls <= len(answers) && answers[calls-1]
		p.trace("shouldStop->%t", stop)
		p.hookCall(map[string]any{
			"hook": "shouldStopAfterTurn", "stopReason": string(a.Assistant.StopReason),
			"toolResults": float64(len(a.ToolResults)), "newMessages": float64(len(a.NewMessages)),
			"contextMessages": float64(len(a.Context)), "answer": stop,
		})
		return stop, nil
	}
}

func (p *player) beforeToolCall(ctx context.Context, b *loop.BeforeToolCall) (loop.BeforeDecision, error) {
	p.trace("before:%s", b.ToolCall.ID)
	p.hookCall(map[string]any{
		"hook": "beforeToolCall", "toolCallId": b.ToolCall.ID, "toolName": b.ToolCall.Name,
		"rawArgs": decoded(b.ToolCall.Arguments), "args": decoded(b.Args), "contextMessages": float64(len(b.Context)),
	})
	rules := *p.s.Hooks.BeforeToolCall
	i := slices.IndexFunc(rules, func(r beforeRule) bool { return r.Tool == "" || r.Tool == b.ToolCall.Name })
	if i < 0 {
		return loop.BeforeDecision{}, nil
	}
	r := &rules[i]
	time.Sleep(ms(r.DelayMS)) // the scenario's own delay
	if r.Abort {
		p.trace("abort")
		p.aborts()
	}
	if r.Throw != nil {
		return loop.BeforeDecision{}, errors.New(*r.Throw)
	}
	d := loop.BeforeDecision{Block: r.Block != nil && *r.Block, Reason: r.Reason}
	if r.SetArgs != nil {
		args := map[string]json.RawMessage{}
		if err := json.Unmarshal(b.Args, &args); err != nil {
			return d, err
		}
		maps.Copy(args, r.SetArgs)
		d.Args, _ = json.Marshal(args)
	}
	return d, nil
}

func (p *player) afterToolCall(_ context.Context, a *loop.AfterToolCall) (*loop.ResultOverride, error) {
	p.trace("after:%s", a.ToolCall.ID)
	p.hookCall(map[string]any{
		"hook": "afterToolCall", "toolCallId": a.ToolCall.ID, "toolName": a.ToolCall.Name,
		"args": decoded(a.Args), "result": normalResult(a.Result), "isError": a.IsError,
		"contextMessages": float64(len(a.Context)),
	})
	rules := *p.s.Hooks.AfterToolCall
	i := slices.IndexFunc(rules, func(r afterRule) bool { return r.Tool == "" || r.Tool == a.ToolCall.Name })
	if i < 0 {
		return nil, nil
	}
	r := &rules[i]
	if r.Throw != nil {
		return nil, errors.New(*r.Throw)
	}
	o := &loop.ResultOverride{Details: r.Details, IsError: r.IsError, Terminate: r.Terminate}
	if r.Content != nil {
		o.Content = p.result(fmt.Appendf(nil, `{"content":%s}`, r.Content)).Content
		if o.Content == nil {
			o.Content = []loop.Block{}
		}
	}
	return o, nil
}

func (p *player) queueHooks() {
	queue := func(name string, answers []pollAnswer) func(context.Context) ([]loop.Message, error) {
		n := 0
		return func(context.Context) ([]loop.Message, error) {
			n++
			var a pollAnswer
			if n <= len(answers) {
				a = answers[n-1]
			}
			if a.throw != nil {
				p.polled(name, "throw")
				return nil, errors.New(*a.throw)
			}
			p.polled(name, strconv.Itoa(len(a.messages)))
			return a.messages, nil
		}
	}
	if h := p.s.Hooks.Steering; h != nil {
		p.cfg.Steering = queue("steering", *h)
	}
	if h := p.s.Hooks.FollowUp; h != nil {
		p.cfg.FollowUp = queue("followUp", *h)
	}
}

func (p *player) contextHooks() error {
	h := &p.s.Hooks
	if h.ConvertToLLM != nil {
		if k := h.ConvertToLLM.Kind; k != "default" && k != "customToUser" {
			return fmt.Errorf("unknown convertToLlm kind %q", k)
		}
		calls := 0
		p.cfg.ConvertToLLM = func(_ context.Context, messages []loop.Message) ([]loop.Message, error) {
			calls++
			if calls == h.ConvertToLLM.ThrowOnCall {
				return nil, errors.New(h.ConvertToLLM.Throw)
			}
			return convertMessages(h.ConvertToLLM, messages)
		}
	}
	if h.TransformContext != nil {
		extra, err := parseMessages(h.TransformContext.Append)
		if err != nil {
			return err
		}
		p.cfg.TransformContext = func(_ context.Context, messages []loop.Message) ([]loop.Message, error) {
			before := len(messages)
			if k := h.TransformContext.KeepLast; k != nil {
				messages = messages[max(0, len(messages)-*k):]
			}
			messages = append(messages, extra...)
			p.trace("transform:%d->%d", before, len(messages))
			return messages, nil
		}
	}
	if h.APIKeys == nil && p.cfg.Options.APIKey == "" {
		// pi's provider demands a key; here that is the caller's to do.
		p.cfg.APIKey = func(_ context.Context, provider string) (string, error) {
			return "", fmt.Errorf("No API key for provider: %s", provider)
		}
	}
	if h.APIKeys != nil {
		calls := 0
		p.cfg.APIKey = func(_ context.Context, provider string) (string, error) {
			p.trace("apiKey:%s", provider)
			keys := *h.APIKeys
			calls++
			if len(keys) == 0 || keys[min(calls, len(keys))-1] == nil {
				return "", nil
			}
			return *keys[min(calls, len(keys))-1], nil
		}
	}
	return nil
}

func convertMessages(c *convertScript, messages []loop.Message) ([]loop.Message, error) {
	var out []loop.Message
	for _, m := range messages {
		custom, ok := m.(*loop.CustomMessage)
		if !ok {
			out = append(out, m)
			continue
		}
		if !slices.Contains(c.Roles, custom.CustomRole) {
			continue
		}
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(custom.Raw, &fields); err != nil {
			return nil, err
		}
		fields["role"] = json.RawMessage(`"user"`)
		asUser, err := json.Marshal(fields)
		if err != nil {
			return nil, err
		}
		user, err := loop.ParseMessage(asUser)
		if err != nil {
			return nil, err
		}
		out = append(out, user)
	}
	return out, nil
}
