package loop

import (
	"encoding/json"
	"fmt"
)

// The methods of this file make the codec available to encoding/json.

// MarshalJSON writes the message.
func (m *UserMessage) MarshalJSON() ([]byte, error) { return m.append(nil), nil }

// MarshalJSON writes the message.
func (m *AssistantMessage) MarshalJSON() ([]byte, error) { return m.append(nil), nil }

// MarshalJSON writes the message.
func (m *ToolResultMessage) MarshalJSON() ([]byte, error) { return m.append(nil), nil }

// MarshalJSON writes the message.
func (m *CustomMessage) MarshalJSON() ([]byte, error) { return m.append(nil), nil }

// MarshalJSON writes the block.
func (b *Text) MarshalJSON() ([]byte, error) { return appendBlock(nil, b), nil }

// MarshalJSON writes the block.
func (b *Thinking) MarshalJSON() ([]byte, error) { return appendBlock(nil, b), nil }

// MarshalJSON writes the block.
func (b *Image) MarshalJSON() ([]byte, error) { return appendBlock(nil, b), nil }

// MarshalJSON writes the block.
func (c *ToolCall) MarshalJSON() ([]byte, error) { return appendBlock(nil, c), nil }

// MarshalJSON writes the block.
func (b *UnknownBlock) MarshalJSON() ([]byte, error) { return appendBlock(nil, b), nil }

// MarshalJSON writes pi's usage.
func (u Usage) MarshalJSON() ([]byte, error) { return u.append(nil), nil }

// MarshalJSON writes the result in pi's form.
func (r ToolResult) MarshalJSON() ([]byte, error) { return r.append(nil, true), nil }

// UnmarshalJSON reads the message.
func (m *UserMessage) UnmarshalJSON(b []byte) error { return unmarshalMessage(b, m) }

// UnmarshalJSON reads the message.
func (m *AssistantMessage) UnmarshalJSON(b []byte) error { return unmarshalMessage(b, m) }

// UnmarshalJSON reads the message.
func (m *ToolResultMessage) UnmarshalJSON(b []byte) error { return unmarshalMessage(b, m) }

// UnmarshalJSON reads the message.
func (m *CustomMessage) UnmarshalJSON(b []byte) error { return unmarshalMessage(b, m) }

// UnmarshalJSON reads the block.
func (b *Text) UnmarshalJSON(data []byte) error { return unmarshalBlock(data, b) }

// UnmarshalJSON reads the block.
func (b *Thinking) UnmarshalJSON(data []byte) error { return unmarshalBlock(data, b) }

// UnmarshalJSON reads the block.
func (b *Image) UnmarshalJSON(data []byte) error { return unmarshalBlock(data, b) }

// UnmarshalJSON reads the block.
func (c *ToolCall) UnmarshalJSON(data []byte) error { return unmarshalBlock(data, c) }

// UnmarshalJSON reads the block.
func (b *UnknownBlock) UnmarshalJSON(data []byte) error { return unmarshalBlock(data, b) }

// UnmarshalJSON reads pi's usage; a member that is missing is 0.
func (u *Usage) UnmarshalJSON(b []byte) error {
	s := scanner{b: b}
	*u = Usage{}
	s.usage(u)
	s.end()
	return s.err
}

// UnmarshalJSON reads a tool's result.
func (r *ToolResult) UnmarshalJSON(b []byte) error {
	s := scanner{b: b}
	*r = s.toolResult()
	s.end()
	if s.err != nil {
		return fmt.Errorf("tool result: %w", s.err)
	}
	return nil
}

func unmarshalMessage[T any, P interface {
	*T
	Message
}](b []byte, m P) error {
	got, err := ParseMessage(b)
	if err != nil {
		return err
	}
	same, ok := got.(P)
	if !ok {
		return fmt.Errorf("message: role %q does not belong in a %T", got.Role(), m)
	}
	*m = *same
	return nil
}

func unmarshalBlock[T any, P interface {
	*T
	Block
}](data []byte, b P) error {
	s := scanner{b: data}
	got := s.block()
	s.end()
	if s.err != nil {
		return fmt.Errorf("block: %w", s.err)
	}
	same, ok := got.(P)
	if !ok {
		return fmt.Errorf("block: type %q does not belong in a %T", got.BlockType(), b)
	}
	*b = *same
	return nil
}

// Messages is a list of messages that encoding/json can read and write.
type Messages []Message

// UnmarshalJSON reads a list of messages of any role.
func (m *Messages) UnmarshalJSON(b []byte) error {
	s := scanner{b: b}
	list := s.messages()
	s.end()
	if s.err != nil {
		return s.err
	}
	*m = list
	return nil
}

// MarshalJSON writes the list; nil is an empty one.
func (m Messages) MarshalJSON() ([]byte, error) { return appendMessages(nil, m), nil }

func appendMessages(dst []byte, list []Message) []byte {
	dst = append(dst, '[')
	for i, m := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendMessage(dst, m)
	}
	return append(dst, ']')
}

// messages reads a list of messages; the result is never nil.
func (s *scanner) messages() []Message {
	list := []Message{}
	for s.open('['); s.next(']'); {
		m := s.message(true)
		if s.err != nil {
			s.within(fmt.Sprintf("message %d", len(list)))
			break
		}
		list = append(list, m)
	}
	return list
}

var (
	_ json.Unmarshaler = (*Messages)(nil)
	_ json.Marshaler   = Usage{}
)
