package loop

import (
	"encoding/json"
	"time"
)

// Event is something that happened in a run. Types and JSON fields are pi's;
// the second group below is this product's own. Events are pointers to the
// structs of this file.
type Event interface {
	// EventType is the JSON "type".
	EventType() string
}

// pi's events.
type (
	// AgentStart opens a run.
	AgentStart struct{}
	// TurnStart opens a turn: one answer of the model and its tool calls.
	TurnStart struct{}
	// MessageStart opens a message. For a streamed answer Message has its
	// role and metadata only; otherwise it is whole.
	MessageStart struct{ Message Message }
	// MessageUpdate is one piece of a streamed answer. Partial is the message
	// so far, shared with the stream: read it before the next event, or clone.
	MessageUpdate struct {
		Partial *AssistantMessage
		Update  Update
	}
	// MessageEnd closes a message; Message is whole.
	MessageEnd struct{ Message Message }
	// ToolExecutionStart comes before a tool is looked up and run. Args are
	// the model's, not the validated ones.
	ToolExecutionStart struct {
		ToolCallID, ToolName string
		Args                 json.RawMessage
	}
	// ToolExecutionUpdate is progress: what the tool handed to its update
	// function. On the wire it is the new part only.
	ToolExecutionUpdate struct {
		ToolCallID, ToolName string
		Args                 json.RawMessage
		PartialResult        ToolResult
	}
	// ToolExecutionEnd is the outcome of one call.
	ToolExecutionEnd struct {
		ToolCallID, ToolName string
		Result               ToolResult
		IsError              bool
	}
	// TurnEnd closes a turn.
	TurnEnd struct {
		Message     Message // nil on the wire
		ToolResults []*ToolResultMessage
		Usage       *Usage // on the wire only: the turn's total
	}
	// AgentEnd closes a run. Messages are the run's new ones.
	AgentEnd struct {
		Messages []Message // nil on the wire
		Usage    *Usage    // on the wire only: the run's total
		// WillContinue says that the same run goes on (a retry follows).
		WillContinue bool
	}
)

// Events of this product.
type (
	// SessionClaimed is a worker's first record in an ownership.
	SessionClaimed struct{ Worker, Epoch string }
	// RunResumed says that another worker goes on with the open run.
	RunResumed struct {
		Attempt int // claims of this run so far, from 2
		Reason  string
	}
	// RunReleased says that the owner gives its open run back in good order,
	// for any worker to go on with.
	RunReleased struct {
		Worker string
		Reason string // "shutdown" or "error"
	}
	// RunLost says that the owner of the open run went without a word: it
	// missed its heartbeats. Its successor writes it, right behind
	// session_claimed.
	RunLost struct {
		Worker, Epoch string // the lost owner's
		Since         int64  // its last record, Unix milliseconds; 0 unknown
	}
	// LeaseLost says that the owner's release of the session was never
	// confirmed: it takes itself for fenced and does no more.
	LeaseLost struct{ Worker, Epoch, Reason string }
	// MessageDiscarded takes back a half-streamed answer.
	MessageDiscarded struct {
		Attempt int // which attempt at the answer it was, from 1; 0 unknown
		Reason  string
	}
	// InputReturned says that an input will not be delivered.
	InputReturned struct {
		Kind string // "prompt", "steer", "followup", "abort", "queue"
		Seq  uint64 // its sequence in the inbox
		ID   string
		// Reason is "abort", "cancel", "dead_letter" or "duplicate"; of an
		// abort "done", or "no_run" if it ended nothing; of a change of the
		// queue "done", "already_delivered", "already_returned" or "unknown".
		Reason string
		// Turn is the one that an input was "already_delivered" in, from 1; 0
		// unknown.
		Turn  int
		Input json.RawMessage
	}
	// AutoRetryStart announces a new attempt of a model request.
	AutoRetryStart struct {
		Attempt, MaxAttempts int           // Attempt counts retries from 1
		Delay                time.Duration // JSON delayMs
		ErrorMessage         string
		Class                string
	}
	// AutoRetryEnd closes a series of attempts.
	AutoRetryEnd struct {
		Success    bool
		Attempt    int
		FinalError string
		// RetryAfter is the provider's wish when the attempts end because it
		// is longer than the policy honours; JSON retryAfterMs, 0 left out.
		RetryAfter time.Duration
	}
	// CompactionStart says that the older part of the context is being
	// summarised.
	CompactionStart struct{ Reason CompactionReason }
	// CompactionEnd closes what CompactionStart opened. With a Result the
	// context is, from here on, its summary and the messages that it kept.
	CompactionEnd struct {
		Reason       CompactionReason
		Result       *Compacted // nil: the context stays as it was
		Usage        Usage      // of the requests that wrote the summary
		Aborted      bool
		WillRetry    bool   // the request that was too long is made again
		ErrorMessage string // why there is no Result
	}
	// Waiting is the heartbeat of a run in which nothing else happens.
	Waiting struct {
		For   string // "model", "tool", "approval", "retry", "queue"
		Since int64  // Unix milliseconds
	}
	// AgentSettled is the last event of a prompt, exactly one for each.
	AgentSettled struct {
		Outcome      Outcome
		Attempts     int
		Usage        Usage
		PromptSeq    uint64 // the prompt's sequence in the inbox
		PromptID     string
		ErrorMessage string
		// RetryAfter says when the prompt may be sent again, if a provider's
		// limit ended it; JSON retryAfterMs, 0 left out.
		RetryAfter time.Duration
	}
	// UnknownEvent is kept and passed on.
	UnknownEvent struct {
		Type string
		Raw  json.RawMessage
	}
)

// Compacted is what a context became.
type Compacted struct {
	Summary string
	// Kept is how many of the context's last messages stay behind the summary.
	Kept int
	// Tokens before and after, by the loop's own estimate.
	TokensBefore, TokensAfter int64
	Timestamp                 int64 // Unix milliseconds
}

// CompactionReason is why a context is summarised.
type CompactionReason string

const (
	// CompactionThreshold: the next request would not leave enough room.
	CompactionThreshold CompactionReason = "threshold"
	// CompactionOverflow: the provider refused the request as too long.
	CompactionOverflow CompactionReason = "overflow"
	// CompactionTruncated: the provider's count shows that it drops a part of
	// what it is sent without a word.
	CompactionTruncated CompactionReason = "truncated"
)

// Outcome is how a prompt ended.
type Outcome string

const (
	OutcomeCompleted  Outcome = "completed"
	OutcomeFailed     Outcome = "failed"
	OutcomeAborted    Outcome = "aborted"
	OutcomeLimit      Outcome = "limit"
	OutcomeDeadLetter Outcome = "dead_letter"
)

func (*AgentStart) EventType() string          { return "agent_start" }
func (*TurnStart) EventType() string           { return "turn_start" }
func (*MessageStart) EventType() string        { return "message_start" }
func (*MessageUpdate) EventType() string       { return "message_update" }
func (*MessageEnd) EventType() string          { return "message_end" }
func (*ToolExecutionStart) EventType() string  { return "tool_execution_start" }
func (*ToolExecutionUpdate) EventType() string { return "tool_execution_update" }
func (*ToolExecutionEnd) EventType() string    { return "tool_execution_end" }
func (*TurnEnd) EventType() string             { return "turn_end" }
func (*AgentEnd) EventType() string            { return "agent_end" }
func (*SessionClaimed) EventType() string      { return "session_claimed" }
func (*RunResumed) EventType() string          { return "run_resumed" }
func (*RunReleased) EventType() string         { return "run_released" }
func (*RunLost) EventType() string             { return "run_lost" }
func (*LeaseLost) EventType() string           { return "lease_lost" }
func (*MessageDiscarded) EventType() string    { return "message_discarded" }
func (*InputReturned) EventType() string       { return "input_returned" }
func (*AutoRetryStart) EventType() string      { return "auto_retry_start" }
func (*AutoRetryEnd) EventType() string        { return "auto_retry_end" }
func (*CompactionStart) EventType() string     { return "compaction_start" }
func (*CompactionEnd) EventType() string       { return "compaction_end" }
func (*Waiting) EventType() string             { return "waiting" }
func (*AgentSettled) EventType() string        { return "agent_settled" }
func (e *UnknownEvent) EventType() string      { return e.Type }
