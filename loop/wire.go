package loop

// AppendWire appends an event in the form of the log, as one line of JSON
// without the newline. What pi repeats is said once:
//
//   - message_start has role and metadata, no content; a stopReason says that
//     the answer was not streamed and is whole in its message_end;
//   - message_update has its delta, never the message so far. A text_end,
//     thinking_end or toolcall_end whose content is what the deltas add up to
//     leaves it out;
//   - message_end has the whole message, tool_execution_end the whole result;
//   - tool_execution_update has the new part, without the arguments;
//   - turn_end and agent_end have the usage without what is zero, and no
//     copies.
//
// [Expander] gives pi's form back. Encoding a delta into a buffer that has
// room allocates nothing. An event of an unknown Go type gives null.
func AppendWire(dst []byte, ev Event) []byte {
	switch e := ev.(type) {
	case *MessageUpdate:
		return e.appendWire(dst)
	case *MessageStart:
		dst = append(dst, `{"type":"message_start","message":`...)
		return append(appendMessageHead(dst, e.Message), '}')
	case *ToolExecutionUpdate:
		dst = appendToolHead(dst, `{"type":"tool_execution_update"`, e.ToolCallID, e.ToolName)
		dst = append(dst, `,"partialResult":`...)
		return append(e.PartialResult.append(dst, false), '}')
	case *TurnEnd:
		dst = append(dst, `{"type":"turn_end"`...)
		return append(appendUsage(dst, e.total()), '}')
	case *AgentEnd:
		dst = append(dst, `{"type":"agent_end"`...)
		return appendWillContinue(appendUsage(dst, e.total()), e)
	}
	return appendCommon(dst, ev)
}

// total is the turn's usage: as given, or that of its answer.
func (e *TurnEnd) total() *Usage {
	if m, ok := e.Message.(*AssistantMessage); ok && e.Usage == nil {
		return &m.Usage
	}
	return e.Usage
}

// total is the run's usage: as given, or that of its answers together.
func (e *AgentEnd) total() *Usage {
	sum := e.Usage
	for _, m := range e.Messages {
		a, ok := m.(*AssistantMessage)
		if !ok || e.Usage != nil {
			continue
		}
		if sum == nil {
			sum = &Usage{}
		}
		sum.add(&a.Usage)
	}
	return sum
}

func appendUsage(dst []byte, u *Usage) []byte {
	if u == nil {
		return dst
	}
	return u.appendShort(append(dst, `,"usage":`...))
}

// appendShort appends a usage that repeats what messages say in full; readers
// take a field that is not there for zero.
func (u *Usage) appendShort(dst []byte) []byte {
	dst = append(dst, '{')
	begin := len(dst)
	for _, f := range []struct {
		name  string
		value int64
	}{
		{`,"input":`, u.Input}, {`,"output":`, u.Output}, {`,"cacheRead":`, u.CacheRead},
		{`,"cacheWrite":`, u.CacheWrite}, {`,"totalTokens":`, u.TotalTokens}, {`,"reasoning":`, u.Reasoning},
	} {
		if f.value != 0 {
			dst = intField(dst, f.name, f.value)
		}
	}
	if u.Estimated {
		dst = append(dst, `,"estimated":true`...)
	}
	if u.Cost != (Cost{}) {
		dst = u.Cost.append(append(dst, `,"cost":`...))
	}
	if len(dst) > begin {
		dst = append(dst[:begin], dst[begin+1:]...) // the first comma
	}
	return append(dst, '}')
}

// appendMessageHead appends a message without its content.
func appendMessageHead(dst []byte, m Message) []byte {
	switch m := m.(type) {
	case *UserMessage:
		dst = timeField(append(dst, `{"role":"user"`...), m.Timestamp)
	case *AssistantMessage:
		dst = m.appendModel(append(dst, `{"role":"assistant"`...))
		if !m.begins() {
			dst = stringField(dst, `,"stopReason":`, string(m.StopReason))
		}
		dst = timeField(dst, m.Timestamp)
		dst = stringField(dst, `,"responseId":`, m.ResponseID)
	case *ToolResultMessage:
		dst = timeField(m.appendHead(dst), m.Timestamp)
	case *CustomMessage:
		dst = appendString(append(dst, `{"role":`...), m.CustomRole)
	default:
		return append(dst, "null"...)
	}
	return append(dst, '}')
}

// begins says that this is the start of a streamed answer, which pi's full
// form gives a stop reason as well.
func (m *AssistantMessage) begins() bool {
	return m.StopReason == StopStop && len(m.Content) == 0 && m.Usage == (Usage{})
}

func (e *MessageUpdate) appendWire(dst []byte) []byte {
	u := &e.Update
	dst = u.appendHead(append(dst, `{"type":"message_update","assistantMessageEvent":`...))
	switch u.Type {
	case UpdateTextEnd, UpdateThinkingEnd:
		if u.Revised || u.Content != "" && !e.repeats() {
			dst = appendString(append(dst, `,"content":`...), u.Content)
		}
	case UpdateToolCallStart:
		if u.ToolCall != nil {
			dst = append(u.ToolCall.appendHead(append(dst, `,"toolCall":`...)), '}')
		}
	case UpdateToolCallEnd:
		dst = u.appendCallEnd(dst, e.Partial != nil)
	}
	return append(dst, `}}`...)
}

// repeats says that the content of a block's end is that of the block so far.
func (e *MessageUpdate) repeats() bool {
	if e.Partial == nil || uint(e.Update.ContentIndex) >= uint(len(e.Partial.Content)) {
		return false
	}
	switch b := e.Partial.Content[e.Update.ContentIndex].(type) {
	case *Text:
		return b.Text == e.Update.Content
	case *Thinking:
		return b.Thinking == e.Update.Content
	}
	return false
}

// appendCallEnd appends the call of a toolcall_end: whole, or, for a good call
// that was streamed, only its id and name, which may have come late.
func (u *Update) appendCallEnd(dst []byte, streamed bool) []byte {
	c := u.ToolCall
	if c == nil {
		return dst
	}
	dst = append(dst, `,"toolCall":`...)
	streamed = streamed || c.Arguments == nil // as read from the wire
	if !streamed || u.Revised || c.Incomplete != "" || len(c.Extra) > 0 || len(c.Other) > 0 || c.ThoughtSignature != "" {
		return c.append(dst)
	}
	return append(c.appendHead(dst), '}')
}
