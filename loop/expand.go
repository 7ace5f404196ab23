package loop

// Expander turns the log's events into pi's: it fills in the message so far,
// the content of a message_start that was not streamed, the arguments of a
// tool's progress, turn_end's message and results, agent_end's messages. The
// zero value begins at the start of a log or of a run; [NewExpander] begins
// behind a transcript. Events in pi's form pass unchanged but for what they lack.
type Expander struct {
	t    Transcript
	held *MessageStart
	args map[string][]byte // arguments of the running tools
	out  [2]Event
}

// NewExpander returns an Expander for the events that follow the transcript.
func NewExpander(after *Transcript) *Expander {
	if after == nil {
		return new(Expander)
	}
	return &Expander{t: *after.Clone()}
}

// Expand returns pi's events for one event of the log. The result has no
// event for a message_start whose content is not known yet, two for the
// message_end that brings it, otherwise one. It is reused by the next call.
// So is the Partial of a message_update: copy what is kept.
func (x *Expander) Expand(ev Event) ([]Event, error) {
	out := x.out[:0]
	if x.held != nil {
		start := *x.held
		x.held = nil
		if end, ok := ev.(*MessageEnd); ok && end.Message != nil && end.Message.Role() == start.Message.Role() {
			start.Message = end.Message
		}
		out = append(out, &start)
	}
	turnEnd, agentEnd := x.ends(ev)
	if err := x.t.Apply(ev); err != nil {
		return out, err
	}
	switch e := ev.(type) {
	case *AgentStart:
		x.forget()
	case *MessageStart:
		if lacksContent(e.Message) {
			x.held = e
			return out, nil
		}
	case *MessageUpdate:
		ev = x.update(e)
	case *ToolExecutionStart:
		if x.args == nil {
			x.args = make(map[string][]byte)
		}
		x.args[e.ToolCallID] = e.Args
	case *ToolExecutionUpdate:
		if args, ok := x.args[e.ToolCallID]; ok && e.Args == nil {
			full := *e
			full.Args = args
			ev = &full
		}
	case *ToolExecutionEnd:
		delete(x.args, e.ToolCallID)
	case *TurnEnd:
		ev = turnEnd
	case *AgentEnd:
		ev = agentEnd
	}
	return append(out, ev), nil
}

// Flush returns the message_start that is held back, as far as it is known,
// when no more events come.
func (x *Expander) Flush() []Event {
	if x.held == nil {
		return nil
	}
	out := append(x.out[:0], x.held)
	x.held = nil
	return out
}

// forget drops the messages of earlier runs, which no later event repeats.
func (x *Expander) forget() {
	x.t.messages, x.t.summary, x.t.from = nil, nil, 0
	x.t.run.base = 0
	clear(x.args)
}

// lacksContent says that a message_start will get its content by its
// message_end. The one of a streamed answer never does.
func lacksContent(m Message) bool {
	switch m := m.(type) {
	case *UserMessage:
		return m.Content == nil
	case *ToolResultMessage:
		return m.Content == nil
	case *AssistantMessage:
		return m.StopReason != "" && m.Content == nil
	case *CustomMessage:
		s := scanner{b: m.Raw}
		members := 0
		for s.open('{'); s.next('}'); members++ {
			s.key()
			s.skip()
		}
		return members == 1 // the role alone
	}
	return false
}

func (x *Expander) update(e *MessageUpdate) *MessageUpdate {
	full := &MessageUpdate{Update: e.Update, Partial: e.Partial}
	d := x.t.run.draft
	d.complete(&full.Update)
	if full.Partial == nil {
		full.Partial = &d.message
	}
	return full
}

// ends fills in what the ends of turn and run repeat. It looks at the state
// before the event.
func (x *Expander) ends(ev Event) (*TurnEnd, *AgentEnd) {
	r := x.t.run
	switch e := ev.(type) {
	case *TurnEnd:
		full := *e
		if r != nil && e.Message == nil {
			if r.assistant != nil {
				full.Message = r.assistant
			}
			full.ToolResults = r.results
		}
		return &full, nil
	case *AgentEnd:
		full := *e
		if e.Messages == nil {
			full.Messages = x.t.runMessages()
		}
		return nil, &full
	}
	return nil, nil
}
