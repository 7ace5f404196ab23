package loop

import (
	"encoding/json"
	"strconv"
	"time"
)

// AppendEvent appends an event in pi's full form, as one line of JSON without
// the newline: message_update carries the message so far, twice as pi does,
// turn_end and agent_end carry their copies. Its length grows with the
// message; logs hold what [AppendWire] writes.
func AppendEvent(dst []byte, ev Event) []byte {
	switch e := ev.(type) {
	case *MessageStart:
		return e.appendFull(dst)
	case *MessageUpdate:
		return e.appendFull(dst)
	case *ToolExecutionUpdate:
		dst = appendToolHead(dst, `{"type":"tool_execution_update"`, e.ToolCallID, e.ToolName)
		dst = appendArgs(dst, e.Args)
		dst = append(dst, `,"partialResult":`...)
		return append(e.PartialResult.append(dst, false), '}')
	case *TurnEnd:
		return e.appendFull(dst)
	case *AgentEnd:
		dst = append(dst, `{"type":"agent_end","messages":`...)
		dst = appendMessages(dst, e.Messages)
		return appendWillContinue(dst, e)
	}
	return appendCommon(dst, ev)
}

// appendCommon appends the events whose full form is also their wire form.
func appendCommon(dst []byte, ev Event) []byte {
	switch e := ev.(type) {
	case *AgentStart:
		return append(dst, `{"type":"agent_start"}`...)
	case *TurnStart:
		return append(dst, `{"type":"turn_start"}`...)
	case *MessageEnd:
		return appendMessageEvent(dst, `{"type":"message_end","message":`, e.Message)
	case *ToolExecutionStart:
		dst = appendToolHead(dst, `{"type":"tool_execution_start"`, e.ToolCallID, e.ToolName)
		return append(appendArgs(dst, e.Args), '}')
	case *ToolExecutionEnd:
		dst = appendToolHead(dst, `{"type":"tool_execution_end"`, e.ToolCallID, e.ToolName)
		dst = e.Result.append(append(dst, `,"result":`...), false)
		return append(boolField(dst, `,"isError":`, e.IsError), '}')
	case *UnknownEvent:
		if len(e.Raw) > 0 && validJSON(e.Raw) {
			return appendRaw(dst, e.Raw)
		}
		return append(appendString(append(dst, `{"type":`...), e.Type), '}')
	}
	return appendOwn(dst, ev)
}

// appendOwn appends the product's own events.
func appendOwn(dst []byte, ev Event) []byte {
	switch e := ev.(type) {
	case *SessionClaimed:
		dst = appendString(append(dst, `{"type":"session_claimed","worker":`...), e.Worker)
		dst = appendString(append(dst, `,"epoch":`...), e.Epoch)
	case *RunResumed:
		dst = intField(dst, `{"type":"run_resumed","attempt":`, int64(e.Attempt))
		dst = stringField(dst, `,"reason":`, e.Reason)
	case *RunReleased:
		dst = appendString(append(dst, `{"type":"run_released","worker":`...), e.Worker)
		dst = stringField(dst, `,"reason":`, e.Reason)
	case *RunLost:
		dst = appendString(append(dst, `{"type":"run_lost","worker":`...), e.Worker)
		dst = appendString(append(dst, `,"epoch":`...), e.Epoch)
		if e.Since != 0 {
			dst = intField(dst, `,"since":`, e.Since)
		}
	case *LeaseLost:
		dst = appendString(append(dst, `{"type":"lease_lost","worker":`...), e.Worker)
		dst = appendString(append(dst, `,"epoch":`...), e.Epoch)
		dst = stringField(dst, `,"reason":`, e.Reason)
	case *MessageDiscarded:
		dst = append(dst, `{"type":"message_discarded"`...)
		if e.Attempt != 0 {
			dst = intField(dst, `,"attempt":`, int64(e.Attempt))
		}
		dst = stringField(dst, `,"reason":`, e.Reason)
	case *InputReturned:
		dst = appendString(append(dst, `{"type":"input_returned","kind":`...), e.Kind)
		dst = strconv.AppendUint(append(dst, `,"seq":`...), e.Seq, 10)
		dst = stringField(dst, `,"id":`, e.ID)
		dst = stringField(dst, `,"reason":`, e.Reason)
		if e.Turn != 0 {
			dst = intField(dst, `,"turn":`, int64(e.Turn))
		}
		if len(e.Input) > 0 {
			dst = appendRaw(append(dst, `,"input":`...), e.Input)
		}
	case *AutoRetryStart:
		dst = intField(dst, `{"type":"auto_retry_start","attempt":`, int64(e.Attempt))
		dst = intField(dst, `,"maxAttempts":`, int64(e.MaxAttempts))
		dst = intField(dst, `,"delayMs":`, e.Delay.Milliseconds())
		dst = appendString(append(dst, `,"errorMessage":`...), e.ErrorMessage)
		dst = stringField(dst, `,"class":`, e.Class)
	case *AutoRetryEnd:
		dst = boolField(dst, `{"type":"auto_retry_end","success":`, e.Success)
		dst = intField(dst, `,"attempt":`, int64(e.Attempt))
		dst = stringField(dst, `,"finalError":`, e.FinalError)
		dst = waitField(dst, e.RetryAfter)
	case *CompactionStart:
		dst = appendString(append(dst, `{"type":"compaction_start","reason":`...), string(e.Reason))
	case *CompactionEnd:
		dst = e.append(dst)
	case *ApprovalRequested:
		dst = e.append(dst)
	case *ApprovalAnswered:
		dst = e.append(dst)
	case *ToolsChanged:
		dst = e.append(dst)
	case *WorkspaceSaved:
		dst = e.append(dst)
	case *WorkspaceUnsaved:
		dst = e.append(dst)
	case *Waiting:
		dst = appendString(append(dst, `{"type":"waiting","for":`...), e.For)
		dst = intField(dst, `,"since":`, e.Since)
	case *AgentSettled:
		dst = e.append(dst)
	default:
		return append(dst, "null"...)
	}
	return append(dst, '}')
}

func (e *AgentSettled) append(dst []byte) []byte {
	dst = appendString(append(dst, `{"type":"agent_settled","outcome":`...), string(e.Outcome))
	dst = intField(dst, `,"attempts":`, int64(e.Attempts))
	dst = e.Usage.append(append(dst, `,"usage":`...))
	dst = floatField(dst, `,"cost":`, e.Usage.Cost.Total)
	if e.PromptSeq != 0 {
		dst = strconv.AppendUint(append(dst, `,"promptSeq":`...), e.PromptSeq, 10)
	}
	dst = stringField(dst, `,"promptId":`, e.PromptID)
	dst = stringField(dst, `,"errorMessage":`, e.ErrorMessage)
	return waitField(dst, e.RetryAfter)
}

// waitField appends a provider's wish, if there is one.
func waitField(dst []byte, d time.Duration) []byte {
	if d == 0 {
		return dst
	}
	return intField(dst, `,"retryAfterMs":`, d.Milliseconds())
}

// appendFull writes the start of a streamed answer as pi does, with an empty
// content.
func (e *MessageStart) appendFull(dst []byte) []byte {
	const head = `{"type":"message_start","message":`
	if a, ok := e.Message.(*AssistantMessage); ok && a.bare() {
		so := *a
		so.Content = []Block{}
		return append(so.appendPartial(append(dst, head...)), '}')
	}
	return appendMessageEvent(dst, head, e.Message)
}

func appendMessageEvent(dst []byte, head string, m Message) []byte {
	return append(AppendMessage(append(dst, head...), m), '}')
}

func appendToolHead(dst []byte, head, id, name string) []byte {
	dst = appendString(append(append(dst, head...), `,"toolCallId":`...), id)
	return appendString(append(dst, `,"toolName":`...), name)
}

func appendArgs(dst []byte, args json.RawMessage) []byte {
	if len(args) == 0 {
		return dst
	}
	return appendRaw(append(dst, `,"args":`...), args)
}

func appendWillContinue(dst []byte, e *AgentEnd) []byte {
	if e.WillContinue {
		dst = append(dst, `,"willContinue":true`...)
	}
	return append(dst, '}')
}

func (e *TurnEnd) appendFull(dst []byte) []byte {
	dst = append(dst, `{"type":"turn_end"`...)
	if e.Message != nil {
		dst = AppendMessage(append(dst, `,"message":`...), e.Message)
	}
	dst = append(dst, `,"toolResults":[`...)
	for i, r := range e.ToolResults {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = r.append(dst)
	}
	return append(dst, `]}`...)
}

func (e *MessageUpdate) appendFull(dst []byte) []byte {
	dst = append(dst, `{"type":"message_update","assistantMessageEvent":`...)
	dst = e.Update.appendHead(dst)
	u := &e.Update
	switch u.Type {
	case UpdateTextEnd, UpdateThinkingEnd:
		dst = appendString(append(dst, `,"content":`...), u.Content)
	case UpdateToolCallEnd:
		if u.ToolCall != nil {
			dst = u.ToolCall.append(append(dst, `,"toolCall":`...))
		}
	case UpdateToolCallStart:
		if e.Partial == nil && u.ToolCall != nil {
			dst = append(u.ToolCall.appendHead(append(dst, `,"toolCall":`...)), '}')
		}
	}
	if e.Partial == nil {
		return append(dst, `}}`...)
	}
	at := len(dst) + len(`,"partial":`)
	dst = e.Partial.appendPartial(append(dst, `,"partial":`...))
	end := len(dst)
	dst = append(dst, `},"message":`...)
	dst = append(dst, dst[at:end]...)
	return append(dst, '}')
}

// appendPartial writes the message so far, which pi gives a stop reason.
func (m *AssistantMessage) appendPartial(dst []byte) []byte {
	so := *m
	if so.StopReason == "" {
		so.StopReason = StopStop
	}
	return so.append(dst)
}

// appendHead appends what both forms of an update have in common, without
// the closing brace.
func (u *Update) appendHead(dst []byte) []byte {
	dst = appendString(append(dst, `{"type":`...), string(u.Type))
	switch u.Type {
	case UpdateStart:
		return dst
	case UpdateDone, UpdateError:
		if u.Message == nil {
			return dst
		}
		dst = stringField(dst, `,"reason":`, string(u.Message.StopReason))
		if u.Type == UpdateDone {
			return u.Message.append(append(dst, `,"message":`...))
		}
		return u.Message.append(append(dst, `,"error":`...))
	}
	dst = intField(dst, `,"contentIndex":`, int64(u.ContentIndex))
	switch u.Type {
	case UpdateTextDelta, UpdateThinkingDelta, UpdateToolCallDelta:
		dst = appendString(append(dst, `,"delta":`...), u.Delta)
	}
	return dst
}
