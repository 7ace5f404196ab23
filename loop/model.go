package loop

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// Model streams one answer for each call of Stream. One attempt, no retries:
// those are the loop's (see [RetryPolicy]).
type Model interface {
	// Info describes the model: it goes into the answers' metadata.
	Info() ModelInfo
	// Stream sends the request and yields the answer's pieces, in pi's order:
	// UpdateStart first (only once the response's stream began), then blocks,
	// and last exactly one UpdateDone or UpdateError, whose Message is whole.
	// The error of the sequence is only for faults of the program; everything
	// that a provider or a network can do is an UpdateError whose Message has
	// StopError (Err a *ModelError) or StopAborted.
	Stream(ctx context.Context, req *Request) iter.Seq2[*Update, error]
}

// ModelInfo describes a model.
type ModelInfo struct {
	ID, Name, API, Provider, BaseURL string
	Reasoning                        bool
	Input                            []string // "text", "image"
	Price                            Price
	ContextWindow, MaxTokens         int64 // tokens; 0 unknown
}

// Price is US dollars per million tokens.
type Price struct{ Input, Output, CacheRead, CacheWrite float64 }

// Request is one call of a model.
type Request struct {
	SystemPrompt string
	Messages     []Message // user, assistant and toolResult only
	// Tools in the order given; nil means that no list is sent, empty that an
	// empty one may be.
	Tools   []ToolSpec
	Options ModelOptions
}

// ModelOptions are a request's knobs; the zero value of each leaves it out of
// the request.
type ModelOptions struct {
	APIKey         string // "" means the model's own
	Temperature    *float64
	MaxTokens      int64
	Reasoning      string // minimal, low, medium, high, xhigh; "" is off
	SessionID      string // prompt cache key
	CacheRetention string // "none", "short", "long"
	Headers        map[string]string
}

// UpdateType is pi's assistantMessageEvent.type.
type UpdateType string

const (
	UpdateStart         UpdateType = "start"
	UpdateTextStart     UpdateType = "text_start"
	UpdateTextDelta     UpdateType = "text_delta"
	UpdateTextEnd       UpdateType = "text_end"
	UpdateThinkingStart UpdateType = "thinking_start"
	UpdateThinkingDelta UpdateType = "thinking_delta"
	UpdateThinkingEnd   UpdateType = "thinking_end"
	UpdateToolCallStart UpdateType = "toolcall_start"
	UpdateToolCallDelta UpdateType = "toolcall_delta"
	UpdateToolCallEnd   UpdateType = "toolcall_end"
	UpdateDone          UpdateType = "done"
	UpdateError         UpdateType = "error"
)

// Update is pi's assistantMessageEvent. A model may yield the same *Update
// again and again: copy what is kept.
type Update struct {
	Type         UpdateType
	ContentIndex int
	Delta        string    // *_delta
	Content      string    // text_end, thinking_end
	ToolCall     *ToolCall // toolcall_start (id and name so far), toolcall_end
	// Revised says that Content, or ToolCall's arguments, are not what the
	// deltas add up to, so that the log must carry them.
	Revised bool
	// Message is the message so far (start and block updates; shared, do not
	// keep) or the whole one (done, error).
	Message *AssistantMessage
}

// ModelError is what went wrong with a request.
type ModelError struct {
	// Class is "network", "timeout_first_byte", "timeout_silence",
	// "timeout_total", "rate_limited", "overloaded", "server", "client",
	// "stream_truncated", "stream_error", "bad_response", "content_filter",
	// "auth", "context_overflow".
	Class      string
	Status     int // HTTP status, 0 none
	Message    string
	Retryable  bool
	MidStream  bool          // some of the answer had been streamed
	RetryAfter time.Duration // the provider's wish, 0 none
	// Paused says that nothing was sent: another request of this process was
	// told to wait, and its key rests for RetryAfter. Such a wait is shown like
	// a retry and not counted as one.
	Paused bool
	// Jitter is to be waited beside RetryAfter, so that those who were told
	// together don't come back together.
	Jitter time.Duration
	Raw    json.RawMessage
	Err    error
}

func (e *ModelError) Error() string { return e.Message }
func (e *ModelError) Unwrap() error { return e.Err }

// RetryPolicy says how failed model requests are repeated. The zero value
// never repeats.
type RetryPolicy struct {
	MaxRetries int           // further attempts; 0 none
	BaseDelay  time.Duration // doubles each time, with jitter; 0 means 500 ms
	MaxDelay   time.Duration // cap of the computed delay; 0 means 8 s
	// MaxRetryAfter is the longest wish of a provider that is honoured; a
	// longer one ends the attempts. 0 means 60 s.
	MaxRetryAfter time.Duration
	// MidStream repeats answers that broke off half-way as well, after a
	// message_discarded event.
	MidStream bool
}
