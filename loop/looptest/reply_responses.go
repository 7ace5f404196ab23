package looptest

import "fmt"

// event adds one event of the Responses API.
func (w *replyWriter) event(typ string, fields object, piece bool) {
	fields["type"] = typ
	c := Chunk{Event: typ, Data: encode(fields)}
	if piece {
		w.piece(c)
	} else {
		w.add(c)
	}
}

func (w *replyWriter) responses(req *Request) {
	r := w.reply
	w.event("response.created", object{"response": object{
		"id": w.id, "object": "response", "status": "in_progress", "model": w.model, "output": []object{},
	}}, false)
	index := 0
	if r.Thinking != "" {
		w.reasoningItem(index, req)
		index++
	}
	if r.Text != "" {
		w.messageItem(index, req)
		index++
	}
	for i := range r.Calls {
		w.callItem(index, req.Number, i, r.call(req, i))
		index++
	}
	w.hold()
	w.finish()
}

func (w *replyWriter) reasoningItem(index int, req *Request) {
	id := fmt.Sprintf("rs_%d", req.Number)
	item := func(summary []object) object {
		return object{"type": "reasoning", "id": id, "summary": summary}
	}
	w.event("response.output_item.added", object{"output_index": index, "item": item([]object{})}, false)
	w.event("response.reasoning_summary_part.added", object{
		"item_id": id, "output_index": index, "summary_index": 0,
		"part": object{"type": "summary_text", "text": ""},
	}, false)
	for _, p := range split(w.reply.Thinking, w.reply.ChunkSize) {
		w.event("response.reasoning_summary_text.delta", object{
			"item_id": id, "output_index": index, "summary_index": 0, "delta": p,
		}, true)
	}
	part := object{"type": "summary_text", "text": w.reply.Thinking}
	w.event("response.reasoning_summary_part.done", object{
		"item_id": id, "output_index": index, "summary_index": 0, "part": part,
	}, false)
	w.event("response.output_item.done", object{"output_index": index, "item": item([]object{part})}, false)
}

func (w *replyWriter) messageItem(index int, req *Request) {
	id := fmt.Sprintf("msg_%d", req.Number)
	item := func(status string, content []object) object {
		return object{"type": "message", "id": id, "role": "assistant", "status": status, "content": content}
	}
	part := func(text string) object {
		return object{"type": "output_text", "text": text, "annotations": []object{}}
	}
	at := func(k string, v any) object {
		return object{"item_id": id, "output_index": index, "content_index": 0, k: v}
	}
	w.event("response.output_item.added", object{"output_index": index, "item": item("in_progress", []object{})}, false)
	w.event("response.content_part.added", at("part", part("")), false)
	for _, p := range split(w.reply.Text, w.reply.ChunkSize) {
		w.event("response.output_text.delta", at("delta", p), true)
	}
	w.event("response.output_text.done", at("text", w.reply.Text), false)
	w.event("response.content_part.done", at("part", part(w.reply.Text)), false)
	w.event("response.output_item.done", object{
		"output_index": index, "item": item("completed", []object{part(w.reply.Text)}),
	}, false)
}

func (w *replyWriter) callItem(index, number, i int, c Call) {
	id := fmt.Sprintf("fc_%d_%d", number, i+1)
	item := func(status, args string) object {
		return object{
			"type": "function_call", "id": id, "call_id": c.ID, "name": c.Name, "arguments": args, "status": status,
		}
	}
	w.event("response.output_item.added", object{"output_index": index, "item": item("in_progress", "")}, false)
	for _, p := range split(c.Args, w.reply.ChunkSize) {
		w.event("response.function_call_arguments.delta", object{
			"item_id": id, "output_index": index, "delta": p,
		}, true)
	}
	w.event("response.function_call_arguments.done", object{
		"item_id": id, "output_index": index, "arguments": c.Args,
	}, false)
	w.event("response.output_item.done", object{"output_index": index, "item": item("completed", c.Args)}, false)
}

// finish ends the response: completed, or incomplete with its reason.
func (w *replyWriter) finish() {
	resp := object{"id": w.id, "object": "response", "status": "completed", "model": w.model}
	if u := w.reply.Usage; u != nil {
		resp["usage"] = object{
			"input_tokens": u.Input, "input_tokens_details": object{"cached_tokens": u.Cached},
			"output_tokens": u.Output, "output_tokens_details": object{"reasoning_tokens": u.Reasoning},
			"total_tokens": u.Input + u.Output,
		}
	}
	reason := map[string]string{"length": "max_output_tokens", "content_filter": "content_filter"}[w.reply.Stop]
	if reason == "" {
		w.event("response.completed", object{"response": resp}, false)
		return
	}
	resp["status"] = "incomplete"
	resp["incomplete_details"] = object{"reason": reason}
	w.event("response.incomplete", object{"response": resp}, false)
}
