package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestOpenAIVariablesAreTheDefaultProfiles(t *testing.T) {
	isolate(t)
	write(t, "pi-worker.yaml", "agents: {default: {base_url: 'http://file/v1'}, other: {}}")
	t.Setenv("OPENAI_BASE_URL", "http://openai/v1")
	t.Setenv("OPENAI_API_KEY", planted)
	cfg := mustLoad(t)
	def, other := cfg.Agents["default"], cfg.Agents["other"]
	if def.BaseURL != "http://openai/v1" || other.BaseURL != defaultBaseURL {
		t.Errorf("base URLs are %q and %q", def.BaseURL, other.BaseURL)
	}
	if key, err := def.APIKey(); err != nil || key.Reveal() != planted {
		t.Errorf("key is %q, %v", key, err)
	}
	if s := setting(t, cfg, "agents.default.base_url"); s.Origin.String() != "env OPENAI_BASE_URL" {
		t.Errorf("origin is %q", s.Origin)
	}
	t.Setenv("PI_AGENTS_DEFAULT_BASE_URL", "http://own/v1")
	if got := mustLoad(t).Agents["default"].BaseURL; got != "http://own/v1" {
		t.Errorf("base URL is %q", got)
	}
	if got := mustLoad(t, "--base-url", "http://flag/v1").Agents["default"].BaseURL; got != "http://flag/v1" {
		t.Errorf("base URL is %q", got)
	}
}

// A key goes only to the endpoint that it was given for.
func TestNoKeyForAnothersEndpoint(t *testing.T) {
	isolate(t)
	t.Setenv("OPENAI_API_KEY", planted)
	t.Setenv("OTHER_KEY", "other")
	write(t, "pi-worker.yaml", `
defaults: {headers: {X-Key: `+planted+`}}
agents:
  same: {}
  local: {base_url: "http://localhost:11434/v1"}
  own: {base_url: "http://h/v1", api_key_env: OTHER_KEY}
  unset: {api_key_env: NOT_SET_ANYWHERE}
  file: {api_key_file: key.txt}
`)
	cfg := mustLoad(t)
	for name, want := range map[string]Secret{"same": planted, "local": "", "own": "other"} {
		p := cfg.Agents[name]
		if key, err := p.APIKey(); err != nil || key != want {
			t.Errorf("%s: key is not the one wanted, %v", name, err)
		}
		if inherits := len(p.Headers) == 1; inherits != (name == "same") {
			t.Errorf("%s: headers are %v", name, p.Headers)
		}
	}
	if _, err := cfg.Agents["unset"].APIKey(); !errors.Is(err, ErrAPIKey) || !strings.Contains(err.Error(), "NOT_SET_ANYWHERE") {
		t.Errorf("got %v", err)
	}
	if _, err := cfg.Agents["file"].APIKey(); !errors.Is(err, ErrAPIKey) {
		t.Errorf("got %v", err)
	}
	for _, key := range []string{"one", "two"} { // read anew each time
		write(t, "key.txt", key+"\n")
		if got, err := cfg.Agents["file"].APIKey(); err != nil || got.Reveal() != key {
			t.Errorf("got %v", err)
		}
	}
}

func TestOpenAINeedsAKeyAndLocalServersNone(t *testing.T) {
	isolate(t)
	if _, err := mustLoad(t).Agents["default"].APIKey(); !errors.Is(err, ErrAPIKey) {
		t.Errorf("got %v", err)
	}
	if _, err := mustLoad(t, "--base-url", "http://localhost:8080/v1").Agents["default"].APIKey(); err != nil {
		t.Error(err)
	}
}

func TestSystemPromptFromFileOrText(t *testing.T) {
	isolate(t)
	write(t, "prompt.md", "Be brief.\n")
	write(t, "pi-worker.yaml", "defaults: {system_prompt_file: prompt.md}\nagents: {a: {}, b: {system_prompt: Be long.}}")
	cfg := mustLoad(t)
	for name, want := range map[string]string{"default": "Be brief.", "a": "Be brief.", "b": "Be long."} {
		if got := cfg.Agents[name].SystemPrompt; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestProfileByName(t *testing.T) {
	isolate(t)
	write(t, "pi-worker.yaml", "agents: {Coder: {model: m}}")
	cfg := mustLoad(t)
	for _, name := range []string{"coder", "Coder", "CODER"} {
		if p, err := cfg.Profile(name); err != nil || p.Model != "m" {
			t.Errorf("%s: %v, %v", name, p.Model, err)
		}
	}
	if p, err := cfg.Profile(""); err != nil || p.Name != DefaultAgent {
		t.Errorf("%q, %v", p.Name, err)
	}
	_, err := cfg.Profile("codr")
	want := `config: no such agent profile: "codr" (there are: coder, default); did you mean "coder"?`
	if !errors.Is(err, ErrUnknownAgent) || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestPromptsNarrowAndNeverWiden(t *testing.T) {
	p := Profile{
		Name: "a", Model: "m", Models: []string{"n"}, Reasoning: "low", MaxReasoning: "medium", MaxTokens: 100,
		Tools: []string{"read", "ls"}, Limits: Limits{Turns: 10, WallTime: time.Hour},
	}
	got, err := p.Narrow(Narrowing{Model: "n", Reasoning: "medium", MaxTokens: 500, Tools: []string{"ls"}, Limits: Limits{Turns: 3, WallTime: 2 * time.Hour, Tokens: 5, Cost: -1}})
	if err != nil {
		t.Fatal(err)
	}
	if got.Model != "n" || got.Reasoning != "medium" || got.MaxTokens != 100 || len(got.Tools) != 1 ||
		got.Limits != (Limits{Turns: 3, WallTime: time.Hour, Tokens: 5}) {
		t.Errorf("got %+v", got)
	}
	if same, err := p.Narrow(Narrowing{}); err != nil || !reflect.DeepEqual(same, p) {
		t.Errorf("got %+v, %v", same, err)
	}
	_, err = p.Narrow(Narrowing{Model: "x", Reasoning: "high", Tools: []string{"bash"}})
	for _, want := range []string{
		`config: more than the agent profile allows: agent "a": model "x" (allowed: m, n)`,
		`reasoning "high" (allowed: off, minimal, low, medium)`,
		`tool "bash" (allowed: read, ls)`,
	} {
		if !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := p.Narrow(Narrowing{Reasoning: "vast"}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("got %v", err)
	}
}
