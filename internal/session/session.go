// Package session keeps the truth about sessions in JetStream: the inbox of
// inputs, the fenced log of events, and the bell whose un-acked delivery is
// the lease.
package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// Errors that callers can tell apart.
var (
	ErrFenced         = errors.New("session: fenced: another worker wrote to the log")
	ErrLeaseLost      = errors.New("session: lease lost")
	ErrNoInput        = errors.New("session: no input")
	ErrUnknownSession = errors.New("session: unknown session")
	ErrInboxFull      = errors.New("session: inbox of this session is full")
	ErrTooLarge       = errors.New("session: input too large")
	ErrEmptyInput     = errors.New("session: empty input")
	ErrClosed         = errors.New("session: log is closed")
	ErrNoServer       = errors.New("session: NATS does not answer")
	ErrBroken         = errors.New("session: log is broken")
)

// Epoch names one ownership of a session: N grows with each, Nonce tells two
// that raced for the same N apart.
type Epoch struct {
	N     uint64
	Nonce string
}

// String is the form of the Pi-Epoch header, "<n>-<nonce>".
func (e Epoch) String() string { return strconv.FormatUint(e.N, 10) + "-" + e.Nonce }

// ParseEpoch reads what [Epoch.String] wrote.
func ParseEpoch(s string) (Epoch, error) {
	n, nonce, ok := strings.Cut(s, "-")
	if !ok || nonce == "" {
		return Epoch{}, fmt.Errorf("session: no epoch: %.80q", s)
	}
	num, err := strconv.ParseUint(n, 10, 64)
	if err != nil {
		return Epoch{}, fmt.Errorf("session: no epoch: %.80q", s)
	}
	return Epoch{N: num, Nonce: nonce}, nil
}

// InputOptions are what an input asks for besides its message.
type InputOptions struct {
	Agent         string `json:"agent,omitempty"`         // profile; "" is the worker's default
	Model         string `json:"model,omitempty"`         // "" is the profile's
	ThinkingLevel string `json:"thinkingLevel,omitempty"` // "" is the profile's
	// Extra holds all other options as they came, a JSON object or nil.
	Extra json.RawMessage `json:"extra,omitempty"`
}

// InputRef names an input that a record consumes. ID, Options, From and
// TraceParent travel with it into the log, so that the inbox can forget it.
type InputRef struct {
	Kind    subjects.Kind
	Seq     uint64 // stream sequence in the inbox
	ID      string
	Options *InputOptions // nil: none
}

// AbortOptions say what an abort does with queued inputs.
type AbortOptions struct {
	Queue string // "keep" (the default), "drop" or "return"
}

// Input is one message of the inbox.
type Input struct {
	Ref         InputRef // Seq is 0 before it is published
	Session     string
	ID          string
	Message     loop.Message // nil for an abort
	Options     InputOptions
	Abort       AbortOptions
	Raw         []byte // payload as it was published, blobs resolved
	Time        time.Time
	TraceParent string
	Err         error // malformed: why; then only Ref, Session, Raw and Time count
}

// Receipt says that the broker has an input.
type Receipt struct {
	ID        string
	Seq       uint64 // stream sequence in the inbox
	Duplicate bool   // the broker had it already, within its duplicate window
}

// Record is one message of a session's log: events that were committed
// together.
type Record struct {
	Session     string
	StreamSeq   uint64
	Seq, Sub    uint64 // Pi-Seq, and Pi-Sub (0 on durable records)
	Epoch       Epoch
	Time        time.Time
	Inputs      []InputRef
	Settled     uint64 // stream sequence of the last agent_settled before this record, 0 none
	Events      []loop.Event
	Lines       [][]byte // the events as they are on the wire, blobs resolved
	TraceParent string
	// Gap, if not nil, says that records before this one are gone; a Record
	// with a Gap has nothing else.
	Gap *Gap
}

// Gap is a hole in what was asked for.
type Gap struct {
	From, To uint64 // stream sequences, both included
	Records  uint64 // durable records that are missing; 0 unknown
}

// From says where a reader begins; the zero value is Start.
type From struct {
	Seq         uint64    // stream sequence, included
	Time        time.Time // first record at or after
	Start       bool
	LastSettled bool // the first record after the last agent_settled
	Now         bool // only what comes
	// Expect is the Pi-Seq that the next durable record must have, so that a
	// hole at the beginning is seen; 0 unknown.
	Expect uint64
	// Wait makes Tail wait for a session that does not exist yet, instead of
	// ErrUnknownSession.
	Wait bool
}

// InputOutcome is what became of an input that the log knows.
type InputOutcome struct {
	Ref      InputRef
	Record   uint64 // stream sequence of the record that consumed it
	Returned bool
}

// State is what a fold of the log gives.
type State struct {
	Transcript *loop.Transcript
	// Cursors are the last consumed inbox sequences of each kind.
	Cursors map[subjects.Kind]uint64
	IDs     map[string]InputOutcome
	Epoch   Epoch  // the last one; zero for a session without log
	Worker  string // the worker of the last session_claimed
	TailSeq uint64 // stream sequence of the last record
	Seq     uint64 // Pi-Seq of the last durable record
	Sub     uint64 // Pi-Sub of the tail
	Settled uint64 // stream sequence of the last record with agent_settled
	// Attempts counts the claims of the open run since its last completed
	// turn, this one not included; 0 without an open run.
	Attempts int
	// Prompt is the input that began the open run, nil without one.
	Prompt *InputRef
	Time   time.Time // of the last record
}

type (
	_ = context.Context
	_ = iter.Seq[int]
)
