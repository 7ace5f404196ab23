package client_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
)

// Limits travel under the names of docs/protocol.md; those that ask for nothing
// do not.
func TestPromptLowersLimits(t *testing.T) {
	b := newBundle(t)
	text := loop.NewUserText("go")
	for id, c := range map[string]struct {
		limits *client.Limits
		want   string
	}{
		"all": {&client.Limits{Turns: 1, ToolCalls: 2, IdenticalCalls: 3, WallTime: 90 * time.Second, Tokens: 4, Cost: 0.5, TreeTokens: 6, TreeCost: 7},
			`{"turns":1,"toolCalls":2,"identicalCalls":3,"wallTime":"1m30s","tokens":4,"cost":0.5,"treeTokens":6,"treeCost":7}`},
		"one":  {&client.Limits{Cost: 0.25}, `{"cost":0.25}`},
		"zero": {&client.Limits{}, ""},
		"none": {nil, ""},
	} {
		if _, err := b.c.Prompt(t.Context(), id, text, &client.InputOptions{Limits: c.limits}); err != nil {
			t.Fatal(err)
		}
		stream, err := b.JS.Stream(t.Context(), "AGENT_INBOX")
		if err != nil {
			t.Fatal(err)
		}
		m, err := stream.GetLastMsgForSubject(t.Context(), "agent."+id+".prompt")
		if err != nil {
			t.Fatal(err)
		}
		var body struct {
			Options struct {
				Limits json.RawMessage `json:"limits"`
			} `json:"options"`
		}
		if err := json.Unmarshal(m.Data, &body); err != nil || string(body.Options.Limits) != c.want {
			t.Errorf("%s: limits are %s (%v), want %s", id, body.Options.Limits, err, c.want)
		}
	}
	_, err := b.c.Prompt(t.Context(), "s", text, &client.InputOptions{Limits: &client.Limits{Turns: -1}})
	if !errors.Is(err, client.ErrLimits) {
		t.Errorf("a limit below 0: %v, want ErrLimits", err)
	}
}
