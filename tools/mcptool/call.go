package mcptool

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nats-io/nuid"

	"github.com/pi-worker/pi-worker/loop"
)

// Failure is why a call has no result of the server's own. It is the member
// "error" of the result's details.
type Failure string

const (
	// FailureAbsent: the server is not there; nothing ran.
	FailureAbsent Failure = "absent"
	// FailureVanished: the server died during the call; outcome unknown.
	FailureVanished Failure = "vanished"
	// FailureDeadline: no result in time; the server was told to stop.
	FailureDeadline Failure = "deadline"
	// FailureProtocol: the server answered with a protocol error.
	FailureProtocol Failure = "protocol"
)

// tool is one tool of a server.
type tool struct {
	server *server
	name   string // the server's
	spec   loop.ToolSpec
}

func (t *tool) Spec() loop.ToolSpec { return t.spec }

// Execute calls the server. All its failures are error results with a
// [Failure]; only the end of ctx is an error. In both cases the server is told
// to stop the call, and lives on.
func (t *tool) Execute(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
	session, err := t.server.current()
	if err != nil {
		return t.failed(FailureAbsent, "Not run: MCP server %s is not there: %v", t.server.cfg.Name, err), nil
	}
	calling, cancel := context.WithTimeout(ctx, t.server.cfg.Timeout)
	defer cancel()
	params := &mcp.CallToolParams{Name: t.name, Arguments: arguments(call.Args)}
	if call.Key != "" {
		params.Meta = mcp.Meta{"pi-worker/callKey": call.Key}
	}
	token := nuid.Next()
	params.SetProgressToken(token)
	t.server.listen(token, update)
	defer t.server.unlisten(token)
	res, err := session.CallTool(calling, params)
	switch {
	case err == nil:
		return convert(res), nil
	case ctx.Err() != nil:
		return loop.ToolResult{}, context.Cause(ctx)
	case calling.Err() != nil:
		return t.failed(FailureDeadline, "Tool %s gave no result within %s and was told to stop: outcome unknown",
			t.spec.Name, t.server.cfg.Timeout), nil
	case t.server.isLost(session, err):
		return t.failed(FailureVanished, "MCP server %s vanished during the call: outcome unknown", t.server.cfg.Name), nil
	}
	return t.failed(FailureProtocol, "MCP server %s: %v", t.server.cfg.Name, err), nil
}

func arguments(args json.RawMessage) any {
	if len(args) == 0 {
		return json.RawMessage("{}")
	}
	return args
}

func (t *tool) failed(why Failure, format string, args ...any) loop.ToolResult {
	res := loop.TextResult(fmt.Sprintf(format, args...))
	res.IsError = true
	// Strings only: it cannot fail.
	res.Details, _ = json.Marshal(struct {
		Error  Failure `json:"error"`
		Server string  `json:"server"`
		Tool   string  `json:"tool"`
	}{why, t.server.cfg.Name, t.name})
	return res
}

// isLost says that a call failed because its server is not there any more.
func (s *server) isLost(session *mcp.ClientSession, err error) bool {
	if _, ok := errors.AsType[*url.Error](err); ok || errors.Is(err, io.EOF) || errors.Is(err, mcp.ErrConnectionClosed) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session != session
}

func (s *server) listen(token string, update func(loop.ToolResult)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if update != nil {
		s.progress[token] = update
	}
}

func (s *server) unlisten(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.progress, token)
}

// progressed passes a notification to the call that it is about.
func (s *server) progressed(p *mcp.ProgressNotificationParams) {
	token, _ := p.ProgressToken.(string)
	s.mu.Lock()
	update := s.progress[token]
	s.mu.Unlock()
	if update == nil {
		return
	}
	text := p.Message
	if text == "" {
		text = fmt.Sprintf("%g", p.Progress)
		if p.Total > 0 {
			text += fmt.Sprintf(" of %g", p.Total)
		}
	}
	update(loop.TextResult(text + "\n"))
}

// convert carries a result over: text and images as they are, everything else
// as text that says what it was, structured content in the details.
func convert(res *mcp.CallToolResult) loop.ToolResult {
	out := loop.ToolResult{Content: []loop.Block{}, IsError: res.IsError}
	for _, c := range res.Content {
		out.Content = append(out.Content, block(c))
	}
	if res.StructuredContent != nil {
		structured, err := json.Marshal(res.StructuredContent)
		if err == nil {
			out.Details, err = json.Marshal(map[string]json.RawMessage{"structuredContent": structured})
		}
		switch {
		case err != nil:
			out.Content = append(out.Content, &loop.Text{Text: "structured content that is no JSON: " + err.Error()})
		case len(out.Content) == 0:
			out.Content = append(out.Content, &loop.Text{Text: string(structured)})
		}
	}
	if len(out.Content) == 0 {
		out.Content = append(out.Content, &loop.Text{Text: "(no output)"})
	}
	return out
}

func block(c mcp.Content) loop.Block {
	switch c := c.(type) {
	case *mcp.TextContent:
		return text(c.Text)
	case *mcp.ImageContent:
		return &loop.Image{Data: base64.StdEncoding.EncodeToString(c.Data), MIMEType: c.MIMEType}
	case *mcp.AudioContent:
		return text(fmt.Sprintf("[audio, %s, %d bytes]", c.MIMEType, len(c.Data)))
	case *mcp.ResourceLink:
		return text(strings.TrimSpace(fmt.Sprintf("[resource %s] %s %s", c.URI, c.Name, c.Description)))
	case *mcp.EmbeddedResource:
		return resource(c.Resource)
	}
	return text(fmt.Sprintf("[content of type %T]", c))
}

func resource(r *mcp.ResourceContents) loop.Block {
	switch {
	case r == nil:
		return text("[empty resource]")
	case r.Text != "":
		return text(r.Text)
	case strings.HasPrefix(r.MIMEType, "image/"):
		return &loop.Image{Data: base64.StdEncoding.EncodeToString(r.Blob), MIMEType: r.MIMEType}
	}
	return text(fmt.Sprintf("[resource %s, %s, %d bytes]", r.URI, r.MIMEType, len(r.Blob)))
}

func text(s string) *loop.Text { return &loop.Text{Text: strings.ToValidUTF8(s, "\uFFFD")} }
