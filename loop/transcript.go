package loop

import (
	"fmt"
	"iter"
	"maps"
	"slices"
)

// Interrupted is the text of the error result that stands for a tool call
// whose outcome is not known.
const Interrupted = "interrupted: outcome unknown"

// Transcript is what the events of a session add up to: its messages, and the
// state of the run that is open. It takes events in both forms. The zero
// value is an empty session. A Transcript is not safe for concurrent use.
//
// Applying an event costs its own length: the list of messages is appended
// to, never rebuilt, and so are the texts of a streamed answer.
type Transcript struct {
	messages  []Message
	summary   *UserMessage // stands for messages[:from] in the context; nil: from is 0
	from      int
	usage     Usage
	unsettled bool
	run       *runState // of the last agent_start, nil before the first
}

// OpenRun is what the events say of a run that has not ended: all that
// [Resume] needs. Nothing in it changes when the transcript goes on.
type OpenRun struct {
	NewMessages []Message // of this run, finished
	Turn        int       // number of the run's last turn, counted from 0; -1 before the first
	InTurn      bool      // turn_start was seen, its turn_end not
	// Partial is the half-streamed answer, nil if there is none.
	Partial *AssistantMessage
	// Starting is a message_start of another role whose message_end is
	// missing, on the wire without content; nil if there is none.
	Starting Message
	// Assistant is the finished answer whose turn has not ended, nil if none.
	Assistant *AssistantMessage
	Started   map[int]bool              // positions of Assistant's calls with tool_execution_start
	Ended     map[int]*ToolExecutionEnd // and with tool_execution_end
	Results   []*ToolResultMessage      // result messages already emitted for Assistant
	// Approvals are those of Assistant's calls that need one, by position.
	Approvals map[int]*Approval
	// LastAssistant is the answer of the last turn that ended, nil if none.
	LastAssistant *AssistantMessage
	// Terminate says that this turn had calls and each result asked to end
	// the run.
	Terminate bool
	// Compacted is how many of NewMessages are in the context only as part of
	// its summary.
	Compacted int
	// Usage is the sum over the run's finished answers, and of its summaries.
	Usage Usage
}

// Apply folds one event. It fails only on an event without the message that
// it is about; events it does not know change nothing.
func (t *Transcript) Apply(ev Event) error {
	switch e := ev.(type) {
	case *AgentStart:
		t.begin()
	case *TurnStart:
		t.openRun().beginTurn()
	case *MessageStart:
		return t.messageStart(e)
	case *MessageUpdate:
		t.messageUpdate(e)
	case *MessageEnd:
		return t.messageEnd(e)
	case *MessageDiscarded:
		if t.run != nil {
			t.run.draft, t.run.starting = nil, nil
		}
	case *ToolExecutionStart:
		if r := t.run; r != nil {
			r.toolStarted(e.ToolCallID)
		}
	case *ApprovalRequested:
		if r := t.run; r != nil {
			r.approvalRequested(e)
		}
	case *ApprovalAnswered:
		if r := t.run; r != nil {
			r.approvalAnswered(e)
		}
	case *ToolExecutionEnd:
		if r := t.run; r != nil {
			r.toolEnded(e)
		}
	case *CompactionEnd:
		t.compact(e)
	case *TurnEnd:
		if r := t.run; r != nil {
			r.endTurn()
		}
	case *AgentEnd:
		if r := t.run; r != nil && !e.WillContinue {
			r.endTurn()
			r.draft, r.starting, r.open = nil, nil, false
		}
	case *AgentSettled:
		t.settle()
	}
	return nil
}

func (t *Transcript) begin() {
	t.run = &runState{open: true, base: len(t.messages), turn: -1}
	t.unsettled = true
}

// openRun returns the run; a log that has lost its head begins in one.
func (t *Transcript) openRun() *runState {
	if t.run == nil || !t.run.open {
		t.begin()
	}
	return t.run
}

func (t *Transcript) settle() {
	t.unsettled = false
	if r := t.run; r != nil {
		r.endTurn()
		r.draft, r.starting, r.open = nil, nil, false
	}
}

// current returns the run for what comes outside of one as well.
func (t *Transcript) current() *runState {
	if t.run == nil {
		t.run = &runState{turn: -1}
	}
	return t.run
}

func (t *Transcript) messageStart(e *MessageStart) error {
	r := t.current()
	switch m := e.Message.(type) {
	case nil:
		return fmt.Errorf("message_start: message missing")
	case *AssistantMessage:
		r.draft, r.starting = newDraft(m), nil
	default:
		r.starting = m
	}
	return nil
}

func (t *Transcript) messageUpdate(e *MessageUpdate) {
	r := t.current()
	if r.draft == nil {
		r.draft = newDraft(&AssistantMessage{}) // its start is lost
	}
	r.draft.update(&e.Update)
}

func (t *Transcript) messageEnd(e *MessageEnd) error {
	r := t.current()
	switch m := e.Message.(type) {
	case nil:
		return fmt.Errorf("message_end: message missing")
	case *AssistantMessage:
		r.answered(m)
		r.usage.add(&m.Usage)
		t.usage.add(&m.Usage)
	case *ToolResultMessage:
		r.starting = nil
		if r.assistant != nil {
			r.results = append(r.results, m)
		}
	default:
		r.starting = nil
	}
	t.messages = append(t.messages, e.Message)
	return nil
}

// compact puts a summary in the place of the older messages of the context.
func (t *Transcript) compact(e *CompactionEnd) {
	t.usage.add(&e.Usage)
	t.current().usage.add(&e.Usage)
	if e.Result == nil {
		return
	}
	from := len(t.messages)
	if kept := e.Result.Kept; kept > 0 {
		from = t.from // the log's head may be gone, and fewer are left
		if all := t.Context(); kept < len(all) {
			from = max(from, slices.Index(t.messages, all[len(all)-kept]))
		}
	}
	t.summary, t.from = e.Result.message(), from
}

// Messages returns the finished messages in order, whatever was summarised. The list does not change
// when the transcript goes on; it must not be changed.
func (t *Transcript) Messages() []Message { return slices.Clip(t.messages) }

// Open returns the state of the open run, nil when none is open.
func (t *Transcript) Open() *OpenRun {
	r := t.run
	if r == nil || !r.open {
		return nil
	}
	o := &OpenRun{
		NewMessages:   slices.Clip(t.messages[r.base:]),
		Turn:          r.turn,
		InTurn:        r.inTurn,
		Starting:      r.starting,
		Assistant:     r.assistant,
		Started:       maps.Clone(r.started),
		Ended:         maps.Clone(r.ended),
		Results:       slices.Clone(r.results),
		Approvals:     maps.Clone(r.approvals),
		LastAssistant: r.last,
		Terminate:     r.terminate,
		Compacted:     min(max(t.from-r.base, 0), len(t.messages)-r.base),
		Usage:         r.usage,
	}
	if r.draft != nil {
		o.Partial = r.draft.snapshot()
	}
	return o
}

// runMessages returns the finished messages of the open or last run.
func (t *Transcript) runMessages() []Message {
	if t.run == nil {
		return nil
	}
	return slices.Clip(t.messages[t.run.base:])
}

// Unsettled reports whether a run was begun that no agent_settled closes. It
// stays true between agent_end and agent_settled, when Open is nil already.
func (t *Transcript) Unsettled() bool { return t.unsettled }

// Usage returns the sum over all messages.
func (t *Transcript) Usage() Usage { return t.usage }

// RunUsage returns the sum over the messages of the open or last run.
func (t *Transcript) RunUsage() Usage {
	if t.run == nil {
		return Usage{}
	}
	return t.run.usage
}

// Clone returns a copy that goes on by itself. Messages are shared, because
// they never change.
func (t *Transcript) Clone() *Transcript {
	c := *t
	c.messages = slices.Clip(t.messages)
	if t.run != nil {
		c.run = t.run.clone()
	}
	return &c
}

// Fold applies all events of a log. The transcript is what the events before
// an error add up to; it is never nil.
func Fold(events iter.Seq2[Event, error]) (*Transcript, error) {
	t := new(Transcript)
	for ev, err := range events {
		if err != nil {
			return t, err
		}
		if err := t.Apply(ev); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (u *Usage) add(o *Usage) {
	u.Input += o.Input
	u.Output += o.Output
	u.CacheRead += o.CacheRead
	u.CacheWrite += o.CacheWrite
	u.TotalTokens += o.TotalTokens
	u.Reasoning += o.Reasoning
	u.Cost.Input += o.Cost.Input
	u.Cost.Output += o.Cost.Output
	u.Cost.CacheRead += o.Cost.CacheRead
	u.Cost.CacheWrite += o.Cost.CacheWrite
	u.Cost.Total += o.Cost.Total
	u.Cost.Stated = u.Cost.Stated || o.Cost.Stated
	u.Estimated = u.Estimated || o.Estimated
}
