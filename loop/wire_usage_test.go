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

// What a turn's and a run's usage leave out is zero, and comes back as that.
func TestWireEndsLeaveOutZeros(t *testing.T) {
	for _, c := range []struct {
		u    Usage
		want string
	}{
		{Usage{}, `{}`},
		{Usage{Input: 3, Output: 4, TotalTokens: 7}, `{"input":3,"output":4,"totalTokens":7}`},
		{Usage{Estimated: true}, `{"estimated":true}`},
		{
			Usage{Reasoning: 1, Cost: Cost{Input: 1, Total: 1}},
			`{"reasoning":1,"cost":{"input":1,"output":0,"cacheRead":0,"cacheWrite":0,"total":1}}`,
		},
	} {
		line := AppendWire(nil, &TurnEnd{Usage: &c.u})
		if want := `{"type":"turn_end","usage":` + c.want + `}`; string(line) != want {
			t.Errorf("got %s, want %s", line, want)
		}
		ev, err := ParseWire(line)
		if err != nil {
			t.Fatal(err)
		}
		if got := ev.(*TurnEnd).Usage; got == nil || *got != c.u {
			t.Errorf("%s came back as %+v", line, got)
		}
	}
}
