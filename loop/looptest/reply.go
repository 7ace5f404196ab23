package looptest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Call is a tool call of a scripted answer.
type Call struct {
	ID   string // "" means "call_<request>_<position>"
	Name string
	Args string // JSON as the model writes it; "" means {}
}

// Usage is what a scripted answer says it cost, in tokens. Input includes
// Cached, Output includes Reasoning.
type Usage struct{ Input, Cached, Output, Reasoning int64 }

// Reply is a friendly scripted answer, streamed in the wire of the request's
// API: thinking, text, calls, usage, end.
type Reply struct {
	Thinking string
	Text     string
	Calls    []Call
	// Stop is the finish reason of Chat Completions; "" means tool_calls with
	// Calls, otherwise stop. "length" and "content_filter" make a Responses
	// answer incomplete.
	Stop  string
	Usage *Usage // nil: none is sent
	// Delay is the time before the headers, ChunkDelay the time before each
	// piece of thinking, text and arguments.
	Delay, ChunkDelay time.Duration
	// ChunkSize is the length of a piece in bytes, at least; pieces end after
	// a space or a rune. 0 means a word.
	ChunkSize int
	// Status other than 0 and 200 answers with an error object whose message
	// is Text (and Headers, such as Retry-After).
	Status  int
	Headers map[string]string
	// CutAfter breaks the connection after that many pieces; 0 does not.
	CutAfter int
	// Hold stops the stream before its end until the channel is closed.
	Hold <-chan struct{}
}

// Text is a reply that only says something.
func Text(s string) Reply { return Reply{Text: s} }

// Calls is a reply that only calls tools.
func Calls(calls ...Call) Reply { return Reply{Calls: calls} }

func (r Reply) response(req *Request) *Response {
	resp := &Response{
		Status: r.Status, Headers: r.Headers,
		HeaderDelayMS: int(r.Delay / time.Millisecond),
	}
	if r.Status != 0 && r.Status != 200 {
		resp.Body = encode(object{"error": object{"message": r.Text, "type": "script_error"}})
		return resp
	}
	w := replyWriter{reply: &r, model: requestModel(req)}
	if req.API() == "openai-responses" {
		w.id = fmt.Sprintf("resp_%d", req.Number)
		w.responses(req)
	} else {
		w.id = fmt.Sprintf("chatcmpl-%d", req.Number)
		w.completions(req)
	}
	resp.Chunks = w.chunks
	return resp
}

func requestModel(req *Request) string {
	var body struct {
		Model string `json:"model"`
	}
	json.Unmarshal(req.Body, &body)
	return body.Model
}

// call gives a call its defaults.
func (r *Reply) call(req *Request, i int) Call {
	c := r.Calls[i]
	if c.ID == "" {
		c.ID = fmt.Sprintf("call_%d_%d", req.Number, i+1)
	}
	if c.Args == "" {
		c.Args = "{}"
	}
	return c
}

type object = map[string]any

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("looptest: encoding a reply: " + err.Error())
	}
	return b
}

// replyWriter turns a Reply into chunks.
type replyWriter struct {
	reply     *Reply
	id, model string
	pieces    int
	cut       bool
	chunks    []Chunk
}

func (w *replyWriter) add(c Chunk) {
	if !w.cut {
		w.chunks = append(w.chunks, c)
	}
}

// piece adds one piece of content, after its delay, or the cut.
func (w *replyWriter) piece(c Chunk) {
	if ms := int(w.reply.ChunkDelay / time.Millisecond); ms > 0 {
		w.add(Chunk{DelayMS: ms})
	}
	w.add(c)
	w.pieces++
	if w.reply.CutAfter > 0 && w.pieces == w.reply.CutAfter {
		w.add(Chunk{Cut: true})
		w.cut = true
	}
}

func (w *replyWriter) hold() {
	if w.reply.Hold != nil {
		w.add(Chunk{Wait: w.reply.Hold})
	}
}

// split cuts a text into pieces of at least size bytes, each ending after a
// space (size 0) or a rune.
func split(s string, size int) []string {
	var out []string
	for s != "" {
		n := len(s)
		if size == 0 {
			if i := strings.IndexByte(s, ' '); i >= 0 {
				n = i + 1
			}
		} else {
			for i := range s {
				if i >= size {
					n = i
					break
				}
			}
		}
		out = append(out, s[:n])
		s = s[n:]
	}
	return out
}

func (w *replyWriter) completions(req *Request) {
	r := w.reply
	w.delta(object{"role": "assistant", "content": ""}, nil, false)
	for _, p := range split(r.Thinking, r.ChunkSize) {
		w.delta(object{"reasoning_content": p}, nil, true)
	}
	for _, p := range split(r.Text, r.ChunkSize) {
		w.delta(object{"content": p}, nil, true)
	}
	for i := range r.Calls {
		c := r.call(req, i)
		w.delta(object{"tool_calls": []object{{
			"index": i, "id": c.ID, "type": "function",
			"function": object{"name": c.Name, "arguments": ""},
		}}}, nil, false)
		for _, p := range split(c.Args, r.ChunkSize) {
			w.delta(object{"tool_calls": []object{{"index": i, "function": object{"arguments": p}}}}, nil, true)
		}
	}
	w.hold()
	stop := r.Stop
	if stop == "" {
		stop = "stop"
		if len(r.Calls) > 0 {
			stop = "tool_calls"
		}
	}
	w.delta(object{}, stop, false)
	if u := r.Usage; u != nil {
		w.add(Chunk{Data: encode(object{
			"id": w.id, "object": "chat.completion.chunk", "created": 1, "model": w.model, "choices": []object{},
			"usage": object{
				"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
				"prompt_tokens_details":     object{"cached_tokens": u.Cached},
				"completion_tokens_details": object{"reasoning_tokens": u.Reasoning},
			},
		})})
	}
	w.add(Chunk{Done: true})
}

func (w *replyWriter) delta(delta object, finish any, piece bool) {
	c := Chunk{Data: encode(object{
		"id": w.id, "object": "chat.completion.chunk", "created": 1, "model": w.model,
		"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}},
	})}
	if piece {
		w.piece(c)
	} else {
		w.add(c)
	}
}
