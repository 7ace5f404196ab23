package openai

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/pi-worker/pi-worker/loop"
)

// chatMessages is the conversation in the shape of Chat Completions.
func (m *Model) chatMessages(req *loop.Request) []chatMessage {
	var out []chatMessage
	if clean(req.SystemPrompt) != "" {
		role := "system"
		if m.cfg.Info.Reasoning && m.compat.developer {
			role = "developer"
		}
		out = append(out, chatMessage{role: role, text: req.SystemPrompt, mark: m.marks(req)})
	}
	entries := m.history(req.Messages, m.chatCallID)
	afterResult := false
	for i := 0; i < len(entries); i++ {
		e := &entries[i]
		if afterResult && e.user != nil && m.compat.bridge {
			out = append(out, chatMessage{role: "assistant", text: resultsAreDone})
		}
		afterResult = false
		switch {
		case e.user != nil:
			if msg, ok := chatUser(e); ok {
				out = append(out, msg)
			}
		case e.assistant != nil:
			if msg, ok := m.chatAssistant(e.assistant); ok {
				out = append(out, msg)
			}
		default:
			var n int
			out, n, afterResult = m.chatResults(out, entries[i:])
			i += n - 1
		}
	}
	if m.marks(req) {
		markLast(out)
	}
	return out
}

// markLast puts the cache mark on the last text of the conversation.
func markLast(msgs []chatMessage) {
	for i := len(msgs) - 1; i >= 0; i-- {
		msg := &msgs[i]
		if (msg.role == "user" || msg.role == "assistant") && msg.hasText() {
			msg.mark = true
			return
		}
	}
}

func (msg *chatMessage) hasText() bool {
	for _, p := range msg.parts {
		if p.image == nil {
			return true
		}
	}
	return msg.text != ""
}

// chatCallID is the id of another model's call: of a Responses id the part
// that names the call, and no longer than servers take.
func (m *Model) chatCallID(id string, _ *loop.AssistantMessage) string {
	if head, _, ok := strings.Cut(id, "|"); ok {
		return idPart(head, 40)
	}
	if m.cfg.Info.Provider == "openai" && len(id) > 40 {
		return id[:40]
	}
	return id
}

func chatUser(e *entry) (chatMessage, bool) {
	msg := chatMessage{role: "user"}
	if t, ok := onlyText(e); ok {
		msg.text = t
		return msg, true
	}
	for _, b := range e.blocks {
		switch b := b.(type) {
		case *loop.Text:
			msg.parts = append(msg.parts, chatPart{text: b.Text})
		case *loop.Image:
			msg.parts = append(msg.parts, chatPart{image: b})
		}
	}
	return msg, len(msg.parts) > 0
}

// onlyText is the text of a user message that was a bare string.
func onlyText(e *entry) (string, bool) {
	if !e.user.ContentString {
		return "", false
	}
	if len(e.blocks) == 0 {
		return "", true
	}
	t, ok := e.blocks[0].(*loop.Text)
	if !ok || len(e.blocks) > 1 {
		return "", false
	}
	return t.Text, true
}

// chatAssistant is an earlier answer, if there is something to send of it.
func (m *Model) chatAssistant(a *assistant) (chatMessage, bool) {
	msg := chatMessage{role: "assistant", noText: true, calls: a.calls}
	var texts, thoughts []string
	var signature string
	for _, b := range a.blocks {
		switch b := b.(type) {
		case *loop.Text:
			if t := clean(b.Text); !blank(t) {
				texts = append(texts, t)
			}
		case *loop.Thinking:
			if !blank(b.Thinking) || isObject([]byte(b.Signature)) {
				if thoughts == nil {
					signature = b.Signature
				}
				thoughts = append(thoughts, b.Thinking)
			}
		}
	}
	msg.text = strings.Join(texts, "")
	msg.noText = msg.text == ""
	drop := m.compat.noThoughts || m.noThoughts.Load()
	if len(thoughts) > 0 && !drop {
		m.chatThoughts(&msg, signature, thoughts, texts)
	}
	for _, d := range callDetails(a.calls) {
		same := func(have json.RawMessage) bool { return bytes.Equal(have, d) }
		if !drop && !slices.ContainsFunc(msg.details, same) {
			msg.details = append(msg.details, d)
		}
	}
	msg.emptyThought = m.compat.reasoningContent && m.cfg.Info.Reasoning && msg.field != "reasoning_content"
	return msg, !msg.noText || msg.parts != nil || len(msg.calls) > 0
}

var fieldName = regexp.MustCompile(`^[a-z][a-z_]{0,39}$`)

// chatThoughts sends thinking back in the field that it came in.
func (m *Model) chatThoughts(msg *chatMessage, signature string, thoughts, texts []string) {
	if m.compat.thinkingText {
		msg.parts = append(msg.parts, chatPart{text: strings.Join(thoughts, "\n\n")})
		for _, t := range texts {
			msg.parts = append(msg.parts, chatPart{text: t})
		}
		return
	}
	if isObject([]byte(signature)) {
		elements(get([]byte(signature), "reasoning_details"), func(raw []byte) bool {
			msg.details = append(msg.details, json.RawMessage(raw))
			return true
		})
		signature = str(get([]byte(signature), "field"))
	}
	switch signature {
	case "role", "content", "name", "tool_calls", "refusal", "audio", "function_call":
		return
	}
	if fieldName.MatchString(signature) {
		msg.field, msg.think = signature, strings.Join(thoughts, "\n")
	}
}

// callDetails are the reasoning details that belong to calls.
func callDetails(calls []call) []json.RawMessage {
	var out []json.RawMessage
	for _, c := range calls {
		if sig := []byte(c.ThoughtSignature); isObject(sig) && json.Valid(sig) {
			out = append(out, sig)
		}
	}
	return out
}

// chatResults are the tool results at the head of entries, n of them. Images
// come after all of them, in one user message, because a tool message takes
// only text.
func (m *Model) chatResults(out []chatMessage, entries []entry) (_ []chatMessage, n int, open bool) {
	var images []chatPart
	for ; n < len(entries) && entries[n].result != nil; n++ {
		e := &entries[n]
		msg := chatMessage{role: "tool", text: resultText(e.blocks), callID: e.result.callID}
		if m.compat.resultName {
			msg.tool = e.result.tool
		}
		out = append(out, msg)
		for _, b := range e.blocks {
			if img, ok := b.(*loop.Image); ok {
				images = append(images, chatPart{image: img})
			}
		}
	}
	if images == nil {
		return out, n, true
	}
	if m.compat.bridge {
		out = append(out, chatMessage{role: "assistant", text: resultsAreDone})
	}
	parts := append([]chatPart{{text: resultImages}}, images...)
	return append(out, chatMessage{role: "user", parts: parts}), n, false
}
