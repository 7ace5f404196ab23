package openai

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/pi-worker/pi-worker/loop"
)

// responsesBody is the request of the Responses API: stateless, so that the
// log is the only memory. As with Chat Completions the conversation is last.
func (m *Model) responsesBody(req *loop.Request) []byte {
	b := make([]byte, 0, 4096)
	b = appendString(append(b, `{"model":`...), m.cfg.Info.ID)
	b = append(b, `,"stream":true,"store":false`...)
	if keep := retention(req); keep != "none" {
		if s := req.Options.SessionID; s != "" {
			b = appendString(append(b, `,"prompt_cache_key":`...), cacheKey(s))
		}
		if keep == "long" && m.compat.longCache {
			b = append(b, `,"prompt_cache_retention":"24h"`...)
		}
	}
	if n := m.maxTokens(req); n > 0 {
		b = strconv.AppendInt(append(b, `,"max_output_tokens":`...), n, 10)
	}
	b = appendTemperature(b, req.Options.Temperature)
	b = m.responsesThinking(b, req.Options.Reasoning)
	b = responsesTools(b, req.Tools)
	b = append(b, `,"input":[`...)
	in := inputWriter{m: m, b: b, req: req}
	in.write()
	return wholeUTF8(append(in.b, "]}"...))
}

func (m *Model) responsesThinking(b []byte, level string) []byte {
	if !m.cfg.Info.Reasoning {
		return b
	}
	if effort := m.effort(level); effort != "" {
		b = appendString(append(b, `,"reasoning":{"effort":`...), effort)
		return append(b, `,"summary":"auto"},"include":["reasoning.encrypted_content"]`...)
	}
	off, _, refused := m.off()
	if refused || m.cfg.Info.Provider == "github-copilot" {
		return b
	}
	return append(appendString(append(b, `,"reasoning":{"effort":`...), off), '}')
}

func responsesTools(b []byte, tools []loop.ToolSpec) []byte {
	if len(tools) == 0 {
		return b
	}
	b = append(b, `,"tools":[`...)
	for i := range tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"type":"function","name":`...), tools[i].Name)
		b = appendClean(append(b, `,"description":`...), tools[i].Description)
		b = appendSchema(append(b, `,"parameters":`...), tools[i].Parameters)
		b = append(b, `,"strict":false}`...)
	}
	return append(b, ']')
}

// inputWriter appends the items of a request's input.
type inputWriter struct {
	m     *Model
	req   *loop.Request
	b     []byte
	items int
	index int // messages so far, which names texts without an id
}

func (w *inputWriter) item() {
	if w.items > 0 {
		w.b = append(w.b, ',')
	}
	w.items++
}

func (w *inputWriter) write() {
	if clean(w.req.SystemPrompt) != "" {
		role := "system"
		if w.m.cfg.Info.Reasoning && w.m.compat.developer {
			role = "developer"
		}
		w.item()
		w.b = appendString(append(w.b, `{"role":`...), role)
		w.b = append(appendClean(append(w.b, `,"content":`...), w.req.SystemPrompt), '}')
	}
	for _, e := range w.m.history(w.req.Messages, w.m.responsesCallID) {
		sent := true
		switch {
		case e.user != nil:
			sent = w.user(&e)
		case e.assistant != nil:
			sent = w.assistant(e.assistant)
		default:
			w.result(&e)
		}
		if sent {
			w.index++
		}
	}
}

func (w *inputWriter) user(e *entry) bool {
	if len(e.blocks) == 0 && !e.user.ContentString {
		return false
	}
	w.item()
	w.b = append(w.b, `{"role":"user","content":[`...)
	if len(e.blocks) == 0 {
		w.b = append(w.b, `{"type":"input_text","text":""}`...)
	}
	w.parts(e.blocks)
	w.b = append(w.b, "]}"...)
	return true
}

// parts appends texts and images.
func (w *inputWriter) parts(blocks []loop.Block) {
	for i, b := range blocks {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		switch b := b.(type) {
		case *loop.Text:
			w.b = append(appendClean(append(w.b, `{"type":"input_text","text":`...), b.Text), '}')
		case *loop.Image:
			w.b = append(w.b, `{"type":"input_image","detail":"auto","image_url":`...)
			w.b = append(appendDataURL(w.b, b), '}')
		}
	}
}

func (w *inputWriter) result(e *entry) {
	id, _, _ := strings.Cut(e.result.callID, "|")
	w.item()
	w.b = appendString(append(w.b, `{"type":"function_call_output","call_id":`...), id)
	w.b = append(w.b, `,"output":`...)
	text := resultText(e.blocks)
	if !hasImages(e.blocks) {
		w.b = append(appendClean(w.b, text), '}')
		return
	}
	parts := make([]loop.Block, 0, len(e.blocks)+1)
	if text != seeImage {
		parts = append(parts, &loop.Text{Text: text})
	}
	for _, b := range e.blocks {
		if _, ok := b.(*loop.Image); ok {
			parts = append(parts, b)
		}
	}
	w.b = append(w.b, '[')
	w.parts(parts)
	w.b = append(w.b, "]}"...)
}

// assistant appends the items of an earlier answer. A reasoning item needs the
// item that it led to, and a call with an item id its reasoning: servers
// refuse one without the other.
func (w *inputWriter) assistant(a *assistant) bool {
	before, call, texts := w.items, 0, 0
	skipped := false
	for i, b := range a.blocks {
		switch b := b.(type) {
		case *loop.Thinking:
			if item := w.reasoning(b); item != nil && leads(a.blocks[i+1:]) {
				w.item()
				w.b = append(w.b, item...)
			} else {
				skipped = true
			}
		case *loop.Text:
			w.text(b, texts)
			texts++
		case *loop.ToolCall:
			w.call(&a.calls[call], a, skipped)
			call++
		}
	}
	return w.items > before
}

// leads reports whether an item follows the reasoning.
func leads(rest []loop.Block) bool {
	for _, b := range rest {
		switch b.(type) {
		case *loop.Text, *loop.ToolCall:
			return true
		}
	}
	return false
}

// reasoning is the item that a thinking block keeps in its signature, nil if
// it cannot be sent back.
func (w *inputWriter) reasoning(t *loop.Thinking) []byte {
	item := compact(json.RawMessage(t.Signature))
	if !isObject(item) || str(field(item, "type")) != "reasoning" || str(field(item, "id")) == "" {
		return nil
	}
	if w.m.compat.encrypted && str(field(item, "encrypted_content")) == "" {
		return nil
	}
	return item
}

func (w *inputWriter) text(t *loop.Text, n int) {
	id, phase := textSignature(t.Signature)
	switch {
	case id == "":
		if id = "msg_" + strconv.Itoa(w.index); n > 0 {
			id = fmt.Sprintf("%s_%d", id, n)
		}
	case len(id) > 64:
		id = "msg_" + shortHash(id)
	}
	w.item()
	w.b = append(w.b, `{"type":"message","role":"assistant","content":[{"type":"output_text","text":`...)
	w.b = appendClean(w.b, t.Text)
	w.b = append(w.b, `,"annotations":[]}],"status":"completed","id":`...)
	w.b = appendString(w.b, id)
	if phase != "" {
		w.b = appendString(append(w.b, `,"phase":`...), phase)
	}
	w.b = append(w.b, '}')
}

// call appends a function call. The item id is left out where the server would
// look for reasoning that is not sent: the id names a pair.
func (w *inputWriter) call(c *call, a *assistant, skipped bool) {
	id, item, _ := strings.Cut(c.id, "|")
	info := &w.m.cfg.Info
	other := a.msg.Model != info.ID && a.msg.Provider == info.Provider && a.msg.API == info.API
	if w.m.compat.encrypted && (skipped || !strings.HasPrefix(item, "fc") || len(item) > 64) {
		item = ""
	}
	if other && strings.HasPrefix(item, "fc_") {
		item = ""
	}
	w.item()
	w.b = append(w.b, `{"type":"function_call"`...)
	if item != "" {
		w.b = appendString(append(w.b, `,"id":`...), item)
	}
	w.b = appendString(append(w.b, `,"call_id":`...), id)
	w.b = appendString(append(w.b, `,"name":`...), toolName(c.Name, w.req.Tools))
	w.b = append(appendString(append(w.b, `,"arguments":`...), argumentText(c.ToolCall)), '}')
}

// textSignature reads what a text block keeps of its item.
func textSignature(sig string) (id, phase string) {
	if !strings.HasPrefix(sig, "{") {
		return sig, ""
	}
	raw := []byte(sig)
	if !json.Valid(raw) {
		return sig, ""
	}
	if string(field(raw, "v")) != "1" {
		return sig, ""
	}
	id, phase = str(field(raw, "id")), str(field(raw, "phase"))
	if phase != "commentary" && phase != "final_answer" {
		phase = ""
	}
	return id, phase
}

// appendTextSignature is what textSignature reads.
func appendTextSignature(b []byte, id, phase string) []byte {
	b = appendString(append(b, `{"v":1,"id":`...), id)
	if phase != "" {
		b = appendString(append(b, `,"phase":`...), phase)
	}
	return append(b, '}')
}

// pipeProviders are those whose servers take the two-part ids of Responses.
var pipeProviders = map[string]bool{"openai": true, "openai-codex": true, "opencode": true, "azure": true}

// responsesCallID is the id of another model's call, with an item id that the
// server accepts.
func (m *Model) responsesCallID(id string, from *loop.AssistantMessage) string {
	info := &m.cfg.Info
	head, item, ok := strings.Cut(id, "|")
	if !ok || !pipeProviders[info.Provider] {
		return trimmedPart(id)
	}
	item, _, _ = strings.Cut(item, "|")
	if from.Provider != info.Provider || from.API != info.API {
		item = "fc_" + shortHash(item)
	} else {
		item = trimmedPart(item)
	}
	if !strings.HasPrefix(item, "fc_") {
		item = trimmedPart("fc_" + item)
	}
	return trimmedPart(head) + "|" + item
}

func trimmedPart(s string) string { return strings.TrimRight(idPart(s, 64), "_") }
