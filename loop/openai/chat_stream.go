package openai

import (
	"encoding/json"

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
	fields         chunkFields // of the chunk at hand

	chunks int
	reason string // the last finish_reason
	done   bool   // [DONE]
}

func (c *chatStream) complete() bool { return c.done || c.reason != "" }

func (c *chatStream) event(ev Event) (bool, *loop.ModelError) {
	if isDone(ev.Data) {
		c.done = true
		return true, nil
	}
	return false, c.chunk(ev)
}

func (c *chatStream) chunk(ev Event) *loop.ModelError {
	f := &c.fields
	if err := f.parse(ev.Data); err != nil {
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
	c.meta(f)
	if f.found {
		c.choice(&f.choice, f.usage)
	}
	return nil
}

// isDone reports whether an event is the mark at the end of a stream.
func isDone(data []byte) bool { return len(data) >= 6 && string(data[:6]) == "[DONE]" }

func badChunk(data []byte) *loop.ModelError {
	return &loop.ModelError{
		Class: classStream, Retryable: true,
		Message: "the stream has an event that is not JSON: " + shown(string(data)),
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

// choice takes what the chunk says about the answer.
func (c *chatStream) choice(f *choiceFields, usage []byte) {
	if isObject(f.usage) && !isObject(usage) {
		c.usage(f.usage)
	}
	if in, ok := inside(f.reason); ok && len(in) > 0 {
		c.reason = str(f.reason)
	}
	d := &f.delta
	if !d.present && f.whole != nil {
		d = f.whole
	}
	c.delta(d)
}

// delta takes one delta: content, then reasoning, then calls.
func (c *chatStream) delta(f *deltaFields) {
	c.content(f.content)
	if in, ok := inside(f.refusal); ok && len(in) > 0 {
		c.addText(in)
	}
	c.reasoning(f)
	c.toolCalls(f)
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
