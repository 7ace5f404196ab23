package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/option"

	"github.com/pi-worker/pi-worker/loop"
)

// What ends a request early, as the cause of its context.
var (
	errFirstByte = errors.New("openai: no answer in time")
	errSilence   = errors.New("openai: silence in the answer")
	errTotal     = errors.New("openai: the answer takes too long")
	errOver      = errors.New("openai: the answer is over")
)

// maxBody is the largest answer that is not a stream, in bytes.
const maxBody = 64 << 20

// maxErrorBody bounds what is read of an error's body, in bytes.
const maxErrorBody = 1 << 20

// drainTime is how long the rest of a finished stream is waited for, so that
// its connection can be used again.
const drainTime = 20 * time.Millisecond

// Stream implements [loop.Model]: one attempt.
func (m *Model) Stream(ctx context.Context, req *loop.Request) iter.Seq2[*loop.Update, error] {
	return func(yield func(*loop.Update, error) bool) {
		a := &attempt{m: m, parent: ctx, req: req}
		info := &m.cfg.Info
		a.out = sink{yield: yield, msg: &loop.AssistantMessage{
			API: info.API, Provider: info.Provider, Model: info.ID,
			Content: []loop.Block{}, StopReason: loop.StopStop,
			Timestamp: time.Now().UnixMilli(),
		}}
		if m.cfg.API == Responses {
			a.dec = newResponsesStream(m, &a.out)
		} else {
			a.dec = &chatStream{m: m, out: &a.out}
		}
		a.run()
	}
}

// attempt is one request and its answer.
type attempt struct {
	m      *Model
	parent context.Context
	req    *loop.Request
	out    sink
	dec    decoder

	ctx    context.Context
	cancel context.CancelCauseFunc
	size   int // bytes of the request
}

func (a *attempt) run() {
	a.ctx, a.cancel = context.WithCancelCause(a.parent)
	defer a.cancel(errOver)
	if total := a.m.cfg.Timeouts.Total; total > 0 {
		defer a.after(total, errTotal).Stop()
	}
	if a.parent.Err() != nil {
		a.fail(nil)
		return
	}
	res, err := a.post()
	if err != nil {
		a.fail(err)
		return
	}
	body := &watchedBody{body: res.Body}
	if silence := a.m.cfg.Timeouts.Silence; silence > 0 {
		body.silence = silence
		body.timer = a.after(silence, errSilence)
		body.timer.Stop()
	}
	defer res.Body.Close()
	a.read(res, body)
}

// after cancels the request with a cause.
func (a *attempt) after(d time.Duration, cause error) *time.Timer {
	return time.AfterFunc(d, func() { a.cancel(cause) })
}

// watchedBody runs the silence timer while it waits for the next piece, and
// only then: a slow consumer is not the model's silence.
type watchedBody struct {
	body    io.Reader
	timer   *time.Timer
	silence time.Duration
}

func (b *watchedBody) Read(p []byte) (int, error) {
	if b.timer != nil {
		b.timer.Reset(b.silence)
		defer b.timer.Stop()
	}
	return b.body.Read(p)
}

// limitBody is the SDK's middleware: the SDK reads error bodies whole.
func (m *Model) limitBody(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	res, err := next(req)
	if res != nil && res.StatusCode >= 400 && res.Body != nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxErrorBody), res.Body}
	}
	return res, err
}

// post sends the request and gives the answer once its headers are there.
func (a *attempt) post() (*http.Response, *loop.ModelError) {
	path, body := "chat/completions", []byte(nil)
	if a.m.cfg.API == Responses {
		path, body = "responses", a.m.responsesBody(a.req)
	} else {
		body = a.m.chatBody(a.req)
	}
	a.size = len(body)
	limit := limitID(a.m.cfg.BaseURL, a.m.key(a.req))
	if e := a.m.limiter.paused(limit); e != nil {
		return nil, e
	}
	if first := a.m.cfg.Timeouts.FirstByte; first > 0 {
		defer a.after(first, errFirstByte).Stop()
	}
	var res *http.Response
	opts := append(a.m.headers(a.req), option.WithResponseInto(&res))
	err := a.m.client.Post(a.ctx, path, body, nil, opts...)
	switch {
	case context.Cause(a.ctx) != nil:
		if res != nil && res.Body != nil {
			res.Body.Close()
		}
		return nil, a.broken(err)
	case res == nil || res.StatusCode < 400 && err != nil:
		if res != nil && res.Body != nil {
			res.Body.Close()
		}
		return nil, a.broken(err)
	case res.StatusCode >= 400:
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		e := statusError(res, text)
		a.m.limiter.rest(limit, e)
		return nil, a.m.learn(e, body)
	case res.StatusCode < 200 || res.StatusCode >= 300:
		res.Body.Close()
		return nil, &loop.ModelError{
			Class: classBadResponse, Status: res.StatusCode,
			Message: fmt.Sprintf("%d unexpected status", res.StatusCode),
		}
	}
	return res, nil
}

// learn gives up what a server refuses and can be left out: the wish for usage,
// earlier thinking. The next attempt goes without.
func (m *Model) learn(e *loop.ModelError, body []byte) *loop.ModelError {
	if e.Status != http.StatusBadRequest && e.Status != http.StatusUnprocessableEntity {
		return e
	}
	switch {
	case m.compat.usage && (strings.Contains(e.Message, "stream_options") || strings.Contains(e.Message, "include_usage")):
		e.Retryable = !m.noUsage.Swap(true)
	case m.cfg.API == ChatCompletions && refusesThoughts(e.Message, body):
		e.Retryable = !m.noThoughts.Swap(true)
	}
	return e
}

// refusesThoughts reports whether a refusal names a field of thinking that the
// request has. One that misses it says so.
func refusesThoughts(message string, body []byte) bool {
	for _, word := range []string{"must be", "required", "missing"} {
		if strings.Contains(message, word) && !strings.Contains(message, "unsupported") && !strings.Contains(message, "not allowed") {
			return false
		}
	}
	for _, name := range append(reasoningFields[:], "reasoning_details") {
		if strings.Contains(message, name) && bytes.Contains(body, []byte(`"`+name+`":`)) {
			return true
		}
	}
	return false
}

// headers are the request's own: authentication, session, what is configured.
func (m *Model) headers(req *loop.Request) []option.RequestOption {
	opts := []option.RequestOption{option.WithHeader("Accept", "text/event-stream")}
	switch key := m.key(req); {
	case key == "":
	case m.compat.keyHeader != "":
		opts = append(opts, option.WithHeader(m.compat.keyHeader, key))
	default:
		opts = append(opts, option.WithHeader("Authorization", "Bearer "+key))
	}
	if s := headerValue(req.Options.SessionID); s != "" && retention(req) != "none" {
		opts = append(opts, m.sessionHeaders(s)...)
	}
	for name, v := range m.cfg.Headers {
		opts = append(opts, option.WithHeader(name, v))
	}
	for name, v := range req.Options.Headers {
		opts = append(opts, option.WithHeader(name, v))
	}
	return opts
}

func (m *Model) sessionHeaders(session string) []option.RequestOption {
	var opts []option.RequestOption
	if m.cfg.API == Responses {
		if m.compat.session {
			opts = append(opts, option.WithHeader("session_id", session))
		}
		return append(opts, option.WithHeader("x-client-request-id", session))
	}
	if m.compat.affinity {
		for _, name := range []string{"session_id", "x-client-request-id", "x-session-affinity"} {
			opts = append(opts, option.WithHeader(name, session))
		}
	}
	return opts
}

// headerValue is s if it may stand in a header.
func headerValue(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
		return ""
	}
	return s
}

func (m *Model) key(req *loop.Request) string {
	if req.Options.APIKey != "" {
		return req.Options.APIKey
	}
	return m.cfg.APIKey
}

// read takes the answer apart by what it is: a stream, a JSON document, or
// something else that came with status 200.
func (a *attempt) read(res *http.Response, body io.Reader) {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind == "text/event-stream" {
		a.events(body)
		return
	}
	head, err := sniff(body)
	if err != nil && err != io.EOF {
		a.fail(a.broken(err))
		return
	}
	rest := io.MultiReader(bytes.NewReader(head), body)
	switch {
	case looksLikeEvents(head):
		a.events(rest)
	case len(head) > 0 && head[0] == '{':
		a.document(rest)
	default:
		text, _ := io.ReadAll(io.LimitReader(rest, maxErrorText))
		a.fail(wrongContent(res, kind, text))
	}
}

// sniff reads the first bytes that are not white space.
func sniff(r io.Reader) ([]byte, error) {
	buf := make([]byte, 0, 512)
	for len(buf) < cap(buf) {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if s := bytes.TrimLeft(bytes.TrimPrefix(buf, []byte("\xef\xbb\xbf")), " \t\r\n"); len(s) >= 6 || err != nil {
			return s, err
		}
	}
	return nil, nil
}

func looksLikeEvents(head []byte) bool {
	for _, p := range []string{"data:", "event:", "id:", "retry:", ":"} {
		if bytes.HasPrefix(head, []byte(p)) {
			return true
		}
	}
	return false
}

func wrongContent(res *http.Response, kind string, text []byte) *loop.ModelError {
	if kind == "" {
		kind = "no content type"
	}
	e := &loop.ModelError{Class: classBadResponse, Status: res.StatusCode, Retryable: true}
	e.Message = fmt.Sprintf("%d answer is not a stream but %s", res.StatusCode, kind)
	if s := strings.TrimSpace(string(text)); s != "" {
		e.Message += ": " + strings.ToValidUTF8(s, "")
	} else {
		e.Message += ", and empty"
	}
	return e
}

// document takes an answer that is one JSON document.
func (a *attempt) document(r io.Reader) {
	body, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	switch {
	case err != nil:
		a.fail(a.broken(err))
		return
	case len(body) > maxBody:
		a.fail(&loop.ModelError{Class: classBadResponse, Message: "the answer is larger than 64 MiB"})
		return
	}
	if e := field(body, "error"); !emptyError(e) {
		a.fail(streamError(e))
		return
	}
	if field(body, "choices") == nil && field(body, "output") == nil {
		a.fail(&loop.ModelError{
			Class: classBadResponse, Status: http.StatusOK, Raw: clone(body),
			Message: "200 answer is not a stream: " + clip(string(body)),
		})
		return
	}
	a.out.start()
	if e := a.dec.whole(body); e != nil {
		a.fail(e)
		return
	}
	a.done()
}

// events reads the stream to its end.
func (a *attempt) events(body io.Reader) {
	a.out.start()
	r := NewReader(body)
	for !a.out.stopped {
		ev, err := r.Next()
		if a.interrupted() {
			return
		}
		over := err != nil
		switch {
		case err == nil:
			var failure *loop.ModelError
			if over, failure = a.dec.event(ev); failure != nil {
				a.dec.abandon(false)
				a.fail(failure)
				return
			}
		case errors.Is(err, ErrTooLong):
			a.dec.abandon(false)
			a.fail(&loop.ModelError{Class: classBadResponse, Message: err.Error(), Err: err})
			return
		case err != io.EOF && !a.dec.complete():
			a.dec.abandon(false)
			a.fail(a.broken(err))
			return
		}
		if over {
			a.finish(body)
			return
		}
	}
}

// interrupted ends the message if the caller or a time limit ended the
// request. An answer that was complete before a limit struck is good.
func (a *attempt) interrupted() bool {
	switch cause := context.Cause(a.ctx); {
	case cause == nil:
		return false
	case a.parent.Err() != nil:
		a.dec.abandon(true)
		a.fail(nil)
	case a.dec.complete():
		a.finish(nil)
	default:
		a.dec.abandon(false)
		a.fail(a.broken(cause))
	}
	return true
}

func (a *attempt) finish(rest io.Reader) {
	failure := a.dec.finish()
	switch {
	case a.out.stopped:
		return
	case failure != nil || a.parent.Err() != nil:
		a.fail(failure)
		return
	}
	a.done()
	if rest != nil {
		a.drain(rest)
	}
}

// drain reads what follows the end of the answer, for a moment.
func (a *attempt) drain(rest io.Reader) {
	defer a.after(drainTime, errOver).Stop()
	var buf [512]byte
	for range 8 {
		if _, err := rest.Read(buf[:]); err != nil {
			return
		}
	}
}

// done yields the whole message.
func (a *attempt) done() {
	a.estimate()
	a.out.up = loop.Update{Type: loop.UpdateDone, Message: a.out.msg}
	a.out.send()
}

func (a *attempt) estimate() {
	if a.m.cfg.EstimateUsage && !a.out.usage {
		a.m.estimate(a.out.msg, a.size)
	}
}

// fail yields the failed message; without an error, or when the caller's
// context is over, it is an abort.
func (a *attempt) fail(e *loop.ModelError) {
	msg := a.out.msg
	if a.parent.Err() != nil || e == nil {
		msg.StopReason = loop.StopAborted
		msg.ErrorMessage = "Request was aborted."
		if a.out.started {
			msg.ErrorMessage = "Request was aborted"
		}
	} else {
		mask(e, a.m.key(a.req))
		e.MidStream = a.out.started
		msg.StopReason, msg.ErrorMessage, msg.Err = loop.StopError, e.Message, e
		a.m.log.Debug("model request failed", "model", msg.Model, "class", e.Class, "status", e.Status, "error", e.Message)
	}
	for _, b := range msg.Content {
		if tc, ok := b.(*loop.ToolCall); ok {
			tc.Incomplete = "" // calls of a failed message are never run anyway
		}
	}
	if a.out.started {
		a.estimate()
	}
	a.out.up = loop.Update{Type: loop.UpdateError, Message: msg}
	a.out.send()
}

// broken is what a transport's error means.
func (a *attempt) broken(err error) *loop.ModelError {
	t := &a.m.cfg.Timeouts
	e := &loop.ModelError{Retryable: true, Err: err}
	switch context.Cause(a.ctx) {
	case errFirstByte:
		e.Class, e.Message = classFirstByte, "Request timed out."
	case errSilence:
		e.Class, e.Message = classSilence, fmt.Sprintf("the model sent nothing for %v", t.Silence)
	case errTotal:
		e.Class, e.Message = classTotal, fmt.Sprintf("the answer was not complete after %v", t.Total)
	default:
		e.Class, e.Message = classNetwork, "Connection error."
		if err != nil {
			e.Message = "Connection error: " + err.Error()
		}
	}
	return e
}
