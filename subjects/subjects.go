// Package subjects knows the names that workers, clients and strangers share:
// subjects, streams, headers, and how to create the streams.
//
//	names := subjects.Names{}                     // prefix "agent"
//	names.Input("s1", subjects.KindPrompt)        // agent.s1.prompt
//	names.Events("s1")                            // agent.s1.events
//	session, kind, err := names.ParseInput(subj)
//
// One token of the subject is the session, so a session id is
// [A-Za-z0-9_-]{1,64}; [ParseSession] refuses everything else before it
// reaches a subject. No other package builds a subject.
//
// Under the default prefix these things live in JetStream:
//
//	AGENT_INBOX     agent.*.{prompt,steer,followup,abort,queue}  what was asked
//	AGENT_EVENTS    agent.*.events                         what happened
//	AGENT_BELL      agent-bell.*                           who must be looked at; un-acked it is the lease
//	AGENT_DLQ       agent-dlq.*                            what could not be done, and why
//	AGENT_BLOBS     object store                           payloads over the limit
//	AGENT_SESSIONS  key-value                              summaries, derived and disposable
//	AGENT_FLEET     key-value                              what workers tell each other for a while
//
// [Ensure] creates them and the consumers that workers share.
package subjects

import (
	"errors"
	"fmt"
	"strings"
)

// DefaultPrefix is the prefix of the zero [Names].
const DefaultPrefix = "agent"

// MaxSession is the longest session id, in bytes.
const MaxSession = 64

// Consumers that all workers share.
const (
	ConsumerWorkers = "workers" // durable pull consumer of the bell
	ConsumerRinger  = "ringer"  // durable pull consumer of the inbox
)

// Headers of records and inputs.
const (
	HeaderEpoch       = "Pi-Epoch"      // <n>-<nonce> of the ownership that wrote the record
	HeaderSeq         = "Pi-Seq"        // dense number of the record, over durable records, from 1
	HeaderSub         = "Pi-Sub"        // only on ephemeral records: number after Pi-Seq, from 1
	HeaderInput       = "Pi-Input"      // kind:seq[,kind:seq] that the record consumes
	HeaderInputInfo   = "Pi-Input-Info" // JSON: ids and options of the consumed inputs
	HeaderSettled     = "Pi-Settled"    // stream sequence of the last record with agent_settled
	HeaderReason      = "Pi-Reason"     // dead letters: why
	HeaderAttempts    = "Pi-Attempts"   // dead letters: claims that were made
	HeaderError       = "Pi-Error"      // dead letters: last error
	HeaderID          = "Pi-Id"         // dead letters: the input's id
	HeaderKind        = "Pi-Kind"       // dead letters: the input's kind
	HeaderRedrive     = "Pi-Redrive"    // inputs: sequence of the dead letter that is tried again
	HeaderRings       = "Pi-Rings"      // inputs: "1" if the publisher rings the bell itself
	HeaderTraceParent = "traceparent"   // W3C trace context
)

// Errors of the parsers.
var (
	ErrSession = errors.New("subjects: session id must be 1 to 64 of A-Z a-z 0-9 _ -")
	ErrSubject = errors.New("subjects: not a subject of this prefix")
	ErrPrefix  = errors.New("subjects: prefix must be dot-separated tokens of A-Z a-z 0-9 _ -")
)

// Kind is what an input is: the last token of its subject.
type Kind string

const (
	KindPrompt   Kind = "prompt"
	KindSteer    Kind = "steer"
	KindFollowUp Kind = "followup"
	KindAbort    Kind = "abort"
	KindQueue    Kind = "queue"   // changes what waits: cancel, edit
	KindApprove  Kind = "approve" // allows or refuses a tool call
)

// Kinds are all kinds of inputs.
var Kinds = [...]Kind{KindPrompt, KindSteer, KindFollowUp, KindAbort, KindQueue, KindApprove}

// HasMessage says whether inputs of the kind are for the agent; the others are
// for its owner.
func (k Kind) HasMessage() bool { return k == KindPrompt || k == KindSteer || k == KindFollowUp }

// ParseKind accepts the kinds of inputs and nothing else.
func ParseKind(s string) (Kind, error) {
	for _, k := range Kinds {
		if string(k) == s {
			return k, nil
		}
	}
	return "", fmt.Errorf("%w: no kind of input is %q", ErrSubject, s)
}

// ParseSession returns id if it is a session id, and [ErrSession] otherwise.
func ParseSession(id string) (string, error) {
	if len(id) > MaxSession || !isToken(id) {
		return "", fmt.Errorf("%w: %.80q", ErrSession, id)
	}
	return id, nil
}

// ParsePrefix returns prefix if it can begin subjects, "" meaning
// [DefaultPrefix], and [ErrPrefix] otherwise.
func ParsePrefix(prefix string) (string, error) {
	if prefix == "" {
		return DefaultPrefix, nil
	}
	for token := range strings.SplitSeq(prefix, ".") {
		if !isToken(token) {
			return "", fmt.Errorf("%w: %.80q", ErrPrefix, prefix)
		}
	}
	return prefix, nil
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return s != ""
}

// Names builds and parses subjects and stream names. The zero value has the
// prefix "agent". Sessions and workers given to its methods must be valid
// ([ParseSession]).
type Names struct {
	Prefix string // "" means DefaultPrefix; see ParsePrefix
}

func (n Names) prefix() string {
	if n.Prefix == "" {
		return DefaultPrefix
	}
	return n.Prefix
}

func (n Names) stream(suffix string) string {
	return strings.ToUpper(strings.ReplaceAll(n.prefix(), ".", "_")) + suffix
}

// InboxStream holds inputs until their owner deletes them.
func (n Names) InboxStream() string { return n.stream("_INBOX") }

// EventsStream holds the sessions' logs.
func (n Names) EventsStream() string { return n.stream("_EVENTS") }

// BellStream holds at most one bell a session.
func (n Names) BellStream() string { return n.stream("_BELL") }

// DLQStream holds dead letters.
func (n Names) DLQStream() string { return n.stream("_DLQ") }

// BlobBucket is the object store for payloads over the limit.
func (n Names) BlobBucket() string { return n.stream("_BLOBS") }

// SessionsBucket is the key-value bucket of summaries.
func (n Names) SessionsBucket() string { return n.stream("_SESSIONS") }

// FleetBucket is the key-value bucket of what workers tell each other for a
// while: what trees of runs have used, keys that rest.
func (n Names) FleetBucket() string { return n.stream("_FLEET") }

// Input is the subject of one kind of input of a session.
func (n Names) Input(session string, kind Kind) string {
	return n.prefix() + "." + session + "." + string(kind)
}

// Inputs matches every input of a session within the inbox stream.
func (n Names) Inputs(session string) string { return n.prefix() + "." + session + ".*" }

// AllInputs matches one kind of input of every session.
func (n Names) AllInputs(kind Kind) string { return n.prefix() + ".*." + string(kind) }

// Events is the subject of a session's log.
func (n Names) Events(session string) string { return n.prefix() + "." + session + ".events" }

// AllEvents matches the logs of every session.
func (n Names) AllEvents() string { return n.prefix() + ".*.events" }

// Bell is the subject of a session's bell.
func (n Names) Bell(session string) string { return n.prefix() + "-bell." + session }

// DLQ is the subject of a session's dead letters.
func (n Names) DLQ(session string) string { return n.prefix() + "-dlq." + session }

// Owns is where a worker answers whether it owns a session.
func (n Names) Owns(worker string) string { return n.prefix() + "-worker." + worker + ".owns" }

// ParseInput takes apart what [Names.Input] built. Errors are [ErrSubject] and
// [ErrSession].
func (n Names) ParseInput(subject string) (session string, kind Kind, err error) {
	session, last, err := n.parse(subject, n.prefix()+".")
	if err != nil {
		return "", "", err
	}
	if kind, err = ParseKind(last); err != nil {
		return "", "", err
	}
	return session, kind, nil
}

// ParseEvents takes apart what [Names.Events] built.
func (n Names) ParseEvents(subject string) (session string, err error) {
	session, last, err := n.parse(subject, n.prefix()+".")
	if err != nil {
		return "", err
	}
	if last != "events" {
		return "", fmt.Errorf("%w: %.80q", ErrSubject, subject)
	}
	return session, nil
}

// ParseBell takes apart what [Names.Bell] built.
func (n Names) ParseBell(subject string) (session string, err error) {
	return n.parseOne(subject, n.prefix()+"-bell.")
}

// ParseDLQ takes apart what [Names.DLQ] built.
func (n Names) ParseDLQ(subject string) (session string, err error) {
	return n.parseOne(subject, n.prefix()+"-dlq.")
}

func (n Names) parseOne(subject, before string) (string, error) {
	rest, ok := strings.CutPrefix(subject, before)
	if !ok {
		return "", fmt.Errorf("%w: %.80q", ErrSubject, subject)
	}
	return ParseSession(rest)
}

func (n Names) parse(subject, before string) (session, last string, err error) {
	rest, ok := strings.CutPrefix(subject, before)
	if !ok {
		return "", "", fmt.Errorf("%w: %.80q", ErrSubject, subject)
	}
	session, last, ok = strings.Cut(rest, ".")
	if !ok {
		return "", "", fmt.Errorf("%w: %.80q", ErrSubject, subject)
	}
	if session, err = ParseSession(session); err != nil {
		return "", "", err
	}
	return session, last, nil
}
