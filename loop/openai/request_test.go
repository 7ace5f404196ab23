package openai

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

func mustModel(t testing.TB, cfg Config) *Model {
	t.Helper()
	if cfg.Info.ID == "" {
		cfg.Info.ID = "m"
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// png is an image of one point.
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

var anyText = rapid.SampledFrom([]string{"", " ", "hi", "ä\uFFFD", "\xff", "\uFFFD", "{}", "line\nline", "\x00\x1f"})

var anyID = rapid.SampledFrom([]string{"", "a", "b", "a|fc_1", "a|fc_2", "|fc_3", "a|weird+/=", "___", "|", strings.Repeat("x", 90)})

func drawContent(t *rapid.T) []loop.Block {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) loop.Block {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return &loop.Image{Data: png, MIMEType: "image/png"}
		case 1:
			return &loop.UnknownBlock{Type: "document", Raw: []byte(`{"type":"document"}`)}
		case 2:
			return &loop.Image{}
		}
		return &loop.Text{Text: anyText.Draw(t, "text")}
	}), 0, 3).Draw(t, "content")
}

func drawAnswerBlock(t *rapid.T) loop.Block {
	switch rapid.IntRange(0, 5).Draw(t, "block") {
	case 0:
		return &loop.Text{Text: anyText.Draw(t, "text"), Signature: rapid.SampledFrom([]string{
			"", "msg_1", `{"v":1,"id":"msg_1"}`, "{", `{"v":2}`, strings.Repeat("m", 80),
		}).Draw(t, "signature")}
	case 1:
		return &loop.Thinking{
			Thinking: anyText.Draw(t, "thinking"), Redacted: rapid.Bool().Draw(t, "redacted"),
			Signature: rapid.SampledFrom([]string{
				"", "reasoning", "reasoning_content", "content", "role", "{", `{"type":"reasoning","id":"rs_1","summary":[]}`,
				`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"E"}`,
				`{"field":"reasoning","reasoning_details":[{"type":"reasoning.text","text":"x"}]}`,
			}).Draw(t, "signature"),
		}
	}
	return &loop.ToolCall{
		ID:               anyID.Draw(t, "id"),
		Name:             rapid.SampledFrom([]string{"", "read", "no such tool", "ü", strings.Repeat("n", 99)}).Draw(t, "name"),
		Arguments:        json.RawMessage(rapid.SampledFrom([]string{"", "{}", `{"a":1}`, "[1]", `"s"`, "{"}).Draw(t, "args")),
		ThoughtSignature: rapid.SampledFrom([]string{"", "x", `{"type":"reasoning.encrypted","id":"a","data":"d"}`}).Draw(t, "thought"),
		Extra:            json.RawMessage(rapid.SampledFrom([]string{"", "{}", `{"extra_content":{"google":{"s":"x"}}}`, "{"}).Draw(t, "extra")),
		Incomplete:       rapid.SampledFrom([]string{"", "cut"}).Draw(t, "incomplete"),
	}
}

func drawMessage(t *rapid.T) loop.Message {
	switch rapid.IntRange(0, 3).Draw(t, "role") {
	case 0:
		m := &loop.UserMessage{Content: drawContent(t)}
		if rapid.Bool().Draw(t, "string") {
			m.Content, m.ContentString = []loop.Block{&loop.Text{Text: anyText.Draw(t, "text")}}, true
		}
		return m
	case 1:
		return &loop.ToolResultMessage{ToolCallID: anyID.Draw(t, "id"), ToolName: "read", Content: drawContent(t)}
	}
	m := &loop.AssistantMessage{
		API:        rapid.SampledFrom([]string{ChatCompletions, Responses}).Draw(t, "api"),
		Provider:   rapid.SampledFrom([]string{"openai", "other"}).Draw(t, "provider"),
		Model:      rapid.SampledFrom([]string{"m", "n"}).Draw(t, "model"),
		StopReason: rapid.SampledFrom([]loop.StopReason{"stop", "length", "toolUse", "error", "aborted"}).Draw(t, "stop"),
	}
	for range rapid.IntRange(0, 4).Draw(t, "blocks") {
		m.Content = append(m.Content, drawAnswerBlock(t))
	}
	return m
}

func drawRequest(t *rapid.T) *loop.Request {
	req := &loop.Request{SystemPrompt: "You are a test."}
	req.Messages = rapid.SliceOfN(rapid.Custom(drawMessage), 0, 8).Draw(t, "messages")
	if rapid.Bool().Draw(t, "tools") {
		req.Tools = []loop.ToolSpec{{Name: "read", Description: "reads", Parameters: json.RawMessage(`{"type": "object"}`)}}
	}
	return req
}

func TestAnyHistoryGivesAnAcceptableChatRequest(t *testing.T) {
	models := map[string]*Model{}
	for _, url := range []string{
		"https://api.openai.com/v1", "http://localhost:11434/v1", "https://api.deepseek.com", "https://openrouter.ai/api/v1",
		"https://api.mistral.ai/v1", "https://example.com/v1",
	} {
		models[url] = mustModel(t, Config{BaseURL: url, Info: loop.ModelInfo{Reasoning: true}})
	}
	yes := true
	models["text only, bridged"] = mustModel(t, Config{
		Info:   loop.ModelInfo{Input: []string{"text"}},
		Compat: &Compat{RequiresAssistantAfterToolResult: &yes, RequiresThinkingAsText: &yes, CacheControlFormat: "anthropic"},
	})
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		for name, m := range models {
			if body := m.chatBody(req); looptest.CheckChatRequest(body) != nil {
				t.Fatalf("%s: %v\n%s", name, looptest.CheckChatRequest(body), body)
			}
		}
	})
}

func TestAnyHistoryGivesAnAcceptableResponsesRequest(t *testing.T) {
	models := []*Model{
		mustModel(t, Config{API: Responses, Info: loop.ModelInfo{Reasoning: true}}),
		mustModel(t, Config{API: Responses, Info: loop.ModelInfo{Input: []string{"text"}, Provider: "third"}}),
	}
	rapid.Check(t, func(t *rapid.T) {
		req := drawRequest(t)
		for _, m := range models {
			if body := m.responsesBody(req); looptest.CheckResponsesRequest(body) != nil {
				t.Fatalf("%v\n%s", looptest.CheckResponsesRequest(body), body)
			}
		}
	})
}

// TestPrefixIsStable: a turn later the request begins with the same bytes, in
// another process as well.
func TestPrefixIsStable(t *testing.T) {
	for _, api := range []string{ChatCompletions, Responses} {
		m := mustModel(t, Config{API: api, Info: loop.ModelInfo{MaxTokens: 1000}, Headers: map[string]string{"a": "1", "b": "2"}})
		short, long := stableBodies(m)
		if !bytes.HasPrefix(long, short[:len(short)-2]) {
			t.Errorf("%s: the longer request does not begin with the shorter one:\n%s\n%s", api, short, long)
		}
	}
}

func stableBodies(m *Model) (short, long []byte) {
	tools := []loop.ToolSpec{
		{Name: "b", Parameters: json.RawMessage(`{"type":"object","properties":{"z":{},"a":{}}}`)},
		{Name: "a", Parameters: json.RawMessage(`{"type":"object"}`)},
	}
	one := &loop.Request{SystemPrompt: "s", Tools: tools, Messages: []loop.Message{loop.NewUserText("q")}}
	two := *one
	answer := &loop.AssistantMessage{
		API: m.cfg.API, Provider: "openai", Model: "m", StopReason: loop.StopToolUse,
		Content: []loop.Block{&loop.Text{Text: "x"}, &loop.ToolCall{ID: "c|fc_1", Name: "b", Arguments: json.RawMessage(`{"z": 1, "a": 2}`)}},
	}
	two.Messages = append(two.Messages[:1:1], answer,
		&loop.ToolResultMessage{ToolCallID: "c|fc_1", ToolName: "b", Content: []loop.Block{&loop.Text{Text: "r"}}})
	build := m.chatBody
	if m.cfg.API == Responses {
		build = m.responsesBody
	}
	return build(one), build(&two)
}

func TestRequestIsTheSameInAnotherProcess(t *testing.T) {
	const flag = "OPENAI_TEST_PRINT_BODIES"
	var all []byte
	for _, api := range []string{ChatCompletions, Responses} {
		short, long := stableBodies(mustModel(t, Config{API: api}))
		all = append(append(append(all, short...), '\n'), append(long, '\n')...)
	}
	if os.Getenv(flag) != "" {
		os.Stdout.Write(all)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), flag+"=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(out, all) {
		t.Errorf("another process builds another request:\n%s\n%s", all, out)
	}
}

// TestNothingOptionalIsSent: a plain server gets the model, the stream flag,
// the usage wish and the messages.
func TestNothingOptionalIsSent(t *testing.T) {
	m := mustModel(t, Config{BaseURL: "http://gpu-box:9000/v1", Info: loop.ModelInfo{ID: "m"}})
	got := string(m.chatBody(&loop.Request{Messages: []loop.Message{loop.NewUserText("hi")}}))
	want := `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
