package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/propagation"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// Kind is what an input is.
type Kind = subjects.Kind

// The kinds of inputs.
const (
	KindPrompt   = subjects.KindPrompt
	KindSteer    = subjects.KindSteer
	KindFollowUp = subjects.KindFollowUp
	KindAbort    = subjects.KindAbort
	KindQueue    = subjects.KindQueue // see [Client.Cancel] and [Client.Edit]
)

// Queue says what an abort does with the inputs that wait.
type Queue string

const (
	QueueKeep   Queue = "keep"   // they come next
	QueueDrop   Queue = "drop"   // they are forgotten, each with an input_returned event
	QueueReturn Queue = "return" // their texts come back in input_returned events
)

// ErrQueue: not a [Queue].
var ErrQueue = errors.New("client: queue must be keep, drop or return")

// InputOptions travel with an input; nil and zero values leave the choice to
// the session's agent.
type InputOptions struct {
	ID            string // same id, same effect; "" means a new one
	Agent         string // profile of the worker
	Model         string // one of those that the profile allows
	ThinkingLevel string // minimal, low, medium, high, xhigh
	// Limits lower the profile's; nil leaves them.
	Limits *Limits
	// Interrupt, of a steer, keeps the calls of the turn that have not begun
	// from starting; otherwise it is delivered behind them all.
	Interrupt bool
	// TraceParent is the W3C trace context; "" takes the one of the ctx, if it
	// has a span of OpenTelemetry.
	TraceParent string
	// Parent, of a prompt, is the run that it is sent from: what ends that run
	// by an abort or a limit ends this one as well. nil takes the run of the
	// tool call that ctx belongs to, and is none outside of tools; a pointer to
	// the zero Parent is none in any case.
	Parent *Parent
}

// Parent names a run: a session, and the sequence of the prompt that began it
// there, as its [Receipt] has it. Run 0 means the run that is open now.
type Parent struct {
	Session string `json:"session"`
	Run     uint64 `json:"run"`
}

// ParseParent reads "SESSION" and "SESSION/RUN", and the key of a tool call,
// which begins with the latter ([loop.Call]).
func ParseParent(s string) (*Parent, error) {
	if !strings.Contains(s, "/") {
		id, err := ParseSession(s)
		return &Parent{Session: id}, err
	}
	p, err := session.ParseParent(s)
	return &Parent{Session: p.Session, Run: p.Run}, err
}

// ErrNoRun: the session that was named as a parent has no open run.
var ErrNoRun = errors.New("client: no run is open in the parent session")

// parent finds the run that a prompt is sent from, nil for none.
func (c *Client) parent(ctx context.Context, kind Kind, named *Parent) (*session.Parent, error) {
	switch {
	case kind != KindPrompt, named != nil && *named == Parent{}:
		return nil, nil
	case named == nil:
		key := loop.CallKey(ctx)
		if key == "" {
			return nil, nil
		}
		p, err := session.ParseParent(key)
		if err != nil {
			return nil, nil // a key of somebody else's making names no run
		}
		return &p, nil
	case named.Run != 0:
		return &session.Parent{Session: named.Session, Run: named.Run}, nil
	}
	if err := c.mustKnow(ctx, named.Session); err != nil {
		return nil, err
	}
	run, err := c.store.OpenRun(ctx, named.Session)
	if err != nil {
		return nil, fmt.Errorf("looking for the open run of %s: %w", named.Session, err)
	}
	if run == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoRun, named.Session)
	}
	return &session.Parent{Session: named.Session, Run: run}, nil
}

// extra are the options that only a worker's agent understands.
func (o *InputOptions) extra() (map[string]json.RawMessage, error) {
	extra := map[string]json.RawMessage{}
	if o.Interrupt {
		extra["urgency"] = json.RawMessage(`"interrupt"`)
	}
	if l := o.Limits; l != nil && *l != (Limits{}) {
		if err := l.check(); err != nil {
			return nil, err
		}
		b, err := json.Marshal(l)
		if err != nil {
			return nil, fmt.Errorf("encoding limits: %w", err)
		}
		extra["limits"] = b
	}
	return extra, nil
}

// Receipt says that the broker has an input. It may be stored as JSON and used
// by another process.
type Receipt struct {
	Session string `json:"session"`
	Kind    Kind   `json:"kind"`
	ID      string `json:"id"`
	// Seq is the input's stream sequence in the inbox.
	Seq uint64 `json:"seq"`
	// Duplicate: the broker had this id already, and Seq is the first one's.
	Duplicate bool `json:"duplicate,omitempty"`
	// After is a stream sequence of the session's log: everything that the
	// input brings about comes later. 0 is the log's start.
	After uint64 `json:"after,omitempty"`
	// Broker is the name of the server that acknowledged it, "" unknown.
	Broker string `json:"broker,omitempty"`
}

// Prompt starts a run, or queues one behind the session's current run. A new
// session id is made if session is "". Errors: [ErrSession], [ErrEmptyPrompt],
// [ErrTooLarge], [ErrFull], [ErrNoStreams], [ErrNoServer], [ErrLimits].
func (c *Client) Prompt(ctx context.Context, session string, msg *loop.UserMessage, opts *InputOptions) (*Receipt, error) {
	if session == "" {
		session = NewSession()
	}
	return c.publish(ctx, session, KindPrompt, msg, opts)
}

// Steer puts a message into the session's run after the current turn. Errors
// are those of Prompt, and [ErrUnknownSession]: a misspelt id must not start an
// agent.
func (c *Client) Steer(ctx context.Context, session string, msg *loop.UserMessage, opts *InputOptions) (*Receipt, error) {
	return c.publishToKnown(ctx, session, KindSteer, msg, opts)
}

// FollowUp gives the session's run more to do when it would end. Errors are
// those of [Client.Steer].
func (c *Client) FollowUp(ctx context.Context, session string, msg *loop.UserMessage, opts *InputOptions) (*Receipt, error) {
	return c.publishToKnown(ctx, session, KindFollowUp, msg, opts)
}

// Abort ends the session's run; queue says what becomes of the inputs that
// wait, "" means [QueueKeep]. Errors: [ErrSession], [ErrUnknownSession],
// [ErrQueue].
func (c *Client) Abort(ctx context.Context, id string, queue Queue) (*Receipt, error) {
	switch queue {
	case "":
		queue = QueueKeep
	case QueueKeep, QueueDrop, QueueReturn:
	default:
		return nil, fmt.Errorf("%w, not %q", ErrQueue, string(queue))
	}
	if err := c.mustKnow(ctx, id); err != nil {
		return nil, err
	}
	return c.send(ctx, id, KindAbort, &session.Input{
		ID:    nuid.Next(),
		Abort: session.AbortOptions{Queue: string(queue)},
	})
}

// NewSession makes up a session id.
func NewSession() string { return nuid.Next() }

func (c *Client) publishToKnown(ctx context.Context, id string, kind Kind, msg *loop.UserMessage, opts *InputOptions) (*Receipt, error) {
	if err := c.mustKnow(ctx, id); err != nil {
		return nil, err
	}
	return c.publish(ctx, id, kind, msg, opts)
}

func (c *Client) publish(ctx context.Context, id string, kind Kind, msg *loop.UserMessage, opts *InputOptions) (*Receipt, error) {
	if isEmpty(msg) {
		return nil, ErrEmptyPrompt
	}
	for _, c := range msg.Content {
		// JSON would put other characters in the place of what is none.
		if t, ok := c.(*loop.Text); ok && !utf8.ValidString(t.Text) {
			return nil, fmt.Errorf("%w: the text is not UTF-8", ErrMalformed)
		}
	}
	var o InputOptions
	if opts != nil {
		o = *opts
	}
	parent, err := c.parent(ctx, kind, o.Parent)
	if err != nil {
		return nil, err
	}
	extra, err := o.extra()
	if err != nil {
		return nil, err
	}
	in := &session.Input{
		ID:      o.ID,
		Message: msg,
		Options: session.InputOptions{
			Agent: o.Agent, Model: o.Model, ThinkingLevel: o.ThinkingLevel, Parent: parent, Extra: extra,
		},
		TraceParent: o.TraceParent,
	}
	return c.send(ctx, id, kind, in)
}

// send notes where the log ends before it publishes, so that a reader of what
// comes of the input need not begin at the log's start. An id of the caller's
// own may have been used long ago, so there the start it is.
func (c *Client) send(ctx context.Context, id string, kind Kind, in *session.Input) (*Receipt, error) {
	if _, err := subjects.ParseSession(id); err != nil {
		return nil, err
	}
	if in.TraceParent == "" {
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		in.TraceParent = carrier[subjects.HeaderTraceParent]
	}
	var after uint64
	if in.ID == "" {
		in.ID = nuid.Next()
		tail, err := c.tailSeq(ctx, id)
		if err != nil {
			return nil, err
		}
		after = tail
	}
	got, err := c.store.Publish(ctx, id, kind, in)
	if err != nil {
		return nil, fmt.Errorf("publishing the %s: %w", kind, err)
	}
	if got.Duplicate {
		after = 0
	}
	return &Receipt{
		Session: id, Kind: kind, ID: in.ID, Seq: got.Seq, Duplicate: got.Duplicate, After: after, Broker: c.nc.ConnectedServerName(),
	}, nil
}

// mustKnow refuses sessions to which nothing was ever said.
func (c *Client) mustKnow(ctx context.Context, id string) error {
	for _, err := range c.store.Read(ctx, id, session.From{Now: true}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// tailSeq is the stream sequence of the log's last record, 0 without a log.
func (c *Client) tailSeq(ctx context.Context, id string) (uint64, error) {
	stream, err := c.js.Stream(ctx, c.names.EventsStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, fmt.Errorf("%w (looked for %s)", ErrNoStreams, c.names.EventsStream())
	}
	if err != nil {
		return 0, fmt.Errorf("looking for %s: %w", c.names.EventsStream(), err)
	}
	msg, err := stream.GetLastMsgForSubject(ctx, c.names.Events(id))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("reading the end of the log: %w", err)
	}
	return msg.Sequence, nil
}

func isEmpty(msg *loop.UserMessage) bool {
	if msg == nil {
		return true
	}
	for _, block := range msg.Content {
		if text, ok := block.(*loop.Text); !ok || !isBlank(text.Text) {
			return false
		}
	}
	return true
}
