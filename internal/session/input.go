package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

const (
	// MaxInputID is the longest id of an input, in bytes.
	MaxInputID = 256
	// MaxInputOptions is how long the options of an input may be, in bytes of
	// JSON: they travel in a header.
	MaxInputOptions = 2048
)

// What an abort does with the inputs that wait.
const (
	QueueKeep   = "keep" // the default
	QueueDrop   = "drop"
	QueueReturn = "return"
)

// What a change of the queue does.
const (
	OpCancel = "cancel"
	OpEdit   = "edit" // Message takes the place of the target's
	OpMove   = "move" // the target, a prompt, goes before another one, or before all
)

// Input is one message of the inbox. To publish one, set ID (or leave it to
// Publish), Message, Options and TraceParent, for an abort Abort, for a change
// of the queue Queue.
type Input struct {
	Ref     InputRef // Seq is 0 before it is published
	Session string
	ID      string
	Message loop.Message // *loop.UserMessage; nil for an abort and a cancel
	Options InputOptions
	Abort   AbortOptions
	Approve ApproveOptions
	Queue   QueueOptions
	// Raw is the payload as it was published, blobs resolved. Publish sends
	// it as it is if Message is nil.
	Raw         []byte
	Time        time.Time // when the broker stored it
	TraceParent string    // W3C trace context, "" unknown
	// Redrive is the dead letter, by its sequence, that this input tries
	// again; 0 none. It may carry the id of what was given up.
	Redrive uint64
	// Err says why the input is malformed (ErrMalformed); then only Ref,
	// Session, Raw and Time count.
	Err error

	blob string // object of Raw, "" if it came by itself
}

// InputOptions are what an input asks for besides its message.
type InputOptions struct {
	Agent         string // profile; "" is the worker's default
	Model         string // "" is the profile's
	ThinkingLevel string // "" is the profile's
	// Parent is the run that a prompt was sent from; nil: none.
	Parent *Parent
	// Extra holds all other options by name.
	Extra map[string]json.RawMessage
}

// Interrupts says that a steer with "urgency": "interrupt" does not want to wait
// for the calls of the turn that have not begun.
func (o *InputOptions) Interrupts() bool {
	return o != nil && string(o.Extra["urgency"]) == `"interrupt"`
}

// IsZero says that nothing is asked for.
func (o *InputOptions) IsZero() bool {
	return o == nil || o.Agent == "" && o.Model == "" && o.ThinkingLevel == "" && o.Parent == nil && len(o.Extra) == 0
}

// known gives the options that have a field of their own.
func (o *InputOptions) known() map[string]*string {
	return map[string]*string{"agent": &o.Agent, "model": &o.Model, "thinkingLevel": &o.ThinkingLevel}
}

const optionParent = "parent"

// MarshalJSON writes one object; unset options are left out.
func (o InputOptions) MarshalJSON() ([]byte, error) {
	all := make(map[string]any, len(o.Extra)+4)
	for k, v := range o.Extra {
		all[k] = v
	}
	for k, v := range o.known() {
		if *v != "" {
			all[k] = *v
		}
	}
	if o.Parent != nil {
		all[optionParent] = o.Parent
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads an object; null is no options.
func (o *InputOptions) UnmarshalJSON(b []byte) error {
	*o = InputOptions{}
	if err := json.Unmarshal(b, &o.Extra); err != nil {
		return fmt.Errorf("options are no object: %w", err)
	}
	for k, field := range o.known() {
		raw, ok := o.Extra[k]
		if !ok {
			continue
		}
		if err := json.Unmarshal(raw, field); err != nil {
			return fmt.Errorf("option %s is no string: %w", k, err)
		}
		delete(o.Extra, k)
	}
	if raw, ok := o.Extra[optionParent]; ok {
		if err := json.Unmarshal(raw, &o.Parent); err != nil {
			return fmt.Errorf("option %s is no run: %w", optionParent, err)
		}
		delete(o.Extra, optionParent)
	}
	if len(o.Extra) == 0 {
		o.Extra = nil
	}
	return nil
}

// AbortOptions say what an abort does with the inputs that wait.
type AbortOptions struct {
	Queue string // QueueKeep (also ""), QueueDrop or QueueReturn
}

// QueueOptions name what a change of the queue is about.
type QueueOptions struct {
	Op     string // OpCancel, OpEdit or OpMove
	Target string // id of an input, "" if Seq names it
	Seq    uint64 // stream sequence of an input, 0 if Target names it
	// Before and BeforeSeq name a move's other prompt in the same two ways;
	// with neither, the target goes before all that wait.
	Before    string
	BeforeSeq uint64

	order []uint64 // of all prompts that wait, as the log has it
}

// ApproveOptions answer a request for approval.
type ApproveOptions struct {
	Call    string // the request's key, or the id of its tool call
	Approve bool   // false refuses
	By      string // who answers, as they call themselves
	Reason  string
}

const (
	maxApproveBy     = 256  // bytes
	maxApproveReason = 4096 // bytes: the model reads it
)

// parseApprove takes what answers a request for approval.
func (in *Input) parseApprove(p *inputJSON) error {
	switch {
	case p.Call == "":
		return fmt.Errorf(`an answer names its tool call by "call"`)
	case p.Approve == nil:
		return fmt.Errorf(`an answer says "approve": true or false`)
	case len(p.By) > maxApproveBy || len(p.Reason) > maxApproveReason:
		return fmt.Errorf("by or reason is too long, at most %d and %d bytes are allowed", maxApproveBy, maxApproveReason)
	}
	in.Approve = ApproveOptions{Call: p.Call, Approve: *p.Approve, By: p.By, Reason: p.Reason}
	return nil
}

// Edit puts another message in the place of the input's.
func (in *Input) Edit(m loop.Message) {
	message, err := loop.MarshalMessage(m)
	if err != nil || in.Err != nil {
		return // nothing that parse has accepted
	}
	p := inputJSON{ID: in.ID, Message: message, Options: in.Ref.Options}
	if raw, err := json.Marshal(p); err == nil {
		in.Message, in.Raw = m, raw
	}
}

// inputJSON is the payload of an input.
type inputJSON struct {
	ID      string          `json:"id,omitempty"`
	Message json.RawMessage `json:"message,omitempty"`
	Options *InputOptions   `json:"options,omitempty"`
	Queue   string          `json:"queue,omitempty"` // aborts only

	// Changes of the queue only.
	Op     string `json:"op,omitempty"`
	Target string `json:"target,omitempty"`
	Seq    uint64 `json:"seq,omitempty"`
	// Moves only; Order is the answer's.
	Before    string   `json:"before,omitempty"`
	BeforeSeq uint64   `json:"beforeSeq,omitempty"`
	Order     []uint64 `json:"order,omitempty"`

	// Answers to requests for approval only.
	Call    string `json:"call,omitempty"`
	Approve *bool  `json:"approve,omitempty"`
	By      string `json:"by,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// encode gives the payload to publish.
func (in *Input) encode(kind subjects.Kind) ([]byte, error) {
	if kind.HasMessage() && in.Message == nil {
		if err := new(Input).parse(kind, in.Raw); err != nil {
			return nil, err
		}
		return in.Raw, nil
	}
	p := inputJSON{ID: in.ID}
	switch kind {
	case subjects.KindAbort:
		p.Queue = in.Abort.Queue
	case subjects.KindQueue:
		p.Op, p.Target, p.Seq = in.Queue.Op, in.Queue.Target, in.Queue.Seq
		p.Before, p.BeforeSeq = in.Queue.Before, in.Queue.BeforeSeq
	case subjects.KindApprove:
		a := in.Approve
		p.Call, p.Approve, p.By, p.Reason = a.Call, &a.Approve, a.By, a.Reason
	}
	if in.Message != nil {
		if err := checkMessage(in.Message); err != nil {
			return nil, err
		}
		var err error
		if p.Message, err = loop.MarshalMessage(in.Message); err != nil {
			return nil, fmt.Errorf("encoding the message: %w", err)
		}
	}
	if !in.Options.IsZero() {
		p.Options = &in.Options
	}
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encoding the input: %w", err)
	}
	// The same rules for the sender as for a stranger: a mistake is told here
	// and not by a dead letter.
	return data, new(Input).parse(kind, data)
}

// parse reads a payload: JSON if it looks like JSON, otherwise plain text. The
// error is also kept in in.Err.
func (in *Input) parse(kind subjects.Kind, data []byte) error {
	err := in.parsePayload(kind, data)
	if err == nil && len(in.ID) > MaxInputID {
		err = fmt.Errorf("id has %d bytes, at most %d are allowed", len(in.ID), MaxInputID)
	}
	if err == nil && strings.ContainsFunc(in.ID, unicode.IsControl) {
		err = fmt.Errorf("id %.80q has control characters", in.ID) // it travels in a header
	}
	if err == nil && !in.Options.IsZero() {
		err = in.checkOptions()
	}
	if err != nil {
		in.Err = fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return in.Err
}

func (in *Input) checkOptions() error {
	if p := in.Options.Parent; p != nil {
		if err := p.check(); err != nil {
			return err
		}
	}
	b, err := json.Marshal(in.Options)
	if err != nil {
		return err
	}
	if len(b) > MaxInputOptions {
		return fmt.Errorf("options have %d bytes, at most %d are allowed", len(b), MaxInputOptions)
	}
	in.Ref.Options = &in.Options
	return nil
}

func (in *Input) parsePayload(kind subjects.Kind, data []byte) error {
	data = bytes.TrimSpace(data)
	if !utf8.Valid(data) {
		return fmt.Errorf("payload is not UTF-8")
	}
	if (kind == subjects.KindQueue || kind == subjects.KindApprove) && (len(data) == 0 || data[0] != '{') {
		return fmt.Errorf("an input of kind %s must be a JSON object", kind)
	}
	if len(data) == 0 || data[0] != '{' && data[0] != '[' {
		if kind == subjects.KindAbort {
			return nil // any word on the abort subject means abort
		}
		in.Message = loop.NewUserText(string(data))
		return checkMessage(in.Message)
	}
	var p inputJSON
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("payload looks like JSON but is not an input: %w", err)
	}
	in.ID = p.ID
	if p.Options != nil {
		in.Options = *p.Options
	}
	switch kind {
	case subjects.KindAbort:
		return in.parseAbort(p.Queue)
	case subjects.KindApprove:
		return in.parseApprove(&p)
	case subjects.KindQueue:
		in.Queue = QueueOptions{
			Op: p.Op, Target: p.Target, Seq: p.Seq, Before: p.Before, BeforeSeq: p.BeforeSeq, order: p.Order,
		}
		switch {
		case (p.Target == "") == (p.Seq == 0):
			return fmt.Errorf(`a change of the queue names its input by "target" or by "seq"`)
		case p.Op == OpMove && p.Before != "" && p.BeforeSeq != 0:
			return fmt.Errorf(`a move names the other prompt by "before" or by "beforeSeq", not both`)
		case p.Op == OpCancel, p.Op == OpMove:
			return nil
		case p.Op != OpEdit:
			return fmt.Errorf("op is %.40q, must be cancel, edit or move", p.Op)
		}
	}
	if len(p.Message) == 0 || string(p.Message) == "null" {
		return fmt.Errorf(`JSON input has no "message"`)
	}
	var text string
	if json.Unmarshal(p.Message, &text) == nil {
		in.Message = loop.NewUserText(text)
		return checkMessage(in.Message)
	}
	m, err := loop.ParseMessage(p.Message)
	if err != nil {
		return fmt.Errorf("message: %w", err)
	}
	in.Message = m
	return checkMessage(m)
}

func (in *Input) parseAbort(queue string) error {
	switch queue {
	case "", QueueKeep, QueueDrop, QueueReturn:
		in.Abort.Queue = queue
		return nil
	}
	return fmt.Errorf("queue is %.40q, must be keep, drop or return", queue)
}

// checkMessage accepts what a user can say: text that is not blank, or
// images, and nothing else.
func checkMessage(m loop.Message) error {
	user, ok := m.(*loop.UserMessage)
	if !ok {
		return fmt.Errorf("message has the role %q, must be %q", m.Role(), loop.RoleUser)
	}
	said := false
	for _, b := range user.Content {
		switch b := b.(type) {
		case *loop.Text:
			said = said || strings.TrimSpace(b.Text) != ""
		case *loop.Image:
			said = said || b.Data != ""
		default:
			return fmt.Errorf("a user's message can't hold a block of type %q", b.BlockType())
		}
	}
	if !said {
		return ErrEmptyInput
	}
	return nil
}
