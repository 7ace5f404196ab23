package loop

import (
	"strings"
	"testing"
)

// The copies that the wire leaves out still give their usage.
func TestWireEndsCarryTheUsage(t *testing.T) {
	a := &AssistantMessage{Usage: Usage{Input: 3, Output: 4, TotalTokens: 7}}
	b := &AssistantMessage{Usage: Usage{Input: 10, Output: 20, TotalTokens: 30}}
	for _, c := range []struct {
		ev   Event
		want string
	}{
		{&TurnEnd{Message: a}, `"totalTokens":7`},
		{&TurnEnd{Message: a, Usage: &b.Usage}, `"totalTokens":30`},
		{&AgentEnd{Messages: []Message{a, NewUserText("x"), b}}, `"totalTokens":37`},
		{&AgentEnd{Messages: []Message{a}, Usage: &b.Usage}, `"totalTokens":30`},
	} {
		if got := string(AppendWire(nil, c.ev)); !strings.Contains(got, c.want) {
			t.Errorf("got %s, want %s in it", got, c.want)
		}
	}
	for _, ev := range []Event{&TurnEnd{}, &AgentEnd{}} {
		if got := string(AppendWire(nil, ev)); strings.Contains(got, "usage") {
			t.Errorf("got %s", got)
		}
	}
}
