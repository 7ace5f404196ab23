package openai

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/pi-worker/pi-worker/loop"
)

// What is said in the place of something that cannot be sent.
const (
	noResult       = "No result provided"
	noOutput       = "(no output)"
	seeImage       = "(see attached image)"
	imageOmitted   = "(image omitted: model does not support images)"
	toolImageGone  = "(tool image omitted: model does not support images)"
	resultImages   = "Attached image(s) from tool result:"
	resultsAreDone = "I have processed the tool results."
)

// entry is one message of a history that a server accepts: user, assistant or
// tool result. Every call has exactly one result, which follows it before
// anything else does; results without a call, and failed answers, are gone.
type entry struct {
	user      *loop.UserMessage
	blocks    []loop.Block // of the user message or the tool result
	assistant *assistant
	result    *result
}

// assistant is an earlier answer as this model may see it.
type assistant struct {
	msg    *loop.AssistantMessage
	blocks []loop.Block
	// calls are the tool calls of blocks, by position, with the ids to send.
	calls []call
	same  bool // this model's own answer
}

type call struct {
	*loop.ToolCall
	id       string // as it is sent
	original string // as it is in the history
	answered bool
}

type result struct {
	callID, tool string
}

// history turns messages into what can be sent. normalize gives the id of a
// call that another model made.
func (m *Model) history(msgs []loop.Message, normalize func(id string, from *loop.AssistantMessage) string) []entry {
	h := historian{m: m, normalize: normalize, out: make([]entry, 0, len(msgs)+4)}
	for _, msg := range msgs {
		switch msg := msg.(type) {
		case *loop.UserMessage:
			h.settle()
			h.out = append(h.out, entry{user: msg, blocks: m.visible(msg.Content, imageOmitted)})
		case *loop.AssistantMessage:
			h.settle()
			h.assistant(msg)
		case *loop.ToolResultMessage:
			h.result(msg)
		}
	}
	h.settle()
	return h.out
}

type historian struct {
	m         *Model
	normalize func(string, *loop.AssistantMessage) string
	out       []entry
	pending   []call // calls of the last answer
	index     int    // calls so far, to name those without an id
}

// settle answers the calls that nobody answered.
func (h *historian) settle() {
	for _, c := range h.pending {
		if !c.answered {
			h.answer(c, []loop.Block{&loop.Text{Text: noResult}})
		}
	}
	h.pending = nil
}

func (h *historian) answer(c call, blocks []loop.Block) {
	h.out = append(h.out, entry{result: &result{callID: c.id, tool: c.Name}, blocks: blocks})
}

// result takes a tool's result if a call of the last answer waits for it.
func (h *historian) result(msg *loop.ToolResultMessage) {
	for i := range h.pending {
		c := &h.pending[i]
		if c.original == msg.ToolCallID && !c.answered {
			c.answered = true
			named := *c
			if msg.ToolName != "" {
				named.ToolCall = &loop.ToolCall{Name: msg.ToolName}
			}
			h.answer(named, h.m.visible(msg.Content, toolImageGone))
			return
		}
	}
}

// assistant takes an earlier answer, unless it failed: what a failed one holds
// may be half of something that servers take only whole.
func (h *historian) assistant(msg *loop.AssistantMessage) {
	if msg.StopReason == loop.StopError || msg.StopReason == loop.StopAborted {
		return
	}
	info := &h.m.cfg.Info
	a := &assistant{msg: msg, blocks: msg.Content}
	a.same = msg.Provider == info.Provider && msg.API == info.API && msg.Model == info.ID
	if !a.same {
		a.blocks = foreign(msg.Content)
	}
	used := map[string]bool{}
	for _, b := range a.blocks {
		tc, ok := b.(*loop.ToolCall)
		if !ok {
			continue
		}
		h.index++
		a.calls = append(a.calls, call{ToolCall: tc, original: tc.ID, id: h.callID(tc, a, used)})
	}
	h.pending = append([]call(nil), a.calls...)
	h.out = append(h.out, entry{assistant: a})
}

// callID is the id of a call as it is sent: never empty, never twice in a
// message. Of the two parts of a Responses id the first one names the call.
func (h *historian) callID(tc *loop.ToolCall, a *assistant, used map[string]bool) string {
	id := tc.ID
	if !a.same && id != "" {
		id = h.normalize(id, a.msg)
	}
	name, item := id, ""
	if at := strings.IndexByte(id, '|'); at >= 0 && h.m.cfg.API == Responses {
		name, item = id[:at], id[at:]
	}
	switch {
	case name == "":
		name = "call_" + strconv.Itoa(h.index)
	case len(name) > 64 && h.m.cfg.API == Responses:
		name = "call_" + shortHash(name)
	}
	for base, n := name, 1; n == 1 || used[name]; n++ {
		if n > 1 {
			name = fmt.Sprintf("%.32s_%d", base, n) // within every server's limit
		}
		if h.m.compat.mistralIDs {
			name = mistralID(name)
		}
	}
	used[name] = true
	return name + item
}

// foreign is another model's answer: thinking is plain text, opaque marks are
// gone.
func foreign(blocks []loop.Block) []loop.Block {
	out := make([]loop.Block, 0, len(blocks))
	for _, b := range blocks {
		switch b := b.(type) {
		case *loop.Thinking:
			if !b.Redacted && !blank(b.Thinking) {
				out = append(out, &loop.Text{Text: b.Thinking})
			}
		case *loop.Text:
			out = append(out, &loop.Text{Text: b.Text})
		case *loop.ToolCall:
			plain := *b
			plain.ThoughtSignature, plain.Extra = "", nil
			out = append(out, &plain)
		}
	}
	return out
}

// visible is what the model can take of a content: images that it cannot see
// are named instead, several in a row once; blocks that nobody knows are gone.
func (m *Model) visible(blocks []loop.Block, placeholder string) []loop.Block {
	out := make([]loop.Block, 0, len(blocks))
	replaced := false
	for _, b := range blocks {
		switch b := b.(type) {
		case *loop.Text:
			replaced = b.Text == placeholder
			out = append(out, b)
		case *loop.Image:
			if m.sees() && b.Data != "" {
				out = append(out, b)
				continue
			}
			if !replaced {
				out = append(out, &loop.Text{Text: placeholder})
			}
			replaced = true
		}
	}
	return out
}

// resultText is the text of a tool's result.
func resultText(blocks []loop.Block) string {
	var parts []string
	images := false
	for _, b := range blocks {
		switch b := b.(type) {
		case *loop.Text:
			parts = append(parts, b.Text)
		case *loop.Image:
			images = true
		}
	}
	s := clean(strings.Join(parts, "\n"))
	switch {
	case s != "":
		return s
	case images:
		return seeImage
	}
	return noOutput
}

func hasImages(blocks []loop.Block) bool {
	for _, b := range blocks {
		if _, ok := b.(*loop.Image); ok {
			return true
		}
	}
	return false
}

func appendDataURL(dst []byte, img *loop.Image) []byte {
	mime := img.MIMEType
	if mime == "" {
		mime = "image/png"
	}
	return appendString(dst, "data:"+mime+";base64,"+img.Data)
}

// hasCalls reports whether the conversation has calls or results.
func hasCalls(msgs []loop.Message) bool {
	for _, msg := range msgs {
		switch msg := msg.(type) {
		case *loop.ToolResultMessage:
			return true
		case *loop.AssistantMessage:
			for _, b := range msg.Content {
				if _, ok := b.(*loop.ToolCall); ok {
					return true
				}
			}
		}
	}
	return false
}

var goodName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// toolName is a called tool's name as servers take it. A name that the model
// made up may be anything; one that was offered has been accepted.
func toolName(name string, offered []loop.ToolSpec) string {
	if goodName.MatchString(name) {
		return name
	}
	for i := range offered {
		if offered[i].Name == name {
			return name
		}
	}
	if name = idPart(name, 64); name == "" {
		return "_"
	}
	return name
}

// argumentText is what a call's arguments are sent back as.
func argumentText(tc *loop.ToolCall) string {
	if !json.Valid(tc.Arguments) {
		return "{}"
	}
	return string(tc.Arguments)
}
