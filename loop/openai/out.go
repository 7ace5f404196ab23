package openai

import (
	"encoding/json"

	"github.com/pi-worker/pi-worker/loop"
)

// sink hands updates to the consumer and builds the message.
type sink struct {
	yield   func(*loop.Update, error) bool
	msg     *loop.AssistantMessage
	up      loop.Update // the one update that is yielded again and again
	started bool        // UpdateStart was yielded
	stopped bool        // the consumer wants no more
	usage   bool        // the provider sent usage
}

func (s *sink) send() {
	if !s.stopped && !s.yield(&s.up, nil) {
		s.stopped = true
	}
}

func (s *sink) start() {
	if !s.started {
		s.started = true
		s.up = loop.Update{Type: loop.UpdateStart, Message: s.msg}
		s.send()
	}
}

func (s *sink) block(t loop.UpdateType, index int) {
	s.up = loop.Update{Type: t, ContentIndex: index, Message: s.msg}
}

// block is one block of the answer while it grows.
type block struct {
	index int
	text  text

	textBlock *loop.Text
	thinking  *loop.Thinking
	call      *loop.ToolCall
	ended     bool
}

func (s *sink) add(b *block, content loop.Block) {
	b.index = len(s.msg.Content)
	s.msg.Content = append(s.msg.Content, content)
}

func (s *sink) openText() *block {
	b := &block{textBlock: &loop.Text{}}
	s.add(b, b.textBlock)
	s.block(loop.UpdateTextStart, b.index)
	s.send()
	return b
}

func (s *sink) openThinking(signature string) *block {
	b := &block{thinking: &loop.Thinking{Signature: signature}}
	s.add(b, b.thinking)
	s.block(loop.UpdateThinkingStart, b.index)
	s.send()
	return b
}

func (s *sink) openCall(id, name string) *block {
	b := &block{call: &loop.ToolCall{ID: id, Name: name, Arguments: json.RawMessage("{}")}}
	s.add(b, b.call)
	s.block(loop.UpdateToolCallStart, b.index)
	s.up.ToolCall = b.call
	s.send()
	return b
}

// delta sends a piece that was already added to the block's text.
func (s *sink) delta(b *block, piece string) {
	switch {
	case b.textBlock != nil:
		b.textBlock.Text = b.text.String()
		s.block(loop.UpdateTextDelta, b.index)
	case b.thinking != nil:
		b.thinking.Thinking = b.text.String()
		s.block(loop.UpdateThinkingDelta, b.index)
	default:
		s.block(loop.UpdateToolCallDelta, b.index)
	}
	s.up.Delta = piece
	s.send()
}

// settle sends what is held of a split emoji as a last piece.
func (s *sink) settle(b *block) {
	before := len(b.text.String())
	if all := b.text.finish(); len(all) > before {
		s.delta(b, all[before:])
	}
}

// end closes a block.
func (s *sink) end(b *block) {
	if b.ended {
		return
	}
	s.settle(b)
	b.ended = true
	switch {
	case b.textBlock != nil:
		s.block(loop.UpdateTextEnd, b.index)
		s.up.Content = b.textBlock.Text
		s.up.Revised = s.up.Content != b.text.String()
	case b.thinking != nil:
		s.block(loop.UpdateThinkingEnd, b.index)
		s.up.Content = b.thinking.Thinking
		s.up.Revised = s.up.Content != b.text.String()
	default:
		s.block(loop.UpdateToolCallEnd, b.index)
		s.up.ToolCall = b.call
		s.up.Revised = string(b.call.Arguments) != b.text.String()
	}
	s.send()
}

// keep leaves in an unfinished block what can be shown of it.
func (b *block) keep() {
	switch {
	case b.textBlock != nil:
		b.textBlock.Text = b.text.finish()
	case b.thinking != nil:
		b.thinking.Thinking = b.text.finish()
	default:
		b.call.Arguments = preview(b.text.finish())
	}
}
