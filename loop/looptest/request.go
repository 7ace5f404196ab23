package looptest

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Request is one HTTP request that a [Script] got.
type Request struct {
	Number int // from 1
	Method string
	Path   string // with the query
	Header http.Header
	Body   json.RawMessage
	Time   time.Time
	ctx    context.Context
}

// Done is closed when the client has gone or the server stops.
func (r *Request) Done() <-chan struct{} { return r.ctx.Done() }

// API is "openai-responses" or "openai-completions", by the path.
func (r *Request) API() string {
	path, _, _ := strings.Cut(r.Path, "?")
	if strings.HasSuffix(path, "/responses") {
		return "openai-responses"
	}
	return "openai-completions"
}

// Turn is one entry of the conversation in a request, the same for both APIs.
type Turn struct {
	Role   string // system, developer, user, assistant, tool
	Text   string // its text parts, joined by newlines
	Images int    // pictures in it
	// CallID belongs to a tool's result.
	CallID string
	// Calls are an assistant's tool calls.
	Calls []Call
}

// Turns decodes the conversation; nil if the body is not a model request.
func (r *Request) Turns() []Turn {
	var body struct {
		Messages []wireItem `json:"messages"`
		Input    []wireItem `json:"input"`
	}
	if json.Unmarshal(r.Body, &body) != nil {
		return nil
	}
	turns := make([]Turn, 0, len(body.Messages)+len(body.Input))
	for _, it := range append(body.Messages, body.Input...) {
		turns = append(turns, it.turn())
	}
	return turns
}

// Last is the last entry of the conversation; a zero Turn if there is none.
func (r *Request) Last() Turn {
	turns := r.Turns()
	if len(turns) == 0 {
		return Turn{}
	}
	return turns[len(turns)-1]
}

// LastUser is the text of the last user message, "" if there is none.
func (r *Request) LastUser() string {
	turns := r.Turns()
	for i := len(turns) - 1; i >= 0; i-- {
		if turns[i].Role == "user" {
			return turns[i].Text
		}
	}
	return ""
}

// ToolResults counts the tool results after the last user message: which step
// of its work a scripted model is at.
func (r *Request) ToolResults() int {
	n := 0
	for _, t := range r.Turns() {
		switch t.Role {
		case "user":
			n = 0
		case "tool":
			n++
		}
	}
	return n
}

// Contains says whether any entry of that role has the text. An empty role
// means any.
func (r *Request) Contains(role, text string) bool {
	for _, t := range r.Turns() {
		if (role == "" || t.Role == role) && strings.Contains(t.Text, text) {
			return true
		}
	}
	return false
}

// wireItem is a Chat Completions message or a Responses input item.
type wireItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Output    json.RawMessage `json:"output"`
	CallID    string          `json:"call_id"`
	ToolCall  string          `json:"tool_call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (it *wireItem) turn() Turn {
	switch it.Type {
	case "function_call":
		return Turn{Role: "assistant", Calls: []Call{{ID: it.CallID, Name: it.Name, Args: it.Arguments}}}
	case "function_call_output":
		text, images := wireText(it.Output)
		return Turn{Role: "tool", Text: text, Images: images, CallID: it.CallID}
	case "reasoning":
		return Turn{Role: "assistant"}
	}
	t := Turn{Role: it.Role, CallID: it.ToolCall}
	t.Text, t.Images = wireText(it.Content)
	for _, c := range it.ToolCalls {
		t.Calls = append(t.Calls, Call{ID: c.ID, Name: c.Function.Name, Args: c.Function.Arguments})
	}
	return t
}

// wireText joins the text parts of a content that is a string or a list.
func wireText(raw json.RawMessage) (text string, images int) {
	if json.Unmarshal(raw, &text) == nil {
		return text, 0
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", 0
	}
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		switch p.Type {
		case "image_url", "input_image":
			images++
		default:
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n"), images
}
