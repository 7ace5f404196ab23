package looptest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// Model is a scripted [loop.Model] without HTTP: for tests of the loop alone,
// and for synctest bubbles. It takes the same replies as a [Script]. Request
// number k gets the k-th reply; a request too many is an error message.
type Model struct {
	mu       sync.Mutex
	answer   func(n int, req *loop.Request) *Reply
	requests []*loop.Request
}

// NewModel returns a model that gives the replies in order.
func NewModel(replies ...Reply) *Model {
	return &Model{answer: func(n int, _ *loop.Request) *Reply {
		if n > len(replies) {
			return nil
		}
		return &replies[n-1]
	}}
}

// NewModelFunc returns a model whose replies depend on the request. f is
// called by one goroutine at a time.
func NewModelFunc(f func(req *loop.Request) Reply) *Model {
	return &Model{answer: func(_ int, req *loop.Request) *Reply {
		r := f(req)
		return &r
	}}
}

// Requests lists what was asked so far.
func (m *Model) Requests() []*loop.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*loop.Request(nil), m.requests...)
}

// Info implements [loop.Model].
func (m *Model) Info() loop.ModelInfo {
	return loop.ModelInfo{ID: "test-model", Name: "Test Model", API: "openai-completions", Provider: "test"}
}

// Stream implements [loop.Model].
func (m *Model) Stream(ctx context.Context, req *loop.Request) iter.Seq2[*loop.Update, error] {
	return func(yield func(*loop.Update, error) bool) {
		m.mu.Lock()
		m.requests = append(m.requests, req)
		n := len(m.requests)
		reply := m.answer(n, req)
		m.mu.Unlock()
		s := modelStream{yield: yield, msg: m.message()}
		if reply == nil {
			s.fail(&loop.ModelError{Class: "client", Message: "looptest: no reply is left"})
			return
		}
		s.play(ctx, reply, n)
	}
}

func (m *Model) message() *loop.AssistantMessage {
	info := m.Info()
	return &loop.AssistantMessage{API: info.API, Provider: info.Provider, Model: info.ID}
}

// modelStream is one answer on its way.
type modelStream struct {
	yield  func(*loop.Update, error) bool
	msg    *loop.AssistantMessage
	pieces int
}

func (s *modelStream) fail(err *loop.ModelError) {
	s.msg.StopReason, s.msg.ErrorMessage, s.msg.Err = loop.StopError, err.Message, err
	s.yield(&loop.Update{Type: loop.UpdateError, Message: s.msg}, nil)
}

func (s *modelStream) aborted(text string) {
	s.msg.StopReason, s.msg.ErrorMessage = loop.StopAborted, text
	s.yield(&loop.Update{Type: loop.UpdateError, Message: s.msg}, nil)
}

func (s *modelStream) play(ctx context.Context, r *Reply, n int) {
	if !wait(ctx, r.Delay) {
		s.aborted("Request was aborted.")
		return
	}
	if r.Status != 0 && r.Status != http.StatusOK {
		s.fail(statusError(r))
		return
	}
	if !s.yield(&loop.Update{Type: loop.UpdateStart, Message: s.msg}, nil) {
		return
	}
	if !s.content(ctx, r, n) {
		return
	}
	if r.Hold != nil {
		select {
		case <-r.Hold:
		case <-ctx.Done():
			s.aborted("Request was aborted")
			return
		}
	}
	s.msg.StopReason = loop.StopStop
	if len(r.Calls) > 0 {
		s.msg.StopReason = loop.StopToolUse
	}
	if r.Stop == "length" {
		s.msg.StopReason = loop.StopLength
	}
	if u := r.Usage; u != nil {
		s.msg.Usage = loop.Usage{
			Input: u.Input - u.Cached, CacheRead: u.Cached, Output: u.Output, Reasoning: u.Reasoning,
			TotalTokens: u.Input + u.Output,
		}
	}
	s.yield(&loop.Update{Type: loop.UpdateDone, Message: s.msg}, nil)
}

func statusError(r *Reply) *loop.ModelError {
	e := &loop.ModelError{Class: "client", Status: r.Status, Message: strconv.Itoa(r.Status) + " " + r.Text}
	if r.Status == http.StatusTooManyRequests || r.Status >= 500 {
		e.Class, e.Retryable = "server", true
	}
	if strings.Contains(r.Text, "maximum context length") {
		e.Class, e.Retryable = "context_overflow", false
	}
	if seconds, err := strconv.Atoi(r.Headers["Retry-After"]); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// content streams the blocks; false: the answer has ended.
func (s *modelStream) content(ctx context.Context, r *Reply, n int) bool {
	if r.Thinking != "" {
		b := &loop.Thinking{}
		s.msg.Content = append(s.msg.Content, b)
		if !s.block(ctx, r, r.Thinking, loop.UpdateThinkingStart, loop.UpdateThinkingDelta, loop.UpdateThinkingEnd,
			func(p string) { b.Thinking += p }) {
			return false
		}
	}
	if r.Text != "" {
		b := &loop.Text{}
		s.msg.Content = append(s.msg.Content, b)
		if !s.block(ctx, r, r.Text, loop.UpdateTextStart, loop.UpdateTextDelta, loop.UpdateTextEnd,
			func(p string) { b.Text += p }) {
			return false
		}
	}
	for i := range r.Calls {
		if !s.call(ctx, r, i, n) {
			return false
		}
	}
	return true
}

func (s *modelStream) block(ctx context.Context, r *Reply, text string, start, delta, end loop.UpdateType, add func(string)) bool {
	u := loop.Update{Type: start, ContentIndex: len(s.msg.Content) - 1, Message: s.msg}
	if !s.yield(&u, nil) {
		return false
	}
	for _, p := range split(text, r.ChunkSize) {
		if !wait(ctx, r.ChunkDelay) {
			s.aborted("Request was aborted")
			return false
		}
		add(p)
		u.Type, u.Delta = delta, p
		if !s.yield(&u, nil) {
			return false
		}
		if s.pieces++; r.CutAfter == s.pieces {
			s.fail(&loop.ModelError{Class: "stream_truncated", Message: "stream ended early", Retryable: true, MidStream: true})
			return false
		}
	}
	u.Type, u.Delta, u.Content = end, "", text
	return s.yield(&u, nil)
}

func (s *modelStream) call(ctx context.Context, r *Reply, i, n int) bool {
	c := r.Calls[i]
	call := &loop.ToolCall{ID: c.ID, Name: c.Name, Arguments: json.RawMessage(c.Args)}
	if call.ID == "" {
		call.ID = fmt.Sprintf("call_%d_%d", n, i+1)
	}
	if c.Args == "" {
		call.Arguments = json.RawMessage("{}")
	}
	if !json.Valid(call.Arguments) {
		call.Arguments = json.RawMessage("{}")
		call.Incomplete = "the arguments are not whole JSON"
	}
	s.msg.Content = append(s.msg.Content, call)
	u := loop.Update{Type: loop.UpdateToolCallStart, ContentIndex: len(s.msg.Content) - 1, ToolCall: call, Message: s.msg}
	if !s.yield(&u, nil) {
		return false
	}
	if !wait(ctx, r.ChunkDelay) {
		s.aborted("Request was aborted")
		return false
	}
	u.Type, u.Delta = loop.UpdateToolCallDelta, c.Args
	if !s.yield(&u, nil) {
		return false
	}
	u.Type, u.Delta = loop.UpdateToolCallEnd, ""
	return s.yield(&u, nil)
}

// wait sleeps; false means that ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
