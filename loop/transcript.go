package loop

import "iter"

// Transcript is the state that a session's events add up to.
type Transcript struct{ messages []Message }

// OpenRun is what the events say about a run that has not ended.
type OpenRun struct {
	NewMessages   []Message         // of this run, finished
	Turn          int               // turns begun so far in this run, minus one
	InTurn        bool              // turn_start seen, turn_end not
	Partial       *AssistantMessage // half-streamed answer, nil if none
	Starting      Message           // message_start of another message whose message_end is missing, nil if none
	Assistant     *AssistantMessage // finished answer whose turn is not ended, nil if none
	Started       map[int]bool      // positions of Assistant's calls with tool_execution_start
	Ended         map[int]*ToolExecutionEnd
	Results       []*ToolResultMessage // result messages already emitted for Assistant
	LastAssistant *AssistantMessage    // answer of the last ended turn, nil if none
	Terminate     bool                 // the last ended turn had calls and every result asked to end the run
	Usage         Usage
}

// Apply folds one event.
func (t *Transcript) Apply(ev Event) error { return nil }

// Messages are the finished messages.
func (t *Transcript) Messages() []Message { return t.messages }

// Context is Messages with a result for each call.
func (t *Transcript) Context() []Message { return t.messages }

// Open is the open run.
func (t *Transcript) Open() *OpenRun { return nil }

// Unsettled says that a prompt has begun and has no agent_settled yet.
func (t *Transcript) Unsettled() bool { return false }

// Usage is the sum over all messages, RunUsage over those of the last run.
func (t *Transcript) Usage() Usage    { return Usage{} }
func (t *Transcript) RunUsage() Usage { return Usage{} }

// Clone copies.
func (t *Transcript) Clone() *Transcript { c := *t; return &c }

// Fold applies all events.
func Fold(events iter.Seq2[Event, error]) (*Transcript, error) { return &Transcript{}, nil }
