package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

func TestProfileFor(t *testing.T) {
	for _, c := range []struct{ url, provider, want string }{
		{"https://api.openai.com/v1", "", "openai"},
		{"https://x.openai.azure.com/openai/v1?api-version=preview", "", "azure"},
		{"http://localhost:11434/v1", "", "ollama"},
		{"http://gpu:8000/v1", "", "vllm"},
		{"http://localhost:8080/v1", "", "llamacpp"},
		{"http://localhost:8080/v1", "openai", "openai"},
		{"http://gpu:9999/v1", "vLLM", "vllm"},
		{"https://openrouter.ai/api/v1", "", "openrouter"},
		{"https://openrouter.ai/api/v1", "openai", "openrouter"},
		{"https://api.deepseek.com", "", "deepseek"},
		{"https://generativelanguage.googleapis.com/v1beta/openai/", "", "gemini"},
		{"https://api.groq.com/openai/v1", "", "groq"},
		{"https://api.mistral.ai/v1", "", "mistral"},
		{"https://llm.example.com/v1", "", "generic"},
		{"https://llm.example.com/v1", "acme", "generic"},
		{"://", "", "openai"},
	} {
		if got := ProfileFor(c.url, c.provider); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.url, c.provider, got, c.want)
		}
	}
}

// profileBody is a request of a reasoning model with a tool and a limit.
func profileBody(t *testing.T, url string, set *Compat) map[string]json.RawMessage {
	m := mustModel(t, Config{BaseURL: url, Compat: set, Info: loop.ModelInfo{Reasoning: true}})
	body := m.chatBody(&loop.Request{
		SystemPrompt: "s", Messages: []loop.Message{loop.NewUserText("hi")},
		Tools:   []loop.ToolSpec{{Name: "t", Parameters: json.RawMessage(`{"type":"object"}`)}},
		Options: loop.ModelOptions{MaxTokens: 7, Reasoning: "low"},
	})
	if err := looptest.CheckChatRequest(body); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func TestProfiles(t *testing.T) {
	for url, want := range map[string]string{
		"https://api.openai.com/v1":                                "store max_completion_tokens developer strict reasoning_effort=\"low\"",
		"https://x.openai.azure.com/openai/v1":                     "store max_completion_tokens developer strict reasoning_effort=\"low\"",
		"https://openrouter.ai/api/v1":                             "store max_completion_tokens developer strict reasoning={\"effort\":\"low\"}",
		"https://api.deepseek.com":                                 "max_completion_tokens strict thinking={\"type\":\"enabled\"} reasoning_effort=\"low\"",
		"https://api.groq.com/openai/v1":                           "max_completion_tokens reasoning_effort=\"low\"",
		"https://api.mistral.ai/v1":                                "max_tokens no-usage",
		"https://generativelanguage.googleapis.com/v1beta/openai/": "max_tokens reasoning_effort=\"low\"",
		"http://localhost:11434/v1":                                "max_tokens reasoning_effort=\"low\"",
		"http://localhost:8000/v1":                                 "max_tokens reasoning_effort=\"low\"",
		"http://localhost:8080/v1":                                 "max_tokens reasoning_effort=\"low\"",
		"https://llm.example.com/v1":                               "max_tokens reasoning_effort=\"low\"",
	} {
		f := profileBody(t, url, nil)
		var got []string
		for _, name := range []string{"store", "max_completion_tokens", "max_tokens"} {
			if f[name] != nil {
				got = append(got, name)
			}
		}
		if strings.Contains(string(f["messages"]), "developer") {
			got = append(got, "developer")
		}
		if strings.Contains(string(f["tools"]), "strict") {
			got = append(got, "strict")
		}
		for _, name := range []string{"thinking", "reasoning", "reasoning_effort"} {
			if f[name] != nil {
				got = append(got, name+"="+string(f[name]))
			}
		}
		if f["stream_options"] == nil {
			got = append(got, "no-usage")
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s:\ngot  %s\nwant %s", url, s, want)
		}
	}
}

func TestCompatFieldsOverrideTheProfile(t *testing.T) {
	var c Compat
	err := json.Unmarshal([]byte(`{"supportsStore":false,"supportsStrictMode":false,"maxTokensField":"max_tokens","thinkingFormat":"qwen","zaiToolStream":true,"openRouterRouting":{"only":["x"]}}`), &c)
	if err != nil {
		t.Fatal(err)
	}
	f := profileBody(t, "https://openrouter.ai/api/v1", &c)
	for name, want := range map[string]string{
		"store": "", "max_tokens": "7", "max_completion_tokens": "", "enable_thinking": "true", "tool_stream": "true", "provider": `{"only":["x"]}`,
	} {
		if string(f[name]) != want {
			t.Errorf("%s: %s, want %s", name, f[name], want)
		}
	}
}

func TestHeaders(t *testing.T) {
	answer := looptest.Text("x")
	for name, c := range map[string]struct {
		cfg     Config
		options loop.ModelOptions
		want    string
	}{
		"key":               {Config{APIKey: "own"}, loop.ModelOptions{}, "Bearer own|||"},
		"key of the call":   {Config{APIKey: "own"}, loop.ModelOptions{APIKey: "call"}, "Bearer call|||"},
		"no key":            {Config{}, loop.ModelOptions{}, "|||"},
		"Azure's":           {Config{APIKey: "own", Info: loop.ModelInfo{Provider: "azure"}}, loop.ModelOptions{}, "|own||"},
		"session":           {Config{API: Responses}, loop.ModelOptions{SessionID: "s1"}, "||s1|s1"},
		"session, no cache": {Config{API: Responses}, loop.ModelOptions{SessionID: "s1", CacheRetention: "none"}, "|||"},
		"chat session":      {Config{}, loop.ModelOptions{SessionID: "s1"}, "|||"},
		"own header wins":   {Config{API: Responses, Headers: map[string]string{"session_id": "a"}}, loop.ModelOptions{SessionID: "s1", Headers: map[string]string{"session_id": "b"}}, "||b|s1"},
	} {
		m, script := answers(t, c.cfg, answer)
		collect(t, m, &loop.Request{Messages: []loop.Message{loop.NewUserText("hi")}, Options: c.options})
		h := script.Requests()[0].Header
		got := fmt.Sprintf("%s|%s|%s|%s", h.Get("Authorization"), h.Get("Api-Key"), h.Get("Session_id"), h.Get("X-Client-Request-Id"))
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestQueryOfTheBaseURLIsKept(t *testing.T) {
	script := looptest.NewScript(looptest.Text("x"))
	defer script.Close()
	m := mustModel(t, Config{BaseURL: script.BaseURL() + "?api-version=2025-04-01"})
	if s := collect(t, m, nil); s.text() != "x" {
		t.Errorf("%+v", s.err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]Config{
		"URL": {BaseURL: "localhost:11434", Info: loop.ModelInfo{ID: "m"}}, "API": {API: "x", Info: loop.ModelInfo{ID: "m"}},
		"model": {}, "key": {APIKey: "a\nb", Info: loop.ModelInfo{ID: "m"}},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestEnvironmentIsNotRead: a key in the environment is OpenAI's, not that of
// whatever endpoint is configured.
func TestEnvironmentIsNotRead(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-from-environment")
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
	m, script := answers(t, Config{}, looptest.Text("x"))
	collect(t, m, nil)
	if h := script.Requests()[0].Header.Get("Authorization"); h != "" {
		t.Errorf("Authorization: %s", h)
	}
}

func TestThinkingLevels(t *testing.T) {
	word := func(s string) *string { return &s }
	for _, c := range []struct {
		levels map[string]*string
		ask    string
		want   string
	}{
		{nil, "low", "low"}, {nil, "xhigh", "high"}, {nil, "", ""}, {nil, "off", ""}, {nil, "banana", ""},
		{map[string]*string{"low": word("LOW"), "xhigh": word("max")}, "xhigh", "max"},
		{map[string]*string{"minimal": nil, "low": nil}, "minimal", "medium"},
		{map[string]*string{"medium": nil, "high": nil}, "high", "low"},
		{map[string]*string{"minimal": nil, "low": nil, "medium": nil, "high": nil}, "low", ""},
	} {
		m := mustModel(t, Config{ThinkingLevelMap: c.levels, Info: loop.ModelInfo{Reasoning: true}})
		if got := m.effort(c.ask); got != c.want {
			t.Errorf("%v, %s: %q, want %q", c.levels, c.ask, got, c.want)
		}
	}
}
