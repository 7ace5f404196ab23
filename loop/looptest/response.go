package looptest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// cutDelay is how long a cut connection stays open after its last byte, so
// that the client has read that byte.
const cutDelay = 80 * time.Millisecond

// Response is one raw HTTP answer, in the oracle's format.
type Response struct {
	// HeaderDelayMS waits before anything is sent.
	HeaderDelayMS int `json:"headerDelayMs"`
	// CutBeforeHeaders closes the connection instead of answering.
	CutBeforeHeaders bool              `json:"cutBeforeHeaders"`
	Status           int               `json:"status"` // 0 means 200
	Headers          map[string]string `json:"headers"`
	// Body is sent whole: a JSON string as text/plain, other JSON as
	// application/json. Without it the answer is the stream of Chunks.
	Body   json.RawMessage `json:"body"`
	Chunks []Chunk         `json:"chunks"`
}

// Chunk is one piece of a stream, written and flushed on its own: one of Data
// (with or without Event), Done, Raw, Base64, DelayMS or Cut.
type Chunk struct {
	Event   string          `json:"event"`
	Data    json.RawMessage `json:"data"`
	Done    bool            `json:"done"`
	Raw     *string         `json:"raw"`
	Base64  *string         `json:"base64"`
	DelayMS int             `json:"delayMs"` // milliseconds
	Cut     bool            `json:"cut"`
	// Wait holds the stream until it is closed, or the client has gone.
	Wait <-chan struct{} `json:"-"`
}

func (r *Response) response(*Request) *Response { return r }

// send writes the answer. It panics with http.ErrAbortHandler to cut the
// connection, as net/http wants it.
func (r *Response) send(w http.ResponseWriter, hr *http.Request) {
	if !pause(hr, r.HeaderDelayMS, nil) {
		return
	}
	if r.CutBeforeHeaders {
		cut(w)
	}
	if r.Body != nil {
		r.sendBody(w)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	r.writeHeader(w)
	if flush(w) != nil {
		return
	}
	for i := range r.Chunks {
		if !r.Chunks[i].send(w, hr) {
			return
		}
	}
}

func (r *Response) sendBody(w http.ResponseWriter) {
	var text string
	if json.Unmarshal(r.Body, &text) == nil {
		w.Header().Set("Content-Type", "text/plain")
		r.writeHeader(w)
		io.WriteString(w, text)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	r.writeHeader(w)
	w.Write(compact(r.Body))
}

func (r *Response) writeHeader(w http.ResponseWriter) {
	for k, v := range r.Headers {
		w.Header().Set(k, v)
	}
	status := r.Status
	if status == 0 {
		status = http.StatusOK
	}
	w.WriteHeader(status)
}

// send writes one chunk; false means that the stream is over.
func (c *Chunk) send(w http.ResponseWriter, hr *http.Request) bool {
	switch {
	case c.Cut:
		pause(hr, int(cutDelay/time.Millisecond), nil)
		cut(w)
	case c.Wait != nil:
		return pause(hr, -1, c.Wait)
	case c.DelayMS > 0:
		return pause(hr, c.DelayMS, nil)
	}
	if _, err := w.Write(c.bytes()); err != nil {
		return false
	}
	return flush(w) == nil
}

func (c *Chunk) bytes() []byte {
	switch {
	case c.Raw != nil:
		return []byte(*c.Raw)
	case c.Base64 != nil:
		b, err := base64.StdEncoding.DecodeString(*c.Base64)
		if err != nil {
			panic(fmt.Sprintf("looptest: chunk's base64: %v", err))
		}
		return b
	case c.Done:
		return []byte("data: [DONE]\n\n")
	}
	var b bytes.Buffer
	if c.Event != "" {
		b.WriteString("event: " + c.Event + "\n")
	}
	b.WriteString("data: ")
	if c.Data == nil {
		b.WriteString("null")
	} else {
		b.Write(compact(c.Data))
	}
	b.WriteString("\n\n")
	return b.Bytes()
}

// compact drops white space between tokens, keeping escapes and spellings.
func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

func flush(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() }

// pause waits ms milliseconds (for ever if negative) or for done; false means
// that the client has gone or the server stops.
func pause(hr *http.Request, ms int, done <-chan struct{}) bool {
	var timer <-chan time.Time
	if ms >= 0 {
		if ms == 0 {
			return true
		}
		t := time.NewTimer(time.Duration(ms) * time.Millisecond)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-timer:
		return true
	case <-done:
		return true
	case <-hr.Context().Done():
		return false
	}
}

// cut closes the connection under the handler without ending the body.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		conn.Close()
	}
	panic(http.ErrAbortHandler)
}
