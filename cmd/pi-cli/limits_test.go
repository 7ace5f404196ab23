package main

import (
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/client"
)

func TestLimitsAreReadByTheConfigurationsNames(t *testing.T) {
	got, err := parseLimits([]string{"turns=20", "wall_time=10m", "cost=0.50", "tokens=100000"})
	if err != nil {
		t.Fatal(err)
	}
	if want := (client.Limits{Turns: 20, WallTime: 10 * time.Minute, Cost: 0.5, Tokens: 100000}); *got != want {
		t.Errorf("%+v, want %+v", *got, want)
	}
	if got, err := parseLimits(nil); got != nil || err != nil {
		t.Errorf("%v, %v without the flag", got, err)
	}
}

func TestBadLimitIsAUsageError(t *testing.T) {
	f := newFleet(t)
	for flag, says := range map[string]string{
		"turns":        `"" is not a whole number above 0`,
		"turns=0":      `"0" is not a whole number above 0`,
		"turns=-3":     `"-3" is not`,
		"wall_time=10": `"10" is not a time above 0, such as 10m`,
		"cost=inf":     `"inf" is not US dollars`,
		"cost=NaN":     `"NaN" is not US dollars`,
		"steps=3":      "with one of cost, identical_calls, tokens, tool_calls, tree_cost, tree_tokens, turns, wall_time",
	} {
		f.cli(t, "prompt", "--limit", flag, "hi").want(t, exitUsage, "", says)
	}
}

// Two flags and one with a comma are the same, and reach the input.
func TestPromptCarriesItsLimits(t *testing.T) {
	f := newFleet(t)
	f.cli(t, "prompt", "--detach", "--session", "s", "--limit", "turns=2,cost=0.5", "--limit", "wall_time=1m", "hi").want(t, exitOK, "s ", "")
	stream, err := f.JS.Stream(t.Context(), "AGENT_INBOX")
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetLastMsgForSubject(t.Context(), "agent.s.prompt")
	if err != nil {
		t.Fatal(err)
	}
	result{out: string(m.Data)}.want(t, exitOK, `"limits":{"turns":2,"wallTime":"1m0s","cost":0.5}`, "")
}
