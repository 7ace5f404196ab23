package loop

import (
	"fmt"
	"time"
)

// ParseWire reads one event, in the form of the log or in pi's full form. An
// event, or an update of a message, whose type is not known becomes an
// [UnknownEvent] that keeps the bytes. The result does not point into line.
func ParseWire(line []byte) (Event, error) {
	s := scanner{b: line}
	kind, _ := s.lookAhead("type")
	var ev Event
	if s.err == nil {
		ev = s.event(kind)
		s.end()
	}
	if s.err != nil {
		if kind == "" {
			kind = "event"
		}
		return nil, fmt.Errorf("%s: %w", kind, s.err)
	}
	return ev, nil
}

// ParseEvent reads one event in either form, as [ParseWire] does.
func ParseEvent(b []byte) (Event, error) { return ParseWire(b) }

func (s *scanner) event(kind string) Event {
	switch kind {
	case "message_update":
		return s.messageUpdate()
	case "message_start":
		m := s.messageMember(false)
		return &MessageStart{Message: m}
	case "message_end":
		m := s.messageMember(true)
		return &MessageEnd{Message: m}
	case "agent_start":
		s.skip()
		return &AgentStart{}
	case "turn_start":
		s.skip()
		return &TurnStart{}
	case "turn_end":
		return s.turnEnd()
	case "agent_end":
		return s.agentEnd()
	case "tool_execution_start", "tool_execution_update", "tool_execution_end":
		return s.toolEvent(kind)
	}
	if ev := s.ownEvent(kind); ev != nil {
		return ev
	}
	return &UnknownEvent{Type: kind, Raw: s.raw()}
}

// messageMember reads an event that has nothing but a message.
func (s *scanner) messageMember(whole bool) (m Message) {
	for s.open('{'); s.next('}'); {
		if string(s.key()) != "message" {
			s.skip()
			continue
		}
		m = s.message(whole)
		s.within("message")
	}
	s.need(m != nil, "message")
	return m
}

func (s *scanner) messageUpdate() Event {
	start := *s
	e := new(MessageUpdate)
	var partial, message []byte
	has := false
	for s.open('{'); s.next('}'); {
		switch string(s.key()) {
		case "assistantMessageEvent":
			has = true
			var known bool
			if partial, known = s.update(&e.Update); !known && s.err == nil {
				*s = start
				return &UnknownEvent{Type: "message_update", Raw: s.raw()}
			}
		case "message":
			message = s.span()
		default:
			s.skip()
		}
	}
	s.need(has, "assistantMessageEvent")
	if partial == nil {
		partial = message
	}
	if partial != nil && s.err == nil {
		e.Partial = s.partial(partial)
		e.namePartialCall()
	}
	return e
}

// partial reads the message so far.
func (s *scanner) partial(b []byte) *AssistantMessage {
	inner := scanner{b: b}
	m := inner.message(false)
	if inner.err != nil {
		s.fail("partial: %w", inner.err)
		return nil
	}
	a, ok := m.(*AssistantMessage)
	if !ok {
		s.fail("partial: role %q", m.Role())
	}
	return a
}

// namePartialCall takes the call's id and name, which pi's full form has in
// the message only.
func (e *MessageUpdate) namePartialCall() {
	u := &e.Update
	if u.Type != UpdateToolCallStart || u.ToolCall != nil || e.Partial == nil || uint(u.ContentIndex) >= uint(len(e.Partial.Content)) {
		return
	}
	if c, ok := e.Partial.Content[u.ContentIndex].(*ToolCall); ok {
		u.ToolCall = &ToolCall{ID: c.ID, Name: c.Name}
	}
}

// update reads an assistantMessageEvent; known is false for a type that this
// version does not know, of which nothing was read.
func (s *scanner) update(u *Update) (partial []byte, known bool) {
	kind, ok := s.lookAhead("type")
	if !ok {
		s.within("assistantMessageEvent")
		return nil, true
	}
	if u.Type, known = updateType(kind); !known {
		return nil, false
	}
	for s.open('{'); s.next('}'); {
		switch string(s.key()) {
		case "contentIndex":
			u.ContentIndex = int(s.int())
		case "delta":
			u.Delta = s.delta()
		case "content":
			u.Content = s.string()
			u.Revised = true
		case "toolCall":
			u.ToolCall = s.toolCall(false)
			u.Revised = u.ToolCall.Arguments != nil
		case "partial":
			partial = s.span()
		case "message", "error":
			m := s.message(false)
			u.Message, _ = m.(*AssistantMessage)
		default:
			s.skip()
		}
	}
	s.within("assistantMessageEvent")
	return partial, true
}

// delta reads a piece of text. Some servers send arguments as an object,
// which pi passes on: its JSON is the piece then.
func (s *scanner) delta() string {
	if s.peek() == '{' || s.peek() == '[' {
		return string(appendCompact(nil, s.span()))
	}
	return s.string()
}

func updateType(kind string) (UpdateType, bool) {
	switch t := UpdateType(kind); t {
	case UpdateStart, UpdateTextStart, UpdateTextDelta, UpdateTextEnd,
		UpdateThinkingStart, UpdateThinkingDelta, UpdateThinkingEnd,
		UpdateToolCallStart, UpdateToolCallDelta, UpdateToolCallEnd,
		UpdateDone, UpdateError:
		return t, true
	}
	return "", false
}

func (s *scanner) turnEnd() Event {
	e := new(TurnEnd)
	for s.open('{'); s.next('}'); {
		switch string(s.key()) {
		case "message":
			if !s.null() {
				e.Message = s.message(true)
			}
		case "toolResults":
			for s.open('['); s.next(']'); {
				m := s.message(true)
				r, ok := m.(*ToolResultMessage)
				if !ok && s.err == nil {
					s.fail("toolResults: role %q", m.Role())
				}
				e.ToolResults = append(e.ToolResults, r)
			}
		case "usage":
			e.Usage = new(Usage)
			s.usage(e.Usage)
		default:
			s.skip()
		}
	}
	return e
}

func (s *scanner) agentEnd() Event {
	e := new(AgentEnd)
	for s.open('{'); s.next('}'); {
		switch string(s.key()) {
		case "messages":
			e.Messages = s.messages()
		case "usage":
			e.Usage = new(Usage)
			s.usage(e.Usage)
		case "willContinue":
			e.WillContinue = s.bool()
		default:
			s.skip()
		}
	}
	return e
}

func (s *scanner) toolEvent(kind string) Event {
	var all struct {
		ToolExecutionUpdate
		result  ToolResult
		isError bool
	}
	hasID := false
	for s.open('{'); s.next('}'); {
		switch string(s.key()) {
		case "toolCallId":
			hasID = true
			all.ToolCallID = s.string()
		case "toolName":
			all.ToolName = s.string()
		case "args":
			all.Args = s.raw()
		case "partialResult":
			all.PartialResult = s.toolResult()
			s.within("partialResult")
		case "result":
			all.result = s.toolResult()
			s.within("result")
		case "isError":
			all.isError = s.bool()
		default:
			s.skip()
		}
	}
	s.need(hasID, "toolCallId")
	switch kind {
	case "tool_execution_start":
		return &ToolExecutionStart{ToolCallID: all.ToolCallID, ToolName: all.ToolName, Args: all.Args}
	case "tool_execution_end":
		return &ToolExecutionEnd{ToolCallID: all.ToolCallID, ToolName: all.ToolName, Result: all.result, IsError: all.isError}
	}
	e := all.ToolExecutionUpdate
	return &e
}

// ownEvent reads the product's own events; nil if kind is none of them.
func (s *scanner) ownEvent(kind string) Event {
	switch kind {
	case "session_claimed":
		o := s.ownership()
		return &SessionClaimed{Worker: o.worker, Epoch: o.epoch}
	case "run_released":
		o := s.ownership()
		return &RunReleased{Worker: o.worker, Reason: o.reason}
	case "run_lost":
		o := s.ownership()
		return &RunLost{Worker: o.worker, Epoch: o.epoch, Since: o.since}
	case "lease_lost":
		o := s.ownership()
		return &LeaseLost{Worker: o.worker, Epoch: o.epoch, Reason: o.reason}
	case "run_resumed":
		return s.runResumed()
	case "message_discarded":
		return s.messageDiscarded()
	case "input_returned":
		return s.inputReturned()
	case "auto_retry_start":
		return s.autoRetryStart()
	case "auto_retry_end":
		return s.autoRetryEnd()
	case "compaction_start":
		return s.compactionStart()
	case "compaction_end":
		return s.compactionEnd()
	case "approval_requested":
		return s.approvalRequested()
	case "approval_answered":
		return s.approvalAnswered()
	case "tools_changed":
		return s.toolsChanged()
	case "workspace_saved":
		return s.workspaceSaved()
	case "workspace_unsaved":
		return s.workspaceUnsaved()
	case "waiting":
		return s.waiting()
	case "agent_settled":
		return s.agentSettled()
	}
	return nil
}

// ownership are the members of the events about who has a session.
type ownership struct {
	worker, epoch, reason string
	since                 int64
}

func (s *scanner) ownership() (o ownership) {
	s.members(func(key string) bool {
		switch key {
		case "worker":
			o.worker = s.string()
		case "epoch":
			o.epoch = s.string()
		case "reason":
			o.reason = s.string()
		case "since":
			o.since = s.int()
		default:
			return false
		}
		return true
	})
	return o
}

func (s *scanner) runResumed() Event {
	e := new(RunResumed)
	s.members(func(key string) bool {
		switch key {
		case "attempt":
			e.Attempt = int(s.int())
		case "reason":
			e.Reason = s.string()
		default:
			return false
		}
		return true
	})
	return e
}

func (s *scanner) messageDiscarded() Event {
	e := new(MessageDiscarded)
	s.members(func(key string) bool {
		switch key {
		case "attempt":
			e.Attempt = int(s.int())
		case "reason":
			e.Reason = s.string()
		default:
			return false
		}
		return true
	})
	return e
}

func (s *scanner) autoRetryEnd() Event {
	e := new(AutoRetryEnd)
	s.members(func(key string) bool {
		switch key {
		case "success":
			e.Success = s.bool()
		case "attempt":
			e.Attempt = int(s.int())
		case "finalError":
			e.FinalError = s.string()
		case "retryAfterMs":
			e.RetryAfter = s.milliseconds()
		default:
			return false
		}
		return true
	})
	return e
}

func (s *scanner) waiting() Event {
	e := new(Waiting)
	s.members(func(key string) bool {
		switch key {
		case "for":
			e.For = s.string()
		case "since":
			e.Since = s.int()
		default:
			return false
		}
		return true
	})
	return e
}

// members reads an object whose members read takes; the others are skipped.
func (s *scanner) members(read func(key string) bool) {
	for s.open('{'); s.next('}'); {
		if !read(string(s.key())) {
			s.skip()
		}
	}
}

func (s *scanner) inputReturned() Event {
	e := new(InputReturned)
	s.members(func(key string) bool {
		switch key {
		case "kind":
			e.Kind = s.string()
		case "seq":
			e.Seq = s.uint()
		case "id":
			e.ID = s.string()
		case "reason":
			e.Reason = s.string()
		case "turn":
			e.Turn = int(s.int())
		case "input":
			e.Input = s.raw()
		default:
			return false
		}
		return true
	})
	return e
}

func (s *scanner) autoRetryStart() Event {
	e := new(AutoRetryStart)
	s.members(func(key string) bool {
		switch key {
		case "attempt":
			e.Attempt = int(s.int())
		case "maxAttempts":
			e.MaxAttempts = int(s.int())
		case "delayMs":
			e.Delay = s.milliseconds()
		case "errorMessage":
			e.ErrorMessage = s.string()
		case "class":
			e.Class = s.string()
		default:
			return false
		}
		return true
	})
	return e
}

func (s *scanner) agentSettled() Event {
	e := new(AgentSettled)
	s.members(func(key string) bool {
		switch key {
		case "outcome":
			e.Outcome = Outcome(s.string())
		case "attempts":
			e.Attempts = int(s.int())
		case "usage":
			s.usage(&e.Usage)
		case "promptSeq":
			e.PromptSeq = s.uint()
		case "promptId":
			e.PromptID = s.string()
		case "errorMessage":
			e.ErrorMessage = s.string()
		case "retryAfterMs":
			e.RetryAfter = s.milliseconds()
		default:
			return false
		}
		return true
	})
	return e
}

func (s *scanner) milliseconds() time.Duration {
	return time.Duration(s.float() * float64(time.Millisecond))
}
