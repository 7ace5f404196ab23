package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pi-worker/pi-worker/loop"
)

// responsesStream decodes the Responses API: items, which may be interleaved,
// each a block that ends when its item does.
type responsesStream struct {
	m   *Model
	out *sink

	items   []*respItem
	events  int
	ended   bool
	stop    loop.StopReason
	failure *loop.ModelError
}

func newResponsesStream(m *Model, out *sink) *responsesStream {
	return &responsesStream{m: m, out: out}
}

// respItem is one output item that has a block.
type respItem struct {
	id      string
	index   int64
	indexed bool
	kind    string // "reasoning", "message", "function_call"
	block   *block
	part    string // the kind of the last content part, "" if there is none
	parts   int    // summary parts
	closed  bool
	args    string // from arguments.done
	argsEnd bool
}

func (s *responsesStream) complete() bool { return s.ended }

func (s *responsesStream) event(ev Event) (bool, *loop.ModelError) {
	if isDone(ev.Data) {
		return true, nil
	}
	e, err := parseRespEvent(ev.Data)
	if err != nil {
		if ev.Last {
			return false, nil
		}
		return false, badChunk(ev.Data)
	}
	s.events++
	if !emptyError(e.er) {
		return false, streamError(e.er)
	}
	if e.kind == "" {
		e.kind = string(ev.Name)
	}
	return s.dispatch(&e, ev.Data)
}

func (s *responsesStream) dispatch(e *respEvent, data []byte) (bool, *loop.ModelError) {
	switch e.kind {
	case "response.output_text.delta":
		s.textDelta(e, "output_text")
	case "response.refusal.delta":
		s.textDelta(e, "refusal")
	case "response.function_call_arguments.delta":
		s.argsDelta(e)
	case "response.function_call_arguments.done":
		s.argsDone(e)
	case "response.reasoning_summary_text.delta":
		if it := s.find(e, "reasoning"); it != nil && it.parts > 0 {
			s.piece(it, e.delta)
		}
	case "response.reasoning_text.delta":
		if it := s.find(e, "reasoning"); it != nil {
			s.piece(it, e.delta)
		}
	case "response.reasoning_summary_part.added":
		if it := s.find(e, "reasoning"); it != nil {
			it.parts++
		}
	case "response.reasoning_summary_part.done":
		if it := s.find(e, "reasoning"); it != nil && it.parts > 0 {
			s.out.delta(it.block, it.block.text.addString("\n\n"))
		}
	case "response.content_part.added":
		if it := s.find(e, "message"); it != nil {
			if kind := str(field(e.part, "type")); kind == "output_text" || kind == "refusal" {
				it.part = kind
			}
		}
	case "response.output_item.added":
		s.added(e.item, e.index)
	case "response.output_item.done":
		s.done(e.item, e.index)
	default:
		return s.lifecycle(e, data)
	}
	return false, nil
}

// lifecycle takes the events about the whole response.
func (s *responsesStream) lifecycle(e *respEvent, data []byte) (bool, *loop.ModelError) {
	switch e.kind {
	case "response.created":
		s.out.msg.ResponseID = str(field(e.res, "id"))
	case "response.completed", "response.incomplete":
		s.response(e.res, e.kind == "response.incomplete")
		return true, nil
	case "response.failed":
		s.usage(e.res)
		return false, failedResponse(e.res)
	case "error":
		return false, errorEvent(data)
	}
	return false, nil
}

// find is the item of an event: by its index, then by its id, else the last
// one that is open.
func (s *responsesStream) find(e *respEvent, kind string) *respItem {
	if it := s.item(e.index, e.itemID); it != nil {
		if it.kind != kind || it.closed {
			return nil
		}
		return it
	}
	if len(e.index) > 0 || len(s.items) == 0 {
		return nil
	}
	if it := s.items[len(s.items)-1]; it.kind == kind && !it.closed {
		return it
	}
	return nil
}

func (s *responsesStream) item(index, id []byte) *respItem {
	if len(index) > 0 {
		n := integer(index)
		for _, it := range s.items {
			if it.indexed && it.index == n {
				return it
			}
		}
	}
	if in, ok := inside(id); ok && len(in) > 0 {
		for _, it := range s.items {
			if it.id == string(in) {
				return it
			}
		}
	}
	return nil
}

func (s *responsesStream) piece(it *respItem, delta []byte) {
	if in, ok := inside(delta); ok {
		s.out.delta(it.block, it.block.text.add(in))
	}
}

func (s *responsesStream) textDelta(e *respEvent, part string) {
	if it := s.find(e, "message"); it != nil && it.part == part {
		s.piece(it, e.delta)
	}
}

func (s *responsesStream) argsDelta(e *respEvent) {
	if it := s.find(e, "function_call"); it != nil {
		s.piece(it, e.delta)
	}
}

// argsDone sends what the deltas left out.
func (s *responsesStream) argsDone(e *respEvent) {
	it := s.find(e, "function_call")
	in, ok := inside(e.args)
	if it == nil || !ok {
		return
	}
	var t text
	t.add(in)
	it.args, it.argsEnd = t.finish(), true
	s.rest(it, it.args)
}

// rest sends the end of the arguments, if they go on as they began.
func (s *responsesStream) rest(it *respItem, all string) {
	if tail, ok := strings.CutPrefix(all, it.block.text.String()); ok && tail != "" {
		s.out.delta(it.block, it.block.text.addString(tail))
	}
}

// added opens the block of an item, and gives it.
func (s *responsesStream) added(item, index []byte) *respItem {
	it := &respItem{id: str(field(item, "id")), kind: str(field(item, "type"))}
	if len(index) > 0 {
		it.index, it.indexed = integer(index), true
	}
	switch it.kind {
	case "reasoning":
		it.block = s.out.openThinking("")
		elements(field(item, "summary"), func([]byte) bool { it.parts++; return true })
	case "message":
		it.block = s.out.openText()
		elements(field(item, "content"), func(part []byte) bool {
			it.part = str(field(part, "type"))
			return true
		})
	case "function_call":
		it.block = s.out.openCall(callItemID(item), str(field(item, "name")))
		if in, ok := inside(field(item, "arguments")); ok {
			it.block.text.add(in)
		}
	default:
		return nil
	}
	s.items = append(s.items, it)
	return it
}

// callItemID joins the two ids of a call, as pi does.
func callItemID(item []byte) string {
	id := str(field(item, "call_id"))
	if id == "" {
		id = newCallID()
	}
	if itemID := str(field(item, "id")); itemID != "" {
		id += "|" + itemID
	}
	return id
}

// done closes the block of an item; one that was never opened is opened first.
func (s *responsesStream) done(item, index []byte) {
	it := s.item(index, field(item, "id"))
	if it != nil && it.closed {
		return
	}
	if it == nil {
		if it = s.added(item, index); it == nil {
			return
		}
		s.missed(it, item)
	}
	it.closed = true
	switch it.kind {
	case "reasoning":
		s.closeReasoning(it, item)
	case "message":
		s.closeMessage(it, item)
	case "function_call":
		s.closeCall(it, item)
	}
}

// missed sends the content of an item that comes only when it is done.
func (s *responsesStream) missed(it *respItem, item []byte) {
	var content string
	switch it.kind {
	case "reasoning":
		content = reasoningText(item)
	case "message":
		content = messageText(item)
	default:
		// The arguments are in the block already, but nobody has seen them.
		s.out.delta(it.block, it.block.text.String())
		return
	}
	if content != "" {
		s.out.delta(it.block, it.block.text.addString(content))
	}
}

func reasoningText(item []byte) string {
	for _, name := range []string{"summary", "content"} {
		var parts []string
		elements(field(item, name), func(part []byte) bool {
			parts = append(parts, str(field(part, "text")))
			return true
		})
		if s := strings.Join(parts, "\n\n"); s != "" {
			return s
		}
	}
	return ""
}

func messageText(item []byte) string {
	var b strings.Builder
	elements(field(item, "content"), func(part []byte) bool {
		if str(field(part, "type")) == "refusal" {
			b.WriteString(str(field(part, "refusal")))
		} else {
			b.WriteString(str(field(part, "text")))
		}
		return true
	})
	return b.String()
}

func (s *responsesStream) closeReasoning(it *respItem, item []byte) {
	s.out.settle(it.block)
	t := it.block.thinking
	if text := reasoningText(item); text != "" {
		t.Thinking = text
	}
	t.Signature = string(compact(json.RawMessage(item)))
	s.out.end(it.block)
}

func (s *responsesStream) closeMessage(it *respItem, item []byte) {
	s.out.settle(it.block)
	t := it.block.textBlock
	if isArray(field(item, "content")) {
		t.Text = messageText(item)
	}
	if id := str(field(item, "id")); id != "" {
		t.Signature = string(appendTextSignature(nil, id, str(field(item, "phase"))))
	}
	s.out.end(it.block)
}

func (s *responsesStream) closeCall(it *respItem, item []byte) {
	s.out.settle(it.block)
	got := it.block.text.String()
	if it.argsEnd {
		got = it.args
	}
	tc := it.block.call
	tc.Arguments, tc.Incomplete = arguments(got)
	if in := str(field(item, "arguments")); in != "" && (tc.Incomplete != "" || blank(got)) {
		tc.Arguments, tc.Incomplete = arguments(in)
	}
	if str(field(item, "status")) == "incomplete" && tc.Incomplete == "" {
		tc.Incomplete = "the model did not finish the call"
	}
	if name := str(field(item, "name")); tc.Name == "" {
		tc.Name = name
	}
	s.out.end(it.block)
}

func (s *responsesStream) usage(res []byte) {
	u := field(res, "usage")
	if !isObject(u) {
		return
	}
	s.out.usage = true
	s.out.msg.Usage = responsesUsage(u, s.m.cfg.Info.Price, tierFactor(str(field(res, "service_tier"))))
}

// response takes the response's end.
func (s *responsesStream) response(res []byte, incomplete bool) {
	s.ended = true
	msg := s.out.msg
	if id := str(field(res, "id")); id != "" {
		msg.ResponseID = id
	}
	s.usage(res)
	if len(s.items) == 0 {
		n := 0
		elements(field(res, "output"), func(item []byte) bool {
			s.done(item, fmt.Append(nil, n))
			n++
			return true
		})
	}
	status := str(field(res, "status"))
	if incomplete && status == "" {
		status = "incomplete"
	}
	s.status(status, res)
}

func (s *responsesStream) status(status string, res []byte) {
	s.stop = loop.StopStop
	switch status {
	case "", "completed", "in_progress", "queued":
		if s.hasCalls() {
			s.stop = loop.StopToolUse
		}
	case "incomplete":
		s.stop = loop.StopLength
		if str(get(res, "incomplete_details", "reason")) == "content_filter" {
			s.failure = &loop.ModelError{Class: classFilter, Message: "incomplete: content_filter"}
		}
	case "failed", "cancelled":
		s.failure = failedResponse(res)
		if isNull(field(res, "error")) && isNull(field(res, "incomplete_details")) {
			s.failure.Message = "An unknown error occurred"
		}
	default:
		s.failure = &loop.ModelError{Class: classStream, Message: "Unhandled stop reason: " + clip(status)}
	}
}

func (s *responsesStream) hasCalls() bool {
	for _, it := range s.items {
		if it.kind == "function_call" {
			return true
		}
	}
	return false
}

func (s *responsesStream) finish() *loop.ModelError {
	if !s.ended {
		s.abandon(false)
		text := "the stream ended before the answer was complete"
		if s.events == 0 {
			text = "the answer is empty: the stream ended without a single event"
		}
		return &loop.ModelError{Class: classTruncated, Retryable: true, Message: text}
	}
	if s.failure != nil {
		s.abandon(false)
		return s.failure
	}
	s.out.msg.StopReason = s.stop
	for _, it := range s.items {
		if !it.closed {
			s.leave(it)
		}
	}
	return nil
}

// leave keeps an item that was never done. A call of it is run only if the
// response says that it is complete and the arguments are.
func (s *responsesStream) leave(it *respItem) {
	it.block.keep()
	if it.kind != "function_call" {
		return
	}
	tc := it.block.call
	text := it.block.text.String()
	if it.argsEnd {
		text = it.args
	}
	tc.Arguments, tc.Incomplete = arguments(text)
	switch {
	case s.stop == loop.StopLength:
		tc.Incomplete = "the answer reached its limit before the call was complete"
	case tc.Incomplete == "" && !it.argsEnd && blank(text):
		tc.Incomplete = "the model did not finish the call"
	}
}

func (s *responsesStream) abandon(bool) {
	for _, it := range s.items {
		if !it.closed {
			it.block.keep()
		}
	}
}

// whole takes a response object.
func (s *responsesStream) whole(body []byte) *loop.ModelError {
	s.events++
	s.response(body, false)
	return s.finish()
}
