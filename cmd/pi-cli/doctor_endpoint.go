package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/loop/openai"
)

// endpoint is a model server that doctor asks a few questions.
type endpoint struct {
	base, model, key string
	client           *http.Client
}

func newEndpoint(base, model, key string) *endpoint {
	return &endpoint{strings.TrimSuffix(base, "/"), model, key, &http.Client{Timeout: 60 * time.Second}}
}

// answer is what came back to one request, and what is odd about it.
type answer struct {
	status    int
	kind      string // content type
	message   string // of an error
	isObject  bool   // the error has OpenAI's shape
	text      string
	finish    string
	done      bool // [DONE] came
	usages    int  // chunks with usage
	reasoning string
	nullError bool // chunks with "error": null
	inside    string
	calls     []string       // names, in order of their start
	indexes   map[int]string // of calls: id
	sameIndex bool           // two calls on one index
}

type chunk struct {
	Error   json.RawMessage `json:"error"`
	Usage   json.RawMessage `json:"usage"`
	Choices []struct {
		FinishReason string `json:"finish_reason"`
		Delta        struct {
			Content          string `json:"content"`
			ReasoningContent string `json:"reasoning_content"`
			Reasoning        string `json:"reasoning"`
			ToolCalls        []struct {
				Index    int    `json:"index"`
				ID       string `json:"id"`
				Function struct {
					Name string `json:"name"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"delta"`
	} `json:"choices"`
}

// ask sends one request for a streamed answer.
func (e *endpoint) ask(ctx context.Context, extra map[string]any, role, text string) (*answer, error) {
	messages := []map[string]string{{"role": "user", "content": text}}
	if role != "" {
		messages = append([]map[string]string{{"role": role, "content": "Answer in as few words as you can."}}, messages...)
	}
	body := map[string]any{"model": e.model, "stream": true, "messages": messages}
	for k, v := range extra {
		body[k] = v
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.base+"/chat/completions", bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if e.key != "" {
		req.Header.Set("Authorization", "Bearer "+e.key)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, kind: resp.Header.Get("Content-Type"), indexes: map[int]string{}}
	if resp.StatusCode != http.StatusOK {
		a.readError(io.LimitReader(resp.Body, 64<<10))
		return a, nil
	}
	return a, a.readStream(io.LimitReader(resp.Body, 8<<20))
}

func (a *answer) readError(r io.Reader) {
	data, err := io.ReadAll(r)
	if err != nil {
		return
	}
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	a.isObject = json.Unmarshal(data, &body) == nil && body.Error.Message != ""
	a.message = body.Error.Message
	if !a.isObject {
		a.message = firstLine(string(data), "nothing")
	}
}

func (a *answer) readStream(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(strings.TrimPrefix(lines.Text(), "\ufeff"), "data:")
		if !ok {
			continue
		}
		data = strings.TrimSpace(data)
		if data == "[DONE]" {
			a.done = true
			continue
		}
		var c chunk
		if json.Unmarshal([]byte(data), &c) == nil {
			a.add(&c)
		}
	}
	return lines.Err()
}

func (a *answer) add(c *chunk) {
	switch {
	case string(c.Error) == "null":
		a.nullError = true
	case len(c.Error) > 0:
		a.inside = string(c.Error)
	}
	if len(c.Usage) > 0 && string(c.Usage) != "null" {
		a.usages++
	}
	for _, choice := range c.Choices {
		a.text += choice.Delta.Content
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
		if choice.Delta.ReasoningContent != "" {
			a.reasoning = "reasoning_content"
		} else if choice.Delta.Reasoning != "" {
			a.reasoning = "reasoning"
		}
		for _, call := range choice.Delta.ToolCalls {
			if call.Function.Name == "" {
				continue
			}
			a.calls = append(a.calls, call.Function.Name)
			if before, ok := a.indexes[call.Index]; ok && before != call.ID {
				a.sameIndex = true
			}
			a.indexes[call.Index] = call.ID
		}
	}
}

// examine asks and reports. Compat settings are those of agents.<name>.compat.
func (e *endpoint) examine(ctx context.Context, r *report) {
	profile := openai.ProfileFor(e.base, "")
	name := config.MaskURL(e.base)
	a, err := e.ask(ctx, nil, "", "Say hi.")
	switch {
	case err != nil:
		r.line(bad, "endpoint", fmt.Sprintf("%s: %s", name, reason(err)), "is the URL right, with /v1, and reachable from here?")
		return
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		r.line(bad, "endpoint", fmt.Sprintf("%s refuses the key: %d", name, a.status), "put a valid key into the variable that --api-key-env names")
		return
	case a.status == http.StatusNotFound:
		r.line(bad, "endpoint", fmt.Sprintf("%s: 404 %s", name, a.message), "the base URL ends in /v1 with most servers; is --model right?")
		return
	case a.status != http.StatusOK:
		r.line(bad, "endpoint", fmt.Sprintf("%s: %d %s", name, a.status, a.message), "the endpoint takes not even a plain request")
		return
	}
	r.line(good, "endpoint", fmt.Sprintf("%s answers; profile %s, by its address", name, profile), "")
	e.stream(r, a)
	e.usage(ctx, r)
	e.roles(ctx, r)
	e.tools(ctx, r)
	e.errors(ctx, r)
}

func (e *endpoint) stream(r *report, a *answer) {
	if !strings.HasPrefix(a.kind, "text/event-stream") {
		r.line(bad, "stream", "the answer is "+a.kind+", not text/event-stream", "a proxy in between may gather the answer; ask its operator for streaming")
		return
	}
	switch {
	case a.inside != "":
		r.line(bad, "stream", "an error inside a 200: "+a.inside, "workers take it as an error and try again")
	case a.text == "":
		r.line(doubt, "stream", "no text in the answer", "is --model a chat model?")
	case a.finish == "" && !a.done:
		r.line(doubt, "stream", "ends without finish_reason and [DONE]", "set compat.no_terminal: true; cut answers can then not be told from whole ones")
	case a.finish == "" || !a.done:
		r.line(good, "stream", fmt.Sprintf("ends with finish_reason %q, [DONE] %v: one of them is enough", a.finish, a.done), "")
	default:
		r.line(good, "stream", "text, finish_reason "+a.finish+", [DONE]", "")
	}
	if a.nullError {
		r.line(doubt, "stream", `chunks carry "error": null`, "nothing to do: workers read it as none; other clients may break")
	}
	if a.reasoning != "" {
		r.line(good, "reasoning", "comes in "+a.reasoning, "")
	} else {
		r.line(good, "reasoning", "none without being asked", "")
	}
}

func (e *endpoint) usage(ctx context.Context, r *report) {
	a, err := e.ask(ctx, map[string]any{"stream_options": map[string]bool{"include_usage": true}}, "", "Say hi.")
	switch {
	case err != nil:
		r.line(bad, "usage", reason(err), "")
	case a.status != http.StatusOK:
		r.line(doubt, "usage", fmt.Sprintf("stream_options is refused: %d %s", a.status, a.message), "set compat.supports_usage_in_streaming: false")
	case a.usages == 0:
		r.line(doubt, "usage", "none is sent, even when asked for", "tokens and cost are estimated; limits.cost is not exact")
	case a.usages > 1:
		r.line(doubt, "usage", fmt.Sprintf("in %d chunks", a.usages), "nothing to do: workers take the last, others may add them up")
	default:
		r.line(good, "usage", "once, when asked for", "")
	}
}

func (e *endpoint) roles(ctx context.Context, r *report) {
	a, err := e.ask(ctx, nil, "developer", "Say hi.")
	if err == nil && a.status != http.StatusOK {
		r.line(doubt, "roles", fmt.Sprintf("developer is refused: %d %s", a.status, a.message), "set compat.supports_developer_role: false (as the profile "+"generic does)")
	} else if err == nil {
		r.line(good, "roles", "system and developer", "")
	}
	for _, field := range []string{"max_completion_tokens", "max_tokens"} {
		a, err := e.ask(ctx, map[string]any{field: 16}, "", "Say hi.")
		if err == nil && a.status == http.StatusOK {
			r.line(good, "limit", field+" is taken", "")
			return
		}
	}
	r.line(doubt, "limit", "neither max_completion_tokens nor max_tokens is taken", "leave max_tokens at 0")
}

func (e *endpoint) tools(ctx context.Context, r *report) {
	tool := func(name string) map[string]any {
		return map[string]any{"type": "function", "function": map[string]any{
			"name": name, "description": "The " + name + " of a city.",
			"parameters": map[string]any{"type": "object", "properties": map[string]any{"city": map[string]string{"type": "string"}}, "required": []string{"city"}},
		}}
	}
	a, err := e.ask(ctx, map[string]any{"tools": []any{tool("weather"), tool("population")}}, "",
		"Call both tools, weather and population, for Oslo, at once.")
	switch {
	case err != nil:
		r.line(bad, "tools", reason(err), "")
	case a.status != http.StatusOK:
		r.line(bad, "tools", fmt.Sprintf("refused: %d %s", a.status, a.message), "set tools: [] for agents on this endpoint")
	case len(a.calls) == 0:
		r.line(doubt, "tools", "the model called none", "another model may; without tools an agent can only talk")
	case a.sameIndex:
		r.line(doubt, "tools", "two calls share one index", "nothing to do: workers tell them apart by id; other clients join them")
	case len(a.calls) == 1:
		r.line(good, "tools", "one call at a time", "")
	default:
		r.line(good, "tools", fmt.Sprintf("%d calls in one answer", len(a.calls)), "")
	}
}

// errors asks for a model that cannot exist.
func (e *endpoint) errors(ctx context.Context, r *report) {
	other := *e
	other.model = "no-such-model-of-doctor"
	a, err := other.ask(ctx, nil, "", "Say hi.")
	switch {
	case err != nil:
		r.line(bad, "errors", reason(err), "")
	case a.status == http.StatusOK && a.inside == "":
		r.line(doubt, "errors", "any model name is taken", "nothing to do: a wrong model is not noticed here")
	case a.status == http.StatusOK:
		r.line(doubt, "errors", "come inside a 200", "nothing to do: workers look there; other clients take them for empty answers")
	case !a.isObject:
		r.line(doubt, "errors", fmt.Sprintf("%d without OpenAI's error object: %s", a.status, a.message), "nothing to do: workers show the text as it is")
	default:
		r.line(good, "errors", fmt.Sprintf("%d with a message", a.status), "")
	}
}
