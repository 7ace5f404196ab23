package worker

import (
	"encoding/json"

	"github.com/pi-worker/pi-worker/loop"
)

// contentOf writes messages as the conventions have them: a role and its parts.
func contentOf(messages ...loop.Message) string {
	type part struct {
		Type      string          `json:"type"`
		Content   string          `json:"content,omitempty"`
		ID        string          `json:"id,omitempty"`
		Name      string          `json:"name,omitempty"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
		Response  string          `json:"response,omitempty"`
	}
	type message struct {
		Role         string `json:"role"`
		Parts        []part `json:"parts"`
		FinishReason string `json:"finish_reason,omitempty"`
	}
	blocks := func(content []loop.Block) (parts []part) {
		for _, b := range content {
			switch b := b.(type) {
			case *loop.Text:
				parts = append(parts, part{Type: "text", Content: b.Text})
			case *loop.Thinking:
				parts = append(parts, part{Type: "reasoning", Content: b.Thinking})
			case *loop.ToolCall:
				parts = append(parts, part{Type: "tool_call", ID: b.ID, Name: b.Name, Arguments: b.Arguments})
			default: // pictures stay out of traces
				parts = append(parts, part{Type: b.BlockType()})
			}
		}
		return parts
	}
	out := make([]message, 0, len(messages))
	for _, m := range messages {
		switch m := m.(type) {
		case *loop.UserMessage:
			out = append(out, message{Role: "user", Parts: blocks(m.Content)})
		case *loop.AssistantMessage:
			out = append(out, message{Role: "assistant", Parts: blocks(m.Content), FinishReason: string(m.StopReason)})
		case *loop.ToolResultMessage:
			p := part{Type: "tool_call_response", ID: m.ToolCallID, Response: textOf(m.Content)}
			out = append(out, message{Role: "tool", Parts: []part{p}})
		}
	}
	return marshal(out)
}

// instructions are a system prompt as the conventions have it.
func instructions(prompt string) string {
	type part struct {
		Type    string `json:"type"`
		Content string `json:"content"`
	}
	return marshal([]part{{"text", prompt}})
}

func textOf(content []loop.Block) (text string) {
	for _, b := range content {
		if t, ok := b.(*loop.Text); ok {
			text += t.Text
		}
	}
	return text
}

func marshal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "" // a model's arguments that are no JSON
	}
	return string(b)
}
