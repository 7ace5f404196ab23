package loop

import "fmt"

// ParseMessage reads one message in pi's JSON. A role that is not pi's gives
// a [CustomMessage] that keeps the bytes; members and blocks that are not
// known are kept as well. Errors say what is wrong and where: "message: role
// missing", "message: content: block 1: text missing".
func ParseMessage(b []byte) (Message, error) {
	s := scanner{b: b}
	m := s.message(true)
	s.end()
	if s.err != nil {
		return nil, fmt.Errorf("message: %w", s.err)
	}
	return m, nil
}

// MarshalMessage writes a message in pi's JSON, on one line. Members without
// a value are left out, HTML characters are not escaped.
func MarshalMessage(m Message) ([]byte, error) {
	if m == nil {
		return nil, fmt.Errorf("message: nil")
	}
	return AppendMessage(nil, m), nil
}

// AppendMessage appends what [MarshalMessage] returns; nil gives null.
func AppendMessage(dst []byte, m Message) []byte {
	switch m := m.(type) {
	case *UserMessage:
		return m.append(dst)
	case *AssistantMessage:
		return m.append(dst)
	case *ToolResultMessage:
		return m.append(dst)
	case *CustomMessage:
		return m.append(dst)
	}
	return append(dst, "null"...)
}

func (m *UserMessage) append(dst []byte) []byte {
	dst = append(dst, `{"role":"user","content":`...)
	if text, ok := m.bareText(); ok {
		dst = appendString(dst, text)
	} else {
		dst = appendBlocks(dst, m.Content)
	}
	dst = timeField(dst, m.Timestamp)
	return append(appendMembers(dst, m.Other), '}')
}

// bareText returns the content that is written as a string.
func (m *UserMessage) bareText() (string, bool) {
	if !m.ContentString || len(m.Content) != 1 {
		return "", false
	}
	t, ok := m.Content[0].(*Text)
	if !ok || t.Signature != "" || len(t.Other) > 0 {
		return "", false
	}
	return t.Text, true
}

// bare says that the message has only metadata, as at the start of a stream.
func (m *AssistantMessage) bare() bool { return m.Content == nil && m.StopReason == "" }

func (m *AssistantMessage) append(dst []byte) []byte {
	dst = append(dst, `{"role":"assistant"`...)
	if !m.bare() {
		dst = append(dst, `,"content":`...)
		dst = appendBlocks(dst, m.Content)
	}
	dst = m.appendModel(dst)
	if !m.bare() {
		dst = append(dst, `,"usage":`...)
		dst = m.Usage.append(dst)
	}
	return append(m.appendMeta(dst), '}')
}

func (m *AssistantMessage) appendModel(dst []byte) []byte {
	dst = appendString(append(dst, `,"api":`...), m.API)
	dst = appendString(append(dst, `,"provider":`...), m.Provider)
	return appendString(append(dst, `,"model":`...), m.Model)
}

func (m *AssistantMessage) appendMeta(dst []byte) []byte {
	dst = stringField(dst, `,"stopReason":`, string(m.StopReason))
	dst = timeField(dst, m.Timestamp)
	dst = stringField(dst, `,"responseId":`, m.ResponseID)
	dst = stringField(dst, `,"responseModel":`, m.ResponseModel)
	dst = stringField(dst, `,"errorMessage":`, m.ErrorMessage)
	return appendMembers(dst, m.Other)
}

func (m *ToolResultMessage) append(dst []byte) []byte {
	dst = m.appendHead(dst)
	dst = append(dst, `,"content":`...)
	dst = appendBlocks(dst, m.Content)
	if m.Details != nil {
		dst = append(dst, `,"details":`...)
		dst = appendRaw(dst, m.Details)
	}
	dst = boolField(dst, `,"isError":`, m.IsError)
	dst = timeField(dst, m.Timestamp)
	return append(appendMembers(dst, m.Other), '}')
}

func (m *ToolResultMessage) appendHead(dst []byte) []byte {
	dst = append(dst, `{"role":"toolResult","toolCallId":`...)
	dst = appendString(dst, m.ToolCallID)
	return appendString(append(dst, `,"toolName":`...), m.ToolName)
}

func (m *CustomMessage) append(dst []byte) []byte {
	if len(m.Raw) > 0 && validJSON(m.Raw) {
		return appendRaw(dst, m.Raw)
	}
	return append(appendString(append(dst, `{"role":`...), m.CustomRole), '}')
}

func timeField(dst []byte, ms int64) []byte {
	if ms == 0 {
		return dst
	}
	return intField(dst, `,"timestamp":`, ms)
}

func appendBlocks(dst []byte, blocks []Block) []byte {
	dst = append(dst, '[')
	for i, b := range blocks {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendBlock(dst, b)
	}
	return append(dst, ']')
}

func appendBlock(dst []byte, b Block) []byte {
	switch b := b.(type) {
	case *Text:
		dst = appendString(append(dst, `{"type":"text","text":`...), b.Text)
		dst = stringField(dst, `,"textSignature":`, b.Signature)
		return append(appendMembers(dst, b.Other), '}')
	case *Thinking:
		dst = appendString(append(dst, `{"type":"thinking","thinking":`...), b.Thinking)
		dst = stringField(dst, `,"thinkingSignature":`, b.Signature)
		if b.Redacted {
			dst = append(dst, `,"redacted":true`...)
		}
		return append(appendMembers(dst, b.Other), '}')
	case *Image:
		dst = appendString(append(dst, `{"type":"image","data":`...), b.Data)
		dst = appendString(append(dst, `,"mimeType":`...), b.MIMEType)
		return append(appendMembers(dst, b.Other), '}')
	case *ToolCall:
		return b.append(dst)
	case *UnknownBlock:
		if len(b.Raw) > 0 && validJSON(b.Raw) {
			return appendRaw(dst, b.Raw)
		}
		return append(appendString(append(dst, `{"type":`...), b.Type), '}')
	}
	return append(dst, "null"...)
}

func (c *ToolCall) append(dst []byte) []byte {
	dst = append(c.appendHead(dst), `,"arguments":`...)
	if len(c.Arguments) == 0 {
		dst = append(dst, "{}"...)
	} else {
		dst = appendRaw(dst, c.Arguments)
	}
	dst = stringField(dst, `,"thoughtSignature":`, c.ThoughtSignature)
	if len(c.Extra) > 0 {
		dst = appendRaw(append(dst, `,"extra":`...), c.Extra)
	}
	dst = stringField(dst, `,"incomplete":`, c.Incomplete)
	return append(appendMembers(dst, c.Other), '}')
}

func (c *ToolCall) appendHead(dst []byte) []byte {
	dst = appendString(append(dst, `{"type":"toolCall","id":`...), c.ID)
	return appendString(append(dst, `,"name":`...), c.Name)
}

func (u *Usage) append(dst []byte) []byte {
	dst = intField(dst, `{"input":`, u.Input)
	dst = intField(dst, `,"output":`, u.Output)
	dst = intField(dst, `,"cacheRead":`, u.CacheRead)
	dst = intField(dst, `,"cacheWrite":`, u.CacheWrite)
	dst = intField(dst, `,"totalTokens":`, u.TotalTokens)
	if u.Reasoning != 0 {
		dst = intField(dst, `,"reasoning":`, u.Reasoning)
	}
	if u.Estimated {
		dst = append(dst, `,"estimated":true`...)
	}
	return append(u.Cost.append(append(dst, `,"cost":`...)), '}')
}

func (c *Cost) append(dst []byte) []byte {
	dst = floatField(dst, `{"input":`, c.Input)
	dst = floatField(dst, `,"output":`, c.Output)
	dst = floatField(dst, `,"cacheRead":`, c.CacheRead)
	dst = floatField(dst, `,"cacheWrite":`, c.CacheWrite)
	dst = floatField(dst, `,"total":`, c.Total)
	if c.Stated {
		dst = append(dst, `,"stated":true`...)
	}
	return append(dst, '}')
}

// append writes a tool's result. isError is left out where the event around
// it says so already.
func (r *ToolResult) append(dst []byte, withError bool) []byte {
	dst = appendBlocks(append(dst, `{"content":`...), r.Content)
	if r.Details != nil {
		dst = appendRaw(append(dst, `,"details":`...), r.Details)
	}
	if r.Terminate {
		dst = append(dst, `,"terminate":true`...)
	}
	if withError && r.IsError {
		dst = append(dst, `,"isError":true`...)
	}
	return append(dst, '}')
}
