package looptest_test

import (
	"errors"
	"fmt"
)

// acceptable checks a request as a strict server would: every tool result
// follows the call that it answers, every call is answered before anything
// else is said, no id is empty or used twice in one message, and no assistant
// message is empty.
func acceptable(body any) error {
	m, ok := body.(map[string]any)
	if !ok {
		return errors.New("no JSON object")
	}
	var c conversation
	if input, ok := m["input"].([]any); ok {
		for i, item := range input {
			if err := c.item(item); err != nil {
				return fmt.Errorf("input %d: %w", i, err)
			}
		}
		return c.end()
	}
	messages, ok := m["messages"].([]any)
	if !ok {
		return errors.New("neither messages nor input")
	}
	for i, msg := range messages {
		if err := c.message(msg); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return c.end()
}

// conversation is what has been said so far.
type conversation struct {
	open map[string]bool // calls without their result
}

func (c *conversation) end() error {
	for id := range c.open {
		return fmt.Errorf("call %q has no result", id)
	}
	return nil
}

func (c *conversation) call(id any) error {
	s, _ := id.(string)
	if s == "" {
		return errors.New("a call without an id")
	}
	if c.open == nil {
		c.open = map[string]bool{}
	}
	if c.open[s] {
		return fmt.Errorf("two calls with the id %q", s)
	}
	c.open[s] = true
	return nil
}

func (c *conversation) result(id any) error {
	s, _ := id.(string)
	if !c.open[s] {
		return fmt.Errorf("a result for %q, which no open call has", s)
	}
	delete(c.open, s)
	return nil
}

func (c *conversation) message(v any) error {
	m, _ := v.(map[string]any)
	role, _ := m["role"].(string)
	switch role {
	case "tool":
		return c.result(m["tool_call_id"])
	case "system", "developer", "user", "assistant":
		if err := c.end(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("role %q", role)
	}
	if role != "assistant" {
		return nil
	}
	calls, _ := m["tool_calls"].([]any)
	if len(calls) == 0 && (m["content"] == nil || m["content"] == "") && m["reasoning_content"] == nil {
		return errors.New("an empty assistant message")
	}
	for _, call := range calls {
		tc, _ := call.(map[string]any)
		if err := c.call(tc["id"]); err != nil {
			return err
		}
	}
	return nil
}

func (c *conversation) item(v any) error {
	m, _ := v.(map[string]any)
	switch m["type"] {
	case "function_call":
		return c.call(m["call_id"])
	case "function_call_output":
		return c.result(m["call_id"])
	case "reasoning":
		return nil
	}
	return c.end()
}
