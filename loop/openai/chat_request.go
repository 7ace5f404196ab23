package openai

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/pi-worker/pi-worker/loop"
)

// chatMessage is one message of a Chat Completions request. Of text, parts and
// none, one is its content.
type chatMessage struct {
	role   string
	text   string
	parts  []chatPart // instead of text, if not nil
	noText bool       // content is null, or "" where null is refused
	mark   bool       // cache mark on the last text
	field  string     // where thinking goes back
	think  string
	// emptyThought adds an empty reasoning_content.
	emptyThought bool
	details      []json.RawMessage
	calls        []call
	callID       string // tool
	tool         string // tool, where the name is required
}

type chatPart struct {
	text  string
	image *loop.Image
}

// chatBody is the request. What stays the same from turn to turn comes first
// and the messages last, in their order: a longer conversation's body begins
// with the bytes of the shorter one's.
func (m *Model) chatBody(req *loop.Request) []byte {
	c := &m.compat
	b := make([]byte, 0, 4096)
	b = append(b, `{"model":`...)
	b = appendString(b, m.cfg.Info.ID)
	b = append(b, `,"stream":true`...)
	if c.usage && !m.noUsage.Load() {
		b = append(b, `,"stream_options":{"include_usage":true}`...)
	}
	if c.store {
		b = append(b, `,"store":false`...)
	}
	b = m.chatCacheHints(b, req)
	if n := m.maxTokens(req); n > 0 {
		name := "max_completion_tokens"
		if c.maxTokens == "max_tokens" {
			name = "max_tokens"
		}
		b = strconv.AppendInt(append(append(append(b, `,"`...), name...), `":`...), n, 10)
	}
	b = appendTemperature(b, req.Options.Temperature)
	b = m.chatThinking(b, req.Options.Reasoning)
	b = m.routing(b)
	b = m.chatTools(b, req)
	b = append(b, `,"messages":[`...)
	for i, msg := range m.chatMessages(req) {
		if i > 0 {
			b = append(b, ',')
		}
		b = m.appendChatMessage(b, &msg, req)
	}
	return wholeUTF8(append(b, "]}"...))
}

// wholeUTF8 is a body without the broken characters that fields kept byte for
// byte may have brought in from a provider.
func wholeUTF8(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	return bytes.ToValidUTF8(b, []byte("\uFFFD"))
}

func appendTemperature(b []byte, t *float64) []byte {
	if t == nil {
		return b
	}
	return strconv.AppendFloat(append(b, `,"temperature":`...), *t, 'g', -1, 64)
}

// retention is the wish for the prompt cache, "short" by default.
func retention(req *loop.Request) string {
	if r := req.Options.CacheRetention; r != "" {
		return r
	}
	return "short"
}

// cacheKey is the session as the prompt cache knows it, at most 64 characters.
func cacheKey(session string) string {
	if len(session) > 64 {
		return session[:64]
	}
	return session
}

func (m *Model) chatCacheHints(b []byte, req *loop.Request) []byte {
	keep := retention(req)
	long := keep == "long" && m.compat.longCache
	own := ProfileFor(m.cfg.BaseURL, "") == "openai" && keep != "none"
	if s := req.Options.SessionID; s != "" && (long || own) {
		b = appendString(append(b, `,"prompt_cache_key":`...), cacheKey(s))
	}
	if long {
		b = append(b, `,"prompt_cache_retention":"24h"`...)
	}
	return b
}

// chatThinking switches reasoning on or off in the endpoint's own way.
func (m *Model) chatThinking(b []byte, level string) []byte {
	if !m.cfg.Info.Reasoning {
		return b
	}
	effort := m.effort(level)
	on := strconv.FormatBool(effort != "")
	off, set, refused := m.off()
	switch m.compat.thinking {
	case "zai", "qwen":
		return append(append(b, `,"enable_thinking":`...), on...)
	case "qwen-chat-template":
		b = append(append(b, `,"chat_template_kwargs":{"enable_thinking":`...), on...)
		return append(b, `,"preserve_thinking":true}`...)
	case "deepseek":
		if effort == "" {
			return append(b, `,"thinking":{"type":"disabled"}`...)
		}
		return appendEffort(append(b, `,"thinking":{"type":"enabled"}`...), effort)
	case "openrouter":
		if effort == "" {
			effort = off
		}
		if refused && effort == "" {
			return b
		}
		return append(appendString(append(b, `,"reasoning":{"effort":`...), effort), '}')
	case "together":
		b = append(append(append(b, `,"reasoning":{"enabled":`...), on...), '}')
		if effort != "" && m.compat.effort {
			b = appendEffort(b, effort)
		}
		return b
	}
	if effort == "" && set {
		effort = off
	}
	if effort == "" || !m.compat.effort {
		return b
	}
	return appendEffort(b, effort)
}

func appendEffort(b []byte, effort string) []byte {
	return appendString(append(b, `,"reasoning_effort":`...), effort)
}

func (m *Model) routing(b []byte) []byte {
	switch ProfileFor(m.cfg.BaseURL, "") {
	case "openrouter":
		if r := compact(m.compat.openRouter); r != nil {
			b = append(append(b, `,"provider":`...), r...)
		}
	case "vercel":
		if r := compact(m.compat.vercel); r != nil {
			b = append(append(append(b, `,"providerOptions":{"gateway":`...), r...), '}')
		}
	}
	return b
}

// compact is a JSON value without white space, nil if it is none.
func compact(raw json.RawMessage) []byte {
	var buf bytes.Buffer
	if len(raw) == 0 || json.Compact(&buf, raw) != nil {
		return nil
	}
	return buf.Bytes()
}

// appendSchema appends a tool's parameters.
func appendSchema(b []byte, raw json.RawMessage) []byte {
	if s := compact(raw); isObject(s) {
		return append(b, s...)
	}
	return append(b, `{"type":"object","properties":{}}`...)
}

func (m *Model) chatTools(b []byte, req *loop.Request) []byte {
	if len(req.Tools) == 0 {
		if hasCalls(req.Messages) {
			b = append(b, `,"tools":[]`...) // some proxies want it next to calls
		}
		return b
	}
	b = append(b, `,"tools":[`...)
	for i := range req.Tools {
		t := &req.Tools[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"type":"function","function":{"name":`...), t.Name)
		b = appendClean(append(b, `,"description":`...), t.Description)
		b = appendSchema(append(b, `,"parameters":`...), t.Parameters)
		if m.compat.strict {
			b = append(b, `,"strict":false`...)
		}
		b = append(b, '}')
		if i == len(req.Tools)-1 && m.marks(req) {
			b = m.appendMark(b, req)
		}
		b = append(b, '}')
	}
	b = append(b, ']')
	if m.compat.zaiToolStream {
		b = append(b, `,"tool_stream":true`...)
	}
	return b
}

// marks reports whether parts are marked for the cache.
func (m *Model) marks(req *loop.Request) bool {
	return m.compat.cacheControl == "anthropic" && retention(req) != "none"
}

func (m *Model) appendMark(b []byte, req *loop.Request) []byte {
	b = append(b, `,"cache_control":{"type":"ephemeral"`...)
	if retention(req) == "long" && m.compat.longCache {
		b = append(b, `,"ttl":"1h"`...)
	}
	return append(b, '}')
}

func (m *Model) appendChatMessage(b []byte, msg *chatMessage, req *loop.Request) []byte {
	b = appendString(append(b, `{"role":`...), msg.role)
	b = append(b, `,"content":`...)
	switch {
	case msg.parts != nil:
		b = m.appendParts(b, msg, req)
	case msg.noText && m.compat.bridge:
		b = append(b, `""`...)
	case msg.noText:
		b = append(b, "null"...)
	case msg.mark:
		b = appendClean(append(b, `[{"type":"text","text":`...), msg.text)
		b = append(m.appendMark(b, req), "}]"...)
	default:
		b = appendClean(b, msg.text)
	}
	if msg.field != "" {
		b = append(appendString(append(b, ','), msg.field), ':')
		b = appendString(b, msg.think)
	}
	if msg.emptyThought {
		b = append(b, `,"reasoning_content":""`...)
	}
	if len(msg.calls) > 0 {
		b = appendCalls(b, msg.calls, req.Tools)
	}
	if len(msg.details) > 0 {
		b = append(b, `,"reasoning_details":[`...)
		b = append(bytesJoin(b, msg.details), ']')
	}
	if msg.role == "tool" {
		b = appendString(append(b, `,"tool_call_id":`...), msg.callID)
		if msg.tool != "" {
			b = appendString(append(b, `,"name":`...), msg.tool)
		}
	}
	return append(b, '}')
}

func bytesJoin(b []byte, items []json.RawMessage) []byte {
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, item...)
	}
	return b
}

func (m *Model) appendParts(b []byte, msg *chatMessage, req *loop.Request) []byte {
	last := -1
	if msg.mark {
		for i := range msg.parts {
			if msg.parts[i].image == nil {
				last = i
			}
		}
	}
	b = append(b, '[')
	for i, part := range msg.parts {
		if i > 0 {
			b = append(b, ',')
		}
		if part.image != nil {
			b = append(b, `{"type":"image_url","image_url":{"url":`...)
			b = append(appendDataURL(b, part.image), "}}"...)
			continue
		}
		b = appendClean(append(b, `{"type":"text","text":`...), part.text)
		if i == last {
			b = m.appendMark(b, req)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendCalls(b []byte, calls []call, offered []loop.ToolSpec) []byte {
	b = append(b, `,"tool_calls":[`...)
	for i, c := range calls {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"id":`...), c.id)
		b = append(b, `,"type":"function","function":{"name":`...)
		b = appendString(b, toolName(c.Name, offered))
		b = appendString(append(b, `,"arguments":`...), argumentText(c.ToolCall))
		b = append(b, '}')
		if n := len(c.Extra); n > 2 && isObject(c.Extra) && json.Valid(c.Extra) {
			b = append(append(b, ','), bytes.TrimSpace(c.Extra[1:n-1])...)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}
