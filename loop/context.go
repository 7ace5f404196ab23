package loop

import "slices"

// Context returns the messages as a model may be asked with them. The last
// compaction's summary stands for those before it. Behind each
// answer there is a result for each of its calls. A call that has none gets
// the result that its tool_execution_end recorded, or else an error result
// that says [Interrupted]. Answers that failed or were aborted are left as
// they are, since they do not reach a model.
//
// The list does not change when the transcript goes on; it must not be changed.
func (t *Transcript) Context() []Message {
	var out []Message // nil while nothing had to be added
	if t.summary != nil {
		out = append(make([]Message, 0, len(t.messages)-t.from+1), t.summary)
	}
	for i := t.from; i < len(t.messages); {
		next := answerEnd(t.messages, i)
		missing := t.missingResults(t.messages[i:next])
		if len(missing) > 0 && out == nil {
			out = slices.Clone(t.messages[:i])
		}
		if out != nil {
			out = append(append(out, t.messages[i:next]...), missing...)
		}
		i = next
	}
	if out == nil {
		return t.Messages()
	}
	return slices.Clip(out)
}

// History returns the part of Context that was there before the open run, with
// the summary that stands for the run's own first messages if it has one: what
// [Resume] wants as its history. Without an open run it is all of Context.
func (t *Transcript) History() []Message {
	all := t.Context()
	if t.run == nil || !t.run.open || max(t.run.base, t.from) >= len(t.messages) {
		return all
	}
	return slices.Clip(all[:slices.Index(all, t.messages[max(t.run.base, t.from)])])
}

// answerEnd returns the end of the group that begins at i: an answer with the
// results behind it, or any other message alone.
func answerEnd(messages []Message, i int) int {
	_, answer := messages[i].(*AssistantMessage)
	for i++; answer && i < len(messages); i++ {
		if _, ok := messages[i].(*ToolResultMessage); !ok {
			break
		}
	}
	return i
}

// missingResults returns results for the calls of group's answer that have none.
func (t *Transcript) missingResults(group []Message) (missing []Message) {
	m, ok := group[0].(*AssistantMessage)
	if !ok || m.StopReason == StopError || m.StopReason == StopAborted {
		return nil
	}
	for i, c := range m.toolCalls() {
		if answered(group[1:], m, i) {
			continue
		}
		result := &ToolResultMessage{ToolCallID: c.ID, ToolName: c.Name, IsError: true,
			Content: []Block{&Text{Text: Interrupted}}, Timestamp: m.Timestamp}
		if r := t.run; r != nil && r.assistant == m && r.ended[i] != nil {
			end := r.ended[i]
			result.Content, result.Details, result.IsError = end.Result.Content, end.Result.Details, end.IsError
		}
		missing = append(missing, result)
	}
	return missing
}

// answered reports whether results has one for m's call at position. Of calls
// with the same id each needs its own.
func answered(results []Message, m *AssistantMessage, position int) bool {
	calls := m.toolCalls()
	nth := 0
	for _, c := range calls[:position] {
		if c.ID == calls[position].ID {
			nth++
		}
	}
	for _, r := range results {
		if r, ok := r.(*ToolResultMessage); ok && r.ToolCallID == calls[position].ID {
			if nth == 0 {
				return true
			}
			nth--
		}
	}
	return false
}
