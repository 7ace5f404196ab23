package loop

import (
	"context"
	"iter"
	"slices"
)

// Resume goes on with a run that another process began: open is what its
// events say, history the messages before it. There is no second agent_start,
// and nothing that was finished is done again: a half-streamed answer is
// discarded (message_discarded) and asked for anew; finished calls keep their
// results; calls that had begun run again if their tool is idempotent, and are
// answered "interrupted: outcome unknown" if not. prompts are those of the
// run's prompts whose message_end was not yet there.
//
// history ends before the run. If the context was compacted in the run, it
// begins with the summary, and the run's messages from open.Compacted on follow.
func Resume(ctx context.Context, cfg *Config, history []Message, open *OpenRun, prompts ...Message) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		start(ctx, cfg, history, yield, func(ctx context.Context, r *run) {
			r.adopt(open)
			r.resume(ctx, open, prompts)
		})
	}
}

// adopt takes over what the run has so far. The results of an answer whose
// turn is open are added by runCalls, with the rest of them.
func (r *run) adopt(open *OpenRun) {
	r.turns, r.inTurn = open.Turn+1, open.InTurn
	added := open.NewMessages
	if open.Assistant != nil {
		added = throughAssistant(added, open.Assistant)
	}
	for i, m := range added {
		if i < open.Compacted {
			r.added = append(r.added, m)
			continue
		}
		r.add(m)
	}
	// Answers whose calls were all refused still count; the open turn's own
	// is counted when it ends.
	for _, m := range added {
		if msg, ok := m.(*AssistantMessage); ok && msg != open.Assistant {
			r.countRefused(msg)
		}
	}
}

// throughAssistant cuts messages behind the last answer, which is msg.
func throughAssistant(messages []Message, msg *AssistantMessage) []Message {
	for i, m := range slices.Backward(messages) {
		if m.Role() == RoleAssistant {
			return messages[:i+1]
		}
	}
	return append(slices.Clip(messages), msg)
}

func (r *run) resume(ctx context.Context, open *OpenRun, prompts []Message) {
	if open.Partial != nil && !r.emit(&MessageDiscarded{Reason: "interrupted"}) {
		return
	}
	switch {
	case open.Assistant != nil:
		if more, ok := r.finishTurn(ctx, open.Assistant, open); ok {
			r.loop(ctx, more)
		}
	case !open.InTurn && open.Turn >= 0 && len(prompts) == 0:
		r.resumeBetweenTurns(ctx, open)
	default:
		if r.openTurn() && r.deliver(prompts) {
			r.resumeTurn(ctx, open)
		}
	}
}

// resumeBetweenTurns goes on after a turn_end.
func (r *run) resumeBetweenTurns(ctx context.Context, open *OpenRun) {
	last := open.LastAssistant
	if last == nil || last.StopReason == StopError || last.StopReason == StopAborted {
		r.end()
		return
	}
	results := resultsOf(last, r.added)
	// A refused answer was counted by adopt already.
	r.refused = max(0, r.refused-1)
	if r.afterTurn(ctx, last, results) {
		r.loop(ctx, len(results) > 0 && !open.Terminate)
	}
}

// resumeTurn goes on in a turn that has no answer yet. The messages that had
// been polled for it may be lost with the process that polled them, so the
// queues are asked again before the model is.
func (r *run) resumeTurn(ctx context.Context, open *OpenRun) {
	if r.waiting(open) {
		r.loop(ctx, true)
		return
	}
	// The turn was opened for a message that is not in the events.
	for _, queue := range []func(context.Context) ([]Message, error){r.cfg.Steering, r.cfg.FollowUp} {
		pending, ok := r.poll(ctx, queue)
		if !ok {
			return
		}
		if len(pending) == 0 {
			continue
		}
		more, ok := r.turn(ctx, pending)
		if ok {
			r.loop(ctx, more)
		}
		return
	}
	if open.LastAssistant == nil || r.closeTurn(open.LastAssistant, nil) {
		r.end()
	}
}

// waiting says that the context ends in something that the model is to answer:
// anything but an answer, and but the results of a batch that asked to end the
// run.
func (r *run) waiting(open *OpenRun) bool {
	if len(r.context) == 0 {
		return false
	}
	switch r.context[len(r.context)-1].(type) {
	case *AssistantMessage:
		return false
	case *ToolResultMessage:
		return !open.Terminate
	}
	return true
}

// resultsOf finds the results of an answer among the messages after it.
func resultsOf(msg *AssistantMessage, messages []Message) []*ToolResultMessage {
	var results []*ToolResultMessage
	for _, m := range messages {
		switch m := m.(type) {
		case *AssistantMessage:
			results = nil
		case *ToolResultMessage:
			results = append(results, m)
		}
	}
	if len(msg.toolCalls()) == 0 {
		return nil
	}
	return results
}

// resumeCalls marks what a former owner of the run has done of its calls.
func resumeCalls(states []*callState, done *OpenRun) {
	for _, c := range states {
		if end := done.Ended[c.pos]; end != nil {
			c.started, c.ended = true, true
			c.outcome = &outcome{result: end.Result, isError: end.IsError}
		}
		if done.Started[c.pos] && c.outcome == nil {
			c.started = true
			// A call that was not allowed has not run: it asks again.
			if !done.Approvals[c.pos].holds() && (c.entry == nil || !c.entry.spec.Idempotent) {
				c.outcome = failed(Interrupted)
			}
		}
	}
	// Result messages come in call order, so the k-th belongs to the k-th
	// call; ids may repeat.
	for i, m := range done.Results {
		if i >= len(states) {
			break
		}
		c := states[i]
		c.started, c.ended, c.answered, c.message = true, true, true, m
		if c.outcome == nil {
			c.outcome = &outcome{result: ToolResult{Content: m.Content, Details: m.Details}, isError: m.IsError}
		}
	}
}
