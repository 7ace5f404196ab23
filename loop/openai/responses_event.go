package openai

import (
	"encoding/json"

	"github.com/pi-worker/pi-worker/loop"
)

// respEvent are the parts of an event that matter, as they are written.
type respEvent struct {
	kind                                                  string
	index, itemID, item, part, delta, args, text, res, er []byte
}

func parseRespEvent(data []byte) (e respEvent, err error) {
	p := parser{b: data}
	if p.peek() != '{' {
		p.skip()
		if !p.done() {
			return e, errJSON
		}
		return e, nil
	}
	for ok := p.enter('{'); ok; ok = p.more('}') {
		switch string(p.key()) {
		case "type":
			e.kind = kindOf(p.raw())
		case "output_index":
			e.index = p.raw()
		case "item_id":
			e.itemID = p.raw()
		case "item":
			e.item = p.raw()
		case "part":
			e.part = p.raw()
		case "delta":
			e.delta = p.raw()
		case "arguments":
			e.args = p.raw()
		case "text":
			e.text = p.raw()
		case "response":
			e.res = p.raw()
		case "error":
			e.er = p.raw()
		default:
			p.skip()
		}
	}
	if !p.done() {
		return e, errJSON
	}
	return e, nil
}

// kindOf is an event's type; the frequent ones cost no memory.
func kindOf(raw []byte) string {
	switch string(raw) {
	case `"response.output_text.delta"`:
		return "response.output_text.delta"
	case `"response.function_call_arguments.delta"`:
		return "response.function_call_arguments.delta"
	case `"response.reasoning_summary_text.delta"`:
		return "response.reasoning_summary_text.delta"
	case `"response.reasoning_text.delta"`:
		return "response.reasoning_text.delta"
	}
	return str(raw)
}

// failedResponse is the error of a response that failed.
func failedResponse(res []byte) *loop.ModelError {
	if e := field(res, "error"); isObject(e) {
		code, text := str(field(e, "code")), str(field(e, "message"))
		if code == "" {
			code = "unknown"
		}
		if text == "" {
			text = "no message"
		}
		out := streamError(e)
		out.Message = clip(code + ": " + text)
		return out
	}
	e := &loop.ModelError{Class: classStream, Retryable: true, Raw: clone(res)}
	if reason := str(get(res, "incomplete_details", "reason")); reason != "" {
		e.Message = "incomplete: " + clip(reason)
	} else {
		e.Message = "Unknown error (no error details in response)"
	}
	return e
}

// errorEvent is the error of an event of type error.
func errorEvent(data []byte) *loop.ModelError {
	e := streamError(data)
	e.Message = clip("Error Code " + valueText(field(data, "code")) + ": " + valueText(field(data, "message")))
	return e
}

// valueText is a value as text, as pi writes it.
func valueText(raw []byte) string {
	if len(raw) == 0 {
		return "undefined"
	}
	if _, ok := inside(raw); ok {
		return str(raw)
	}
	return string(compact(json.RawMessage(raw)))
}
