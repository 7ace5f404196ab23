package looptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

var (
	checkedName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	dataURL     = regexp.MustCompile(`^data:[a-z0-9.+-]+/[a-z0-9.+-]+;base64,[A-Za-z0-9+/=]+$`)
)

// decodeStrict decodes one JSON value and refuses unknown fields and what
// follows.
func decodeStrict(raw []byte, v any) error {
	if !utf8.Valid(raw) {
		return errors.New("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("text after the value")
	}
	return nil
}

type chatRequest struct {
	Model                string            `json:"model"`
	Messages             []json.RawMessage `json:"messages"`
	Stream               bool              `json:"stream"`
	StreamOptions        json.RawMessage   `json:"stream_options"`
	Store                *bool             `json:"store"`
	MaxTokens            *int64            `json:"max_tokens"`
	MaxCompletionTokens  *int64            `json:"max_completion_tokens"`
	Temperature          *float64          `json:"temperature"`
	Tools                []chatTool        `json:"tools"`
	ToolStream           bool              `json:"tool_stream"`
	PromptCacheKey       string            `json:"prompt_cache_key"`
	PromptCacheRetention string            `json:"prompt_cache_retention"`
	ReasoningEffort      string            `json:"reasoning_effort"`
	Reasoning            json.RawMessage   `json:"reasoning"`
	Thinking             json.RawMessage   `json:"thinking"`
	EnableThinking       *bool             `json:"enable_thinking"`
	ChatTemplateKwargs   json.RawMessage   `json:"chat_template_kwargs"`
	Provider             json.RawMessage   `json:"provider"`
	ProviderOptions      json.RawMessage   `json:"providerOptions"`
}

type chatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict"`
	} `json:"function"`
	CacheControl json.RawMessage `json:"cache_control"`
}

type chatMessage struct {
	Role             string            `json:"role"`
	Content          json.RawMessage   `json:"content"`
	Name             string            `json:"name"`
	ToolCallID       string            `json:"tool_call_id"`
	ToolCalls        []json.RawMessage `json:"tool_calls"`
	Reasoning        *string           `json:"reasoning"`
	ReasoningContent *string           `json:"reasoning_content"`
	ReasoningText    *string           `json:"reasoning_text"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details"`
}

// CheckChatRequest reports why a strict Chat Completions server would refuse
// a request: unknown fields, empty messages, calls without a result or results
// without a call, arguments that are not JSON.
func CheckChatRequest(body []byte) error {
	var r chatRequest
	if err := decodeStrict(body, &r); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if r.Model == "" || len(r.Messages) == 0 {
		return errors.New("request: no model, or no messages")
	}
	for i, t := range r.Tools {
		if t.Type != "function" || t.Function.Name == "" || !bytes.HasPrefix(t.Function.Parameters, []byte("{")) {
			return fmt.Errorf("tools[%d]: not a function with parameters", i)
		}
	}
	open := openCalls{}
	for i, raw := range r.Messages {
		var m chatMessage
		err := decodeStrict(raw, &m)
		if err == nil {
			err = m.check(&open)
		}
		if err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	return open.settled()
}

// openCalls are the ids of the calls that wait for their results.
type openCalls []string

func (o *openCalls) open(id string) error {
	if id == "" || slices.Contains(*o, id) {
		return fmt.Errorf("call id %q is empty or used twice", id)
	}
	*o = append(*o, id)
	return nil
}

func (o *openCalls) close(id string) error {
	i := slices.Index(*o, id)
	if i < 0 {
		return fmt.Errorf("result for %q, which nobody called", id)
	}
	*o = slices.Delete(*o, i, i+1)
	return nil
}

func (o *openCalls) settled() error {
	if len(*o) > 0 {
		return fmt.Errorf("calls without a result: %q", []string(*o))
	}
	return nil
}

func (m *chatMessage) check(open *openCalls) error {
	if m.Role == "tool" {
		if err := stringContent(m.Content); err != nil {
			return err
		}
		return open.close(m.ToolCallID)
	}
	if err := open.settled(); err != nil {
		return err
	}
	if m.ToolCallID != "" || m.Role != "assistant" && len(m.ToolCalls) > 0 {
		return fmt.Errorf("a %s message with the fields of another role", m.Role)
	}
	switch m.Role {
	case "system", "developer":
		return textContent(m.Content)
	case "user":
		return userContent(m.Content)
	case "assistant":
		return m.checkAssistant(open)
	}
	return fmt.Errorf("role %q", m.Role)
}

func (m *chatMessage) checkAssistant(open *openCalls) error {
	if c := string(m.Content); c == "null" || c == `""` {
		if len(m.ToolCalls) == 0 {
			return errors.New("an assistant message with neither content nor calls")
		}
	} else if err := textContent(m.Content); err != nil {
		return err
	}
	for _, raw := range m.ToolCalls {
		var c struct {
			ID, Type string
			Function *struct{ Name, Arguments string }
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			return err
		}
		if c.Type != "function" || c.Function == nil || !checkedName.MatchString(c.Function.Name) {
			return fmt.Errorf("call %s: not a named function", raw)
		}
		if !json.Valid([]byte(c.Function.Arguments)) {
			return fmt.Errorf("call %s: arguments are not JSON", raw)
		}
		if err := open.open(c.ID); err != nil {
			return err
		}
	}
	return nil
}

func stringContent(raw json.RawMessage) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	if s == "" {
		return errors.New("empty content")
	}
	return nil
}

type contentPart struct {
	Type         string          `json:"type"`
	Text         *string         `json:"text"`
	ImageURL     json.RawMessage `json:"image_url"`
	Detail       string          `json:"detail"`
	CacheControl json.RawMessage `json:"cache_control"`
}

func contentParts(raw json.RawMessage) ([]contentPart, error) {
	var parts []contentPart
	if err := decodeStrict(raw, &parts); err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	if len(parts) == 0 {
		return nil, errors.New("content without parts")
	}
	return parts, nil
}

func textContent(raw json.RawMessage) error {
	if bytes.HasPrefix(raw, []byte(`"`)) {
		return stringContent(raw)
	}
	parts, err := contentParts(raw)
	for i, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return fmt.Errorf("content[%d]: not text", i)
		}
	}
	return err
}

func userContent(raw json.RawMessage) error {
	if bytes.HasPrefix(raw, []byte(`"`)) {
		return nil // an empty text of a user is accepted
	}
	parts, err := contentParts(raw)
	for i, p := range parts {
		switch p.Type {
		case "text":
			if p.Text == nil {
				return fmt.Errorf("content[%d]: no text", i)
			}
		case "image_url":
			var u struct {
				URL string `json:"url"`
			}
			if err := decodeStrict(p.ImageURL, &u); err != nil || !dataURL.MatchString(u.URL) {
				return fmt.Errorf("content[%d]: not an image", i)
			}
		default:
			return fmt.Errorf("content[%d]: type %q", i, p.Type)
		}
	}
	return err
}

type responsesRequest struct {
	Model                string            `json:"model"`
	Input                []json.RawMessage `json:"input"`
	Stream               bool              `json:"stream"`
	Store                *bool             `json:"store"`
	MaxOutputTokens      *int64            `json:"max_output_tokens"`
	Temperature          *float64          `json:"temperature"`
	PromptCacheKey       string            `json:"prompt_cache_key"`
	PromptCacheRetention string            `json:"prompt_cache_retention"`
	Include              []string          `json:"include"`
	Reasoning            json.RawMessage   `json:"reasoning"`
	Tools                []struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      *bool           `json:"strict"`
	} `json:"tools"`
}

// inputItem is one item of a Responses request.
type inputItem struct {
	Type             string          `json:"type"`
	Role             string          `json:"role"`
	ID               string          `json:"id"`
	CallID           string          `json:"call_id"`
	Name             string          `json:"name"`
	Arguments        string          `json:"arguments"`
	Output           json.RawMessage `json:"output"`
	Content          json.RawMessage `json:"content"`
	Status           string          `json:"status"`
	Phase            string          `json:"phase"`
	Summary          json.RawMessage `json:"summary"`
	EncryptedContent string          `json:"encrypted_content"`
}

// CheckResponsesRequest reports why a strict Responses server that stores
// nothing would refuse a request: calls without an output, outputs without a
// call, reasoning that leads to no item, ids it would not take.
func CheckResponsesRequest(body []byte) error {
	var r responsesRequest
	if err := decodeStrict(body, &r); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if r.Model == "" || len(r.Input) == 0 || r.Store == nil || *r.Store {
		return errors.New("request: no model, no input, or stored")
	}
	open := openCalls{}
	reasoning := false
	for i, raw := range r.Input {
		var it inputItem
		err := json.Unmarshal(raw, &it)
		if err == nil {
			err = it.check(&open)
		}
		leadsOn := it.Type == "message" || it.Type == "function_call" || it.Type == "reasoning"
		if err == nil && reasoning && !leadsOn {
			err = errors.New("the reasoning before it leads to no item")
		}
		if err != nil {
			return fmt.Errorf("input[%d]: %w", i, err)
		}
		reasoning = it.Type == "reasoning"
	}
	if reasoning {
		return errors.New("input: ends with reasoning")
	}
	return open.settled()
}

func (it *inputItem) check(open *openCalls) error {
	switch it.Type {
	case "function_call":
		if !checkedName.MatchString(it.Name) || !json.Valid([]byte(it.Arguments)) {
			return errors.New("not a call with a name and JSON arguments")
		}
		if it.ID != "" && (!strings.HasPrefix(it.ID, "fc") || len(it.ID) > 64) || len(it.CallID) > 64 {
			return fmt.Errorf("ids %q and %q", it.ID, it.CallID)
		}
		return open.open(it.CallID)
	case "function_call_output":
		if bytes.HasPrefix(it.Output, []byte("[")) {
			if err := inputParts(it.Output); err != nil {
				return err
			}
		} else if err := stringContent(it.Output); err != nil {
			return err
		}
		return open.close(it.CallID)
	case "reasoning":
		if it.ID == "" || it.Summary == nil || it.EncryptedContent == "" {
			return errors.New("reasoning without id, summary or encrypted content")
		}
		return nil
	}
	return it.checkMessage(open)
}

func (it *inputItem) checkMessage(open *openCalls) error {
	switch {
	case it.Type == "message" && it.Role == "assistant":
		if it.ID == "" || len(it.ID) > 64 {
			return fmt.Errorf("message id %q", it.ID)
		}
		return nil
	case it.Type != "":
		return fmt.Errorf("type %q with role %q", it.Type, it.Role)
	}
	if err := open.settled(); err != nil {
		return err
	}
	switch it.Role {
	case "system", "developer":
		return stringContent(it.Content)
	case "user":
		return inputParts(it.Content)
	}
	return fmt.Errorf("role %q", it.Role)
}

func inputParts(raw json.RawMessage) error {
	parts, err := contentParts(raw)
	for i, p := range parts {
		var url string
		switch p.Type {
		case "input_text":
			if p.Text == nil {
				return fmt.Errorf("content[%d]: no text", i)
			}
		case "input_image":
			if json.Unmarshal(p.ImageURL, &url) != nil || !dataURL.MatchString(url) {
				return fmt.Errorf("content[%d]: not an image", i)
			}
		default:
			return fmt.Errorf("content[%d]: type %q", i, p.Type)
		}
	}
	return err
}
