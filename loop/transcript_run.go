package loop

import (
	"maps"
	"slices"
)

// runState is the state of the last run of a transcript.
type runState struct {
	open      bool
	base      int // where its messages begin
	turn      int
	inTurn    bool
	draft     *draft
	starting  Message
	assistant *AssistantMessage
	calls     []*ToolCall // of assistant
	started   map[int]bool
	ended     map[int]*ToolExecutionEnd
	results   []*ToolResultMessage
	approvals map[int]*Approval
	last      *AssistantMessage
	terminate bool
	usage     Usage
}

func (r *runState) beginTurn() {
	r.endTurn()
	r.turn++
	r.inTurn = true
}

// endTurn closes the turn, if one is open, and keeps what decides how the run
// goes on.
func (r *runState) endTurn() {
	if r.inTurn {
		r.last = r.assistant
		r.terminate = len(r.calls) > 0
		for i := range r.calls {
			end := r.ended[i]
			r.terminate = r.terminate && end != nil && end.Result.Terminate
		}
	}
	r.inTurn = false
	r.forgetAnswer()
}

func (r *runState) forgetAnswer() {
	r.assistant, r.calls, r.started, r.ended, r.results, r.approvals = nil, nil, nil, nil, nil, nil
}

// answered takes a finished answer.
func (r *runState) answered(m *AssistantMessage) {
	r.draft = nil
	r.forgetAnswer()
	r.assistant = m
	r.calls = m.toolCalls()
}

// toolCalls returns the calls of the message in order.
func (m *AssistantMessage) toolCalls() []*ToolCall {
	var calls []*ToolCall
	for _, b := range m.Content {
		if c, ok := b.(*ToolCall); ok {
			calls = append(calls, c)
		}
	}
	return calls
}

// position finds the call that an event is about. Ids may repeat: then the
// first one that is free counts.
func (r *runState) position(id string, free func(int) bool) int {
	for i, c := range r.calls {
		if c.ID == id && free(i) {
			return i
		}
	}
	return -1
}

func (r *runState) toolStarted(id string) {
	i := r.position(id, func(i int) bool { return !r.started[i] })
	if i < 0 {
		return
	}
	if r.started == nil {
		r.started = make(map[int]bool)
	}
	r.started[i] = true
}

func (r *runState) toolEnded(e *ToolExecutionEnd) {
	i := r.position(e.ToolCallID, func(i int) bool { return r.started[i] && r.ended[i] == nil })
	if i < 0 { // its start is lost
		i = r.position(e.ToolCallID, func(i int) bool { return r.ended[i] == nil })
	}
	if i < 0 {
		return
	}
	if r.ended == nil {
		r.ended = make(map[int]*ToolExecutionEnd)
	}
	r.ended[i] = e
}

func (r *runState) clone() *runState {
	c := *r
	c.started = maps.Clone(r.started)
	c.ended = maps.Clone(r.ended)
	c.approvals = maps.Clone(r.approvals)
	c.results = slices.Clip(r.results)
	if r.draft != nil {
		c.draft = r.draft.clone()
	}
	return &c
}
