package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pi-worker/pi-worker/loop"
)

// decoder turns events of one API into updates.
type decoder interface {
	// event takes one event; over means that the answer is complete and
	// nothing more needs to be read.
	event(ev Event) (over bool, err *loop.ModelError)
	// finish ends the message after the stream's end or after over. It gives
	// an error if the answer is not whole, or failed.
	finish() *loop.ModelError
	// complete reports whether the end of the answer was seen, although more
	// might come (usage).
	complete() bool
	// abandon ends the blocks of an answer that failed or, if aborted, was
	// stopped by the caller.
	abandon(aborted bool)
	// whole takes an answer that came as one JSON document.
	whole(body []byte) *loop.ModelError
}

// chatStream decodes Chat Completions: one text block, one thinking block and
// any number of calls, all of which end when the stream does.
type chatStream struct {
	m   *Model
	out *sink

	text, thinking *block
	blocks         []*block
	calls          callSet
	details        detailSet

	chunks int
	reason string // the last finish_reason
	done   bool   // [DONE]
}

func (c *chatStream) complete() bool { return c.done || c.reason != "" }

func (c *chatStream) event(ev Event) (bool, *loop.ModelError) {
	if strings.HasPrefix(string(ev.Data[:min(6, len(ev.Data))]), "[DONE]") {
		c.done = true
		return true, nil
	}
	return false, c.chunk(ev)
}

// chunkFields are the parts of a chunk that matter, as they are written.
type chunkFields struct {
	id, model, choices, usage, err, object, message []byte
}

func parseChunk(data []byte) (f chunkFields, err error) {
	p := parser{b: data}
	if p.peek() != '{' {
		p.skip()
		if !p.done() {
			return f, errJSON
		}
		return f, nil // null, or something that is not a chunk
	}
	for ok := p.enter('{'); ok; ok = p.more('}') {
		switch string(p.key()) {
		case "id":
			f.id = p.raw()
		case "model":
			f.model = p.raw()
		case "choices":
			f.choices = p.raw()
		case "usage":
			f.usage = p.raw()
		case "error":
			f.err = p.raw()
		case "object":
			f.object = p.raw()
		case "message":
			f.message = p.raw()
		default:
			p.skip()
		}
	}
	if !p.done() {
		return f, errJSON
	}
	return f, nil
}

func (c *chatStream) chunk(ev Event) *loop.ModelError {
	f, err := parseChunk(ev.Data)
	if err != nil {
		if ev.Last {
			return nil // cut: finish says so
		}
		return badChunk(ev.Data)
	}
	if !emptyError(f.err) {
		return streamError(f.err)
	}
	if string(f.object) == `"error"` || string(ev.Name) == "error" && f.message != nil {
		return streamError(ev.Data)
	}
	c.chunks++
	c.meta(&f)
	elements(f.choices, func(raw []byte) bool {
		if isObject(raw) {
			return !c.choice(raw, f.usage)
		}
		return true
	})
	return nil
}

func badChunk(data []byte) *loop.ModelError {
	const shown = 200
	s := string(data)
	if len(s) > shown {
		s = strings.ToValidUTF8(s[:shown], "") + "…"
	}
	return &loop.ModelError{
		Class: classStream, Retryable: true,
		Message: fmt.Sprintf("the stream has an event that is not JSON: %s", s),
	}
}

func (c *chatStream) meta(f *chunkFields) {
	msg := c.out.msg
	if msg.ResponseID == "" {
		msg.ResponseID = str(f.id)
	}
	// Comparing in place saves a string a chunk.
	if in, ok := inside(f.model); ok && msg.ResponseModel == "" && len(in) > 0 && string(in) != msg.Model {
		if name := str(f.model); name != msg.Model {
			msg.ResponseModel = name
		}
	}
	if isObject(f.usage) {
		c.usage(f.usage)
	}
}

func (c *chatStream) usage(raw []byte) {
	c.out.usage = true
	c.out.msg.Usage = chatUsage(raw, c.m.cfg.Info.Price)
}

// choice takes the choice with index 0, and reports whether this was it.
func (c *chatStream) choice(raw, usage []byte) bool {
	var delta, message, reason, own, index []byte
	p := parser{b: raw}
	for ok := p.enter('{'); ok; ok = p.more('}') {
		switch string(p.key()) {
		case "delta":
			delta = p.raw()
		case "message":
			message = p.raw()
		case "finish_reason":
			reason = p.raw()
		case "usage":
			own = p.raw()
		case "index":
			index = p.raw()
		default:
			p.skip()
		}
	}
	if integer(index) != 0 {
		return false
	}
	if isObject(own) && !isObject(usage) {
		c.usage(own)
	}
	if r := str(reason); r != "" {
		c.reason = r
	}
	if !isObject(delta) {
		delta = message
	}
	if isObject(delta) {
		c.delta(delta)
	}
	return true
}

// deltaFields are the parts of a delta that matter.
type deltaFields struct {
	content, refusal, calls, function, details []byte
	reasoning                                  [3][]byte
}

// reasoningFields in the order in which they count.
var reasoningFields = [3]string{"reasoning_content", "reasoning", "reasoning_text"}

func parseDelta(raw []byte) (f deltaFields) {
	p := parser{b: raw}
	for ok := p.enter('{'); ok; ok = p.more('}') {
		switch string(p.key()) {
		case "content":
			f.content = p.raw()
		case "refusal":
			f.refusal = p.raw()
		case "reasoning_content":
			f.reasoning[0] = p.raw()
		case "reasoning":
			f.reasoning[1] = p.raw()
		case "reasoning_text":
			f.reasoning[2] = p.raw()
		case "tool_calls":
			f.calls = p.raw()
		case "function_call":
			f.function = p.raw()
		case "reasoning_details":
			f.details = p.raw()
		default:
			p.skip()
		}
	}
	return f
}

// delta takes one delta: content, then reasoning, then calls.
func (c *chatStream) delta(raw []byte) {
	f := parseDelta(raw)
	c.content(f.content)
	if in, ok := inside(f.refusal); ok && len(in) > 0 {
		c.addText(in)
	}
	c.reasoning(&f)
	c.toolCalls(&f)
	c.encrypted(f.details)
}

// content is a string, or (Mistral) a list of parts.
func (c *chatStream) content(raw []byte) {
	if in, ok := inside(raw); ok {
		if len(in) > 0 {
			c.addText(in)
		}
		return
	}
	elements(raw, func(part []byte) bool {
		if in, ok := inside(field(part, "text")); ok && len(in) > 0 {
			c.addText(in)
		}
		elements(field(part, "thinking"), func(piece []byte) bool {
			if in, ok := inside(field(piece, "text")); ok && len(in) > 0 {
				c.addThinking(in, reasoningFields[0])
			}
			return true
		})
		return true
	})
}

func (c *chatStream) addText(in []byte) {
	if c.text == nil {
		c.text = c.out.openText()
		c.blocks = append(c.blocks, c.text)
	}
	c.out.delta(c.text, c.text.text.add(in))
}

func (c *chatStream) addThinking(in []byte, field string) {
	if c.thinking == nil {
		c.thinking = c.out.openThinking(field)
		c.blocks = append(c.blocks, c.thinking)
	}
	c.out.delta(c.thinking, c.thinking.text.add(in))
}

func (c *chatStream) reasoning(f *deltaFields) {
	shown := false
	for i, raw := range f.reasoning {
		if in, ok := inside(raw); ok && len(in) > 0 {
			c.addThinking(in, reasoningFields[i])
			shown = true
			break
		}
	}
	if c.m.compat.details && isArray(f.details) {
		c.details.add(f.details)
		if !shown {
			c.detailText(f.details)
		}
	}
}

// detailText shows the text of reasoning details that come alone.
func (c *chatStream) detailText(raw []byte) {
	elements(raw, func(d []byte) bool {
		text := field(d, "text")
		if isNull(text) {
			text = field(d, "summary")
		}
		if in, ok := inside(text); ok && len(in) > 0 {
			c.addThinking(in, "reasoning_details")
		}
		return true
	})
}

// encrypted gives encrypted reasoning to the call that it belongs to.
func (c *chatStream) encrypted(raw []byte) {
	elements(raw, func(d []byte) bool {
		id := str(field(d, "id"))
		if str(field(d, "type")) == "reasoning.encrypted" && id != "" && str(field(d, "data")) != "" {
			c.calls.thought(id, string(compact(json.RawMessage(d))))
		}
		return true
	})
}

func (c *chatStream) toolCalls(f *deltaFields) {
	if isObject(f.function) { // the older form, one call
		var piece callPiece
		piece.function(f.function)
		c.call(piece)
	}
	n, pos := 0, 0
	elements(f.calls, func([]byte) bool { n++; return true })
	elements(f.calls, func(raw []byte) bool {
		if isObject(raw) {
			piece := parsePiece(raw)
			piece.pos, piece.of = pos, n
			c.call(piece)
		}
		pos++
		return true
	})
}

func (c *chatStream) call(piece callPiece) {
	call, opened := c.calls.find(&piece)
	if opened {
		call.block = c.out.openCall(call.id, piece.name)
		c.calls.pending(call)
		c.blocks = append(c.blocks, call.block)
	}
	tc := call.block.call
	tc.ID = call.id
	if tc.Name == "" {
		tc.Name = piece.name
	}
	call.extra.add(piece.extra)
	var added string
	if in, ok := inside(piece.args); ok {
		added = call.block.text.add(in)
	} else if !isNull(piece.args) {
		added = call.block.text.addString(string(piece.args)) // an object instead of its text
	}
	c.out.delta(call.block, added)
}

// whole takes a chat.completion object.
func (c *chatStream) whole(body []byte) *loop.ModelError {
	if err := c.chunk(Event{Data: body}); err != nil {
		return err
	}
	c.done = c.reason != "" || len(c.blocks) > 0
	return c.finish()
}

func (c *chatStream) abandon(aborted bool) {
	for _, b := range c.blocks {
		b.keep()
	}
	c.identify()
	if aborted {
		for _, b := range c.blocks {
			c.out.end(b)
		}
	}
}

// identify gives calls without an id one of their own, or of a doubled id, so
// that their results can name them.
func (c *chatStream) identify() {
	seen := map[string]bool{}
	for _, call := range c.calls.list {
		tc := call.block.call
		if tc.ID == "" || seen[tc.ID] {
			tc.ID = newCallID()
		}
		seen[tc.ID] = true
		tc.ThoughtSignature = call.thought
		tc.Extra = call.extra.object()
	}
}

func (c *chatStream) finish() *loop.ModelError {
	ended := c.complete() || c.m.compat.endsWithoutFinish && len(c.blocks) > 0
	if !ended {
		c.abandon(false)
		return c.truncated()
	}
	if c.chunks == 0 {
		return &loop.ModelError{
			Class: classBadResponse, Retryable: true,
			Message: "the answer is empty: the stream ended without a single chunk",
		}
	}
	stop, failure := stopReason(c.reason)
	c.out.msg.StopReason = stop
	c.identify()
	for _, call := range c.calls.list {
		c.judge(call.block, stop)
	}
	c.keepDetails()
	for _, b := range c.blocks {
		c.out.end(b)
	}
	return failure
}

func (c *chatStream) truncated() *loop.ModelError {
	text := "the stream ended before the answer was complete"
	if c.chunks == 0 {
		text = "the answer is empty: the stream ended without a single chunk"
	}
	return &loop.ModelError{Class: classTruncated, Retryable: true, Message: text}
}

// judge decides whether a call may be run.
func (c *chatStream) judge(b *block, stop loop.StopReason) {
	if stop == loop.StopError {
		b.call.Arguments = preview(b.text.String())
		return
	}
	b.call.Arguments, b.call.Incomplete = arguments(b.text.String())
	if stop != loop.StopLength {
		return
	}
	if b.call.Incomplete == "" && blank(b.text.String()) {
		b.call.Incomplete = "the arguments are missing"
	}
	if b.call.Incomplete != "" {
		b.call.Incomplete += ": the answer reached its length limit"
	}
}

// keepDetails keeps reasoning details with the thinking that they belong to.
func (c *chatStream) keepDetails() {
	c.details.flush()
	if c.thinking == nil || len(c.details.list) == 0 {
		return
	}
	sig := appendString([]byte(`{"field":`), c.thinking.thinking.Signature)
	sig = bytesJoin(append(sig, `,"reasoning_details":[`...), c.details.list)
	c.thinking.thinking.Signature = string(append(sig, "]}"...))
}

// stopReason maps a finish_reason. Unknown ones are errors: nobody can say
// whether the answer is whole.
func stopReason(reason string) (loop.StopReason, *loop.ModelError) {
	switch reason {
	case "", "stop", "end", "eos", "eos_token", "end_turn", "stop_sequence", "STOP":
		return loop.StopStop, nil
	case "length", "max_tokens", "MAX_TOKENS":
		return loop.StopLength, nil
	case "tool_calls", "function_call", "tool_use":
		return loop.StopToolUse, nil
	}
	err := &loop.ModelError{Class: classStream, Message: "Provider finish_reason: " + clip(reason)}
	switch reason {
	case "content_filter":
		err.Class = classFilter
	case "network_error", "error":
		err.Retryable = true
	}
	return loop.StopError, err
}
