// Package session keeps the truth about sessions in JetStream: the inbox of
// inputs, the fenced log of records, and the bell whose un-acked delivery is
// the lease.
//
//	store, err := session.Open(ctx, nc, subjects.Names{}, nil)
//	for claim, err := range store.Claims(ctx, nil) {
//		state, err := store.Fold(ctx, claim.Session())
//		log, err := store.OpenLog(ctx, claim.Session(), state, "worker-1") // the fence
//		in, err := store.NextInput(ctx, claim.Session(), "", 0)
//		err = log.Append(ctx, &loop.AgentStart{}, in.Ref) // consumes the input
//		err = log.Flush(ctx)                              // before any effect outside
//		err = store.DeleteInput(ctx, in)
//		err = claim.Remove(ctx)
//	}
//
// A record is one message on the session's events subject: events as JSON, one
// a line, that were committed together. Its headers carry the fence
// (Nats-Expected-Last-Subject-Sequence), the ownership that wrote it
// (Pi-Epoch), its dense number (Pi-Seq, and Pi-Sub for those that expire) and
// the inputs that it consumes (Pi-Input, with ids and options in
// Pi-Input-Info). So the log alone says what was done; the inbox says what is
// still to do; everything else can be rebuilt from the two.
package session

import (
	"errors"
	"fmt"
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
	ErrUnconfirmed    = errors.New("session: the broker did not confirm that the bell is removed")
	ErrNoInput        = errors.New("session: no input")
	ErrUnknownSession = errors.New("session: unknown session")
	ErrInboxFull      = errors.New("session: too many inputs of this kind wait in the session")
	ErrTooLarge       = errors.New("session: too large")
	ErrEmptyInput     = errors.New("session: empty input")
	ErrMalformed      = errors.New("session: malformed input")
	ErrClosed         = errors.New("session: log is closed")
	ErrNoServer       = errors.New("session: NATS does not answer")
	ErrNoStream       = errors.New("session: stream does not exist; does a worker run?")
	ErrBroken         = errors.New("session: log is broken")
)

// Epoch names one ownership of a session: N grows with each, Nonce tells two
// apart that raced for the same N.
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

// InputRef names an input that a record consumes. ID and Options travel with
// it into the log, so that the inbox can forget it.
type InputRef struct {
	Kind    subjects.Kind
	Seq     uint64        // stream sequence in the inbox
	ID      string        // "" if the sender gave none
	Options *InputOptions // nil: none
	// Returned says that the record gives the input back instead of
	// delivering it; Append sets it.
	Returned bool
	// Early says that inputs of its kind which were stored before it may
	// still wait, it being cancelled or moved: the cursor does not move.
	Early bool
}

// Record is one message of a session's log: events that were committed
// together.
type Record struct {
	Session   string
	StreamSeq uint64 // in the events stream; From.Seq takes it
	Seq       uint64 // dense number of the last durable record up to this one, from 1
	Sub       uint64 // 0 on durable records; number after Seq, from 1, on those that expire
	Epoch     Epoch
	Time      time.Time // when the broker stored it
	Inputs    []InputRef
	Settled   uint64 // stream sequence of the last agent_settled before this record, 0 none
	Events    []loop.Event
	Lines     [][]byte // the events as they are on the wire, blobs resolved
	// TraceParent is the W3C trace context of the writer, "" unknown.
	TraceParent string
	// Gap, if not nil, says that records before this one are gone. A Record
	// with a Gap has nothing else but Session.
	Gap *Gap
}

// Gap is a hole in what was asked for.
type Gap struct {
	From, To uint64 // stream sequences, both included
	Records  uint64 // durable records of the session that are missing; 0 unknown
}

// From says where a reader begins. The zero value is the start.
type From struct {
	Seq         uint64    // this stream sequence or the next that exists
	Time        time.Time // the first record at or after
	Start       bool
	LastSettled bool // what follows the last agent_settled; the start if there is none
	Now         bool // only what comes
	// Expect is the Pi-Seq that the next durable record must have, so that a
	// hole at the beginning is seen exactly; 0 unknown.
	Expect uint64
	// Wait makes Tail wait for a session that does not exist yet, instead of
	// ErrUnknownSession.
	Wait bool
}
