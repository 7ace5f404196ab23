package loop

import (
	"encoding/json"
	"strconv"
)

// others gathers the members of an object that are not known.
type others []byte

func (o *others) add(key []byte, s *scanner) {
	value := s.span()
	if s.err != nil {
		return
	}
	sep := byte(',')
	if len(*o) == 0 {
		sep = '{'
	}
	*o = append(*o, sep)
	*o = appendString(*o, string(key))
	*o = append(*o, ':')
	*o = append(*o, value...)
}

func (o others) raw() json.RawMessage {
	if len(o) == 0 {
		return nil
	}
	return json.RawMessage(append(o, '}'))
}

// lookAhead returns the string member name of the object that follows,
// without moving. It is cheap where the member comes first, as in all that
// this package writes.
func (s *scanner) lookAhead(name string) (value string, ok bool) {
	if s.peek() != '{' {
		s.unexpected("an object")
		return "", false
	}
	ahead := scanner{b: s.b, i: s.i, depth: s.depth}
	for ahead.open('{'); ahead.next('}'); {
		if string(ahead.key()) != name {
			ahead.skip()
			continue
		}
		if ahead.peek() != '"' {
			s.fail("%s: want a string", name)
			return "", false
		}
		value, ok = intern(ahead.stringBytes()), true
		break
	}
	switch {
	case ahead.err != nil:
		s.err = ahead.err
	case !ok:
		s.fail("%s missing", name)
	case value == "":
		s.fail("%s is empty", name)
	}
	return value, s.err == nil
}

// message reads a message. Where whole is false (message_start on the wire)
// the content may be missing.
func (s *scanner) message(whole bool) Message {
	role, ok := s.lookAhead("role")
	if !ok {
		return nil
	}
	switch role {
	case RoleUser:
		return s.userMessage(whole)
	case RoleAssistant:
		return s.assistantMessage(whole)
	case RoleToolResult:
		return s.toolResultMessage(whole)
	}
	return &CustomMessage{CustomRole: role, Raw: s.raw()}
}

// need fails if a member that must be there was not.
func (s *scanner) need(have bool, name string) {
	if !have {
		s.fail("%s missing", name)
	}
}

func (s *scanner) userMessage(whole bool) *UserMessage {
	m := new(UserMessage)
	var other others
	hasContent := !whole
	for s.open('{'); s.next('}'); {
		switch key := s.key(); string(key) {
		case "role":
			s.skip()
		case "content":
			hasContent = true
			if s.peek() == '"' {
				m.Content = []Block{&Text{Text: s.string()}}
				m.ContentString = true
			} else {
				m.Content = s.blocks()
			}
		case "timestamp":
			m.Timestamp = s.int()
		default:
			other.add(key, s)
		}
	}
	s.need(hasContent, "content")
	m.Other = other.raw()
	return m
}

func (s *scanner) assistantMessage(whole bool) *AssistantMessage {
	m := new(AssistantMessage)
	var other others
	hasContent := !whole
	for s.open('{'); s.next('}'); {
		switch key := s.key(); string(key) {
		case "role":
			s.skip()
		case "content":
			hasContent = true
			if s.peek() == '"' { // some histories have it so
				m.Content = []Block{&Text{Text: s.string()}}
			} else {
				m.Content = s.blocks()
			}
		case "api":
			m.API = s.interned()
		case "provider":
			m.Provider = s.interned()
		case "model":
			m.Model = s.string()
		case "usage":
			s.usage(&m.Usage)
		case "stopReason":
			m.StopReason = StopReason(s.interned())
		case "timestamp":
			m.Timestamp = s.int()
		case "responseId":
			m.ResponseID = s.string()
		case "responseModel":
			m.ResponseModel = s.string()
		case "errorMessage":
			m.ErrorMessage = s.string()
		default:
			other.add(key, s)
		}
	}
	s.need(hasContent, "content")
	m.Other = other.raw()
	return m
}

func (s *scanner) toolResultMessage(whole bool) *ToolResultMessage {
	m := new(ToolResultMessage)
	var other others
	hasContent, hasID := !whole, false
	for s.open('{'); s.next('}'); {
		switch key := s.key(); string(key) {
		case "role":
			s.skip()
		case "toolCallId":
			hasID = true
			m.ToolCallID = s.string()
		case "toolName":
			m.ToolName = s.string()
		case "content":
			hasContent = true
			if s.peek() == '"' {
				m.Content = []Block{&Text{Text: s.string()}}
			} else {
				m.Content = s.blocks()
			}
		case "details":
			m.Details = s.raw()
		case "isError":
			m.IsError = s.bool()
		case "timestamp":
			m.Timestamp = s.int()
		default:
			other.add(key, s)
		}
	}
	s.need(hasID, "toolCallId")
	s.need(hasContent, "content")
	m.Other = other.raw()
	return m
}

// blocks reads a content list; the result is never nil.
func (s *scanner) blocks() []Block {
	blocks := make([]Block, 0, 1)
	if s.peek() != '[' {
		s.unexpected("a list of blocks")
		s.within("content")
		return blocks
	}
	for s.open('['); s.next(']'); {
		b := s.block()
		if s.err != nil {
			s.within("content: block " + strconv.Itoa(len(blocks)))
			break
		}
		blocks = append(blocks, b)
	}
	return blocks
}

func (s *scanner) block() Block {
	kind, ok := s.lookAhead("type")
	if !ok {
		return nil
	}
	switch kind {
	case "text":
		return s.text()
	case "thinking":
		return s.thinking()
	case "image":
		return s.image()
	case "toolCall":
		return s.toolCall(true)
	}
	return &UnknownBlock{Type: kind, Raw: s.raw()}
}

func (s *scanner) text() *Text {
	t := new(Text)
	var other others
	has := false
	for s.open('{'); s.next('}'); {
		switch key := s.key(); string(key) {
		case "type":
			s.skip()
		case "text":
			has = true
			t.Text = s.string()
		case "textSignature":
			t.Signature = s.string()
		default:
			other.add(key, s)
		}
	}
	s.need(has, "text")
	t.Other = other.raw()
	return t
}

func (s *scanner) thinking() *Thinking {
	t := new(Thinking)
	var other others
	has := false
	for s.open('{'); s.next('}'); {
		switch key := s.key(); string(key) {
		case "type":
			s.skip()
		case "thinking":
			has = true
			t.Thinking = s.string()
		case "thinkingSignature":
			t.Signature = s.string()
		case "redacted":
			t.Redacted = s.bool()
		default:
			other.add(key, s)
		}
	}
	s.need(has, "thinking")
	t.Other = other.raw()
	return t
}

func (s *scanner) image() *Image {
	m := new(Image)
	var other others
	hasData, hasType := false, false
	for s.open('{'); s.next('}'); {
		switch key := s.key(); string(key) {
		case "type":
			s.skip()
		case "data":
			hasData = true
			m.Data = s.string()
		case "mimeType":
			hasType = true
			m.MIMEType = s.string()
		default:
			other.add(key, s)
		}
	}
	s.need(hasData, "data")
	s.need(hasType, "mimeType")
	m.Other = other.raw()
	return m
}

// toolCall reads a call. Where whole is false (an update on the wire) the
// arguments may be missing, and then stay nil.
func (s *scanner) toolCall(whole bool) *ToolCall {
	c := new(ToolCall)
	var other others
	for s.open('{'); s.next('}'); {
		switch key := s.key(); string(key) {
		case "type":
			s.skip()
		case "id":
			c.ID = s.string()
		case "name":
			c.Name = s.string()
		case "arguments":
			c.Arguments = s.raw()
		case "thoughtSignature":
			c.ThoughtSignature = s.string()
		case "extra":
			c.Extra = s.raw()
		case "incomplete":
			c.Incomplete = s.string()
		default:
			other.add(key, s)
		}
	}
	if whole && c.Arguments == nil {
		c.Arguments = json.RawMessage("{}")
	}
	c.Other = other.raw()
	return c
}

func (s *scanner) usage(u *Usage) {
	if s.null() {
		return
	}
	for s.open('{'); s.next('}'); {
		switch string(s.key()) {
		case "input":
			u.Input = s.int()
		case "output":
			u.Output = s.int()
		case "cacheRead":
			u.CacheRead = s.int()
		case "cacheWrite":
			u.CacheWrite = s.int()
		case "totalTokens":
			u.TotalTokens = s.int()
		case "reasoning":
			u.Reasoning = s.int()
		case "estimated":
			u.Estimated = s.bool()
		case "cost":
			s.cost(&u.Cost)
		default:
			s.skip()
		}
	}
	s.within("usage")
}

func (s *scanner) cost(c *Cost) {
	if s.null() {
		return
	}
	for s.open('{'); s.next('}'); {
		switch string(s.key()) {
		case "input":
			c.Input = s.float()
		case "output":
			c.Output = s.float()
		case "cacheRead":
			c.CacheRead = s.float()
		case "cacheWrite":
			c.CacheWrite = s.float()
		case "total":
			c.Total = s.float()
		case "stated":
			c.Stated = s.bool()
		default:
			s.skip()
		}
	}
}

func (s *scanner) toolResult() (r ToolResult) {
	for s.open('{'); s.next('}'); {
		switch string(s.key()) {
		case "content":
			if s.peek() == '"' {
				r.Content = []Block{&Text{Text: s.string()}}
			} else {
				r.Content = s.blocks()
			}
		case "details":
			r.Details = s.raw()
		case "terminate":
			r.Terminate = s.bool()
		case "isError":
			r.IsError = s.bool()
		default:
			s.skip()
		}
	}
	return r
}

// interned reads a string of which there are few different ones.
func (s *scanner) interned() string {
	if s.null() {
		return ""
	}
	return intern(s.stringBytes())
}

// intern returns the string without allocating for the words of the format.
func intern(b []byte) string {
	switch string(b) {
	case "user":
		return "user"
	case "assistant":
		return "assistant"
	case "toolResult":
		return "toolResult"
	case "text":
		return "text"
	case "thinking":
		return "thinking"
	case "image":
		return "image"
	case "toolCall":
		return "toolCall"
	case "message_update":
		return "message_update"
	case "text_delta":
		return "text_delta"
	case "thinking_delta":
		return "thinking_delta"
	case "toolcall_delta":
		return "toolcall_delta"
	case "tool_execution_update":
		return "tool_execution_update"
	case "stop":
		return "stop"
	case "toolUse":
		return "toolUse"
	case "openai-completions":
		return "openai-completions"
	case "openai-responses":
		return "openai-responses"
	}
	return string(b)
}
