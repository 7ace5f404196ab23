package looptest_test

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// divergentFile says what this loop does where pi is not to be followed: one
// section for each scenario of the project's copy that has a divergence, in
// the form of [render]. Each was checked against the scenario's "instead".
const divergentFile = "testdata/divergent.txt"

//go:embed testdata/divergent.txt
var divergentText string

var update = flag.Bool("update", false, "write "+divergentFile+" anew; read the difference")

// divergents are the sections by scenario.
var divergents = sync.OnceValue(func() map[string]string {
	sections := map[string]string{}
	for part := range strings.SplitSeq(divergentText, "\n== ") {
		name, body, ok := strings.Cut(strings.TrimPrefix(part, "== "), "\n")
		if ok {
			sections[strings.Fields(name)[0]] = strings.TrimSpace(body)
		}
	}
	return sections
})

var updated struct {
	sync.Mutex
	sections map[string]string
}

// checkDivergent holds a scenario with a divergence to its own expectation. One
// that the project has no expectation for is held to what is true of every
// run; see [checkInvariants].
func checkDivergent(t *testing.T, s *scenario, got *expectation) {
	text := render(got)
	if *update {
		updated.Lock()
		defer updated.Unlock()
		if updated.sections == nil {
			updated.sections = map[string]string{}
		}
		updated.sections[s.Name+"  "+s.Divergence.Kind+": "+s.Divergence.Instead] = text
		return
	}
	want, ok := divergents()[s.Name]
	if !ok {
		t.Logf("no expectation of our own; held to the invariants. Instead: %s", s.Divergence.Instead)
		return
	}
	if text != want {
		t.Errorf("not what %s says (instead: %s)\n%s", divergentFile, s.Divergence.Instead, lineDiff(text, want))
	}
}

// writeDivergent is called at the end of a run with -update.
func writeDivergent() error {
	if !*update || len(updated.sections) == 0 {
		return nil
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(updated.sections)) {
		fmt.Fprintf(&b, "== %s\n%s\n\n", name, updated.sections[name])
	}
	return os.WriteFile(divergentFile, []byte(b.String()), 0o644)
}

// render writes what happened in a form to read: the order of everything,
// then messages, executions, hooks and requests, one JSON a line.
func render(e *expectation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "outcome: %s %s\n", e.Outcome, e.Error)
	fmt.Fprintf(&b, "polls: steering %d, followUp %d\n", e.Polls["steering"], e.Polls["followUp"])
	b.WriteString("trace:")
	for i := 0; i < len(e.Trace); {
		n := i
		for n < len(e.Trace) && e.Trace[n] == e.Trace[i] {
			n++
		}
		b.WriteString(" " + e.Trace[i])
		if n-i > 1 {
			fmt.Fprintf(&b, "*%d", n-i)
		}
		i = n
	}
	b.WriteByte('\n')
	lines := func(what string, list []any) {
		for _, v := range list {
			fmt.Fprintf(&b, "%s: %s\n", what, oneLine(v))
		}
	}
	lines("message", e.Messages)
	if e.AgentState != nil {
		messages, _ := e.AgentState["messages"].([]any)
		lines("message", messages)
		state := maps.Clone(e.AgentState)
		delete(state, "messages")
		lines("state", []any{state})
	}
	lines("exec", e.ToolExecutions)
	lines("hook", e.HookCalls)
	fmt.Fprintf(&b, "requests: %d, the last one:\n", len(e.Requests))
	if len(e.Requests) > 0 {
		body, _ := e.Requests[len(e.Requests)-1].Body.(map[string]any)
		for _, key := range []string{"messages", "input"} {
			if list, ok := body[key].([]any); ok {
				lines("  "+key, list)
			}
		}
	}
	return newIDs(strings.TrimSpace(b.String()))
}

var newID = regexp.MustCompile(`\bcall_[A-Z2-7]{24,26}\b`)

// newIDs numbers the ids that the provider made up.
func newIDs(s string) string {
	var seen []string
	return newID.ReplaceAllStringFunc(s, func(id string) string {
		if !slices.Contains(seen, id) {
			seen = append(seen, id)
		}
		return fmt.Sprintf("call_NEW%d", slices.Index(seen, id)+1)
	})
}

// oneLine is a value as JSON, with the usage that says nothing left out.
func oneLine(v any) string {
	v = plain(v)
	if m, ok := v.(map[string]any); ok {
		if u, ok := m["usage"].(map[string]any); ok && u["totalTokens"] == 0.0 {
			delete(m, "usage")
		}
		delete(m, "api")
		delete(m, "provider")
		delete(m, "model")
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}

func lineDiff(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	var b strings.Builder
	for i := range max(len(g), len(w)) {
		var gl, wl string
		if i < len(g) {
			gl = g[i]
		}
		if i < len(w) {
			wl = w[i]
		}
		if gl != wl {
			fmt.Fprintf(&b, "  got  %s\n  want %s\n", gl, wl)
		}
	}
	return b.String()
}

// improve changes an expectation where pi is known to be wrong whatever the
// scenario is about, and says whether it did:
//
//   - nothing is polled after an abort, not even a queue that is empty;
//   - a run that was aborted in a turn ends with that turn, without one more
//     turn whose message is empty;
//   - continue does not append to the caller's list.
func improve(e *expectation) bool {
	changed := improvePolls(e)
	if before, ok := e.CallerContext["messagesBefore"]; ok && e.CallerContext["messagesAfter"] != before {
		e.CallerContext["messagesAfter"] = before
		changed = true
	}
	return improveEnd(e) || changed
}

func improvePolls(e *expectation) bool {
	changed, aborted := false, false
	e.Trace = slices.DeleteFunc(slices.Clone(e.Trace), func(entry string) bool {
		switch {
		case entry == "abort":
			aborted = true
		case strings.HasPrefix(entry, "run:"):
			aborted = false
		case aborted && strings.HasPrefix(entry, "poll:"):
			queue, n, _ := strings.Cut(strings.TrimPrefix(entry, "poll:"), "->")
			if n != "0" {
				return false // the message went into the transcript: no rule for that
			}
			e.Polls[queue]--
			changed = true
			return true
		}
		return false
	})
	return changed
}

// improveEnd drops the extra turns: those with nothing but an empty message
// that says aborted, behind a turn with tool results.
func improveEnd(e *expectation) bool {
	events, n := withoutExtraTurns(e.Events)
	trace, inTrace := withoutExtraTrace(e.Trace)
	if n == 0 || n != inTrace { // an abort within the turn looks the same in the events
		return false
	}
	e.Events, e.Trace = events, trace
	e.Messages = withoutExtraMessages(e.Messages)
	if messages, ok := e.AgentState["messages"].([]any); ok {
		e.AgentState["messages"] = withoutExtraMessages(messages)
	}
	return true
}

func withoutExtraTurns(events []any) (out []any, n int) {
	types := func(i int, want ...string) bool {
		for k, typ := range want {
			if i+k >= len(events) || field(events[i+k], "type") != typ {
				return false
			}
		}
		return true
	}
	for i := 0; i < len(events); i++ {
		extra := i > 0 && field(events[i-1], "type") == "turn_end" &&
			types(i, "turn_start", "message_start", "message_end", "turn_end", "agent_end") &&
			emptyAborted(field(events[i+2], "message"))
		if !extra {
			out = append(out, events[i])
			continue
		}
		n++
		i += 4
		messages, _ := field(events[i], "messages").([]any)
		out = append(out, map[string]any{"type": "agent_end", "messages": withoutExtraMessages(messages)})
	}
	return out, n
}

func withoutExtraTrace(trace []string) (out []string, n int) {
	pattern := []string{"turn_start", "llm:", "message_start:assistant", "message_end:assistant", "turn_end", "agent_end"}
	for i := 0; i < len(trace); i++ {
		extra := i > 0 && i+len(pattern) <= len(trace) && slices.Contains(trace[:i], "abort")
		for k := range pattern {
			extra = extra && strings.HasPrefix(trace[i+k], pattern[k])
		}
		if extra {
			n++
			i += len(pattern) - 1
		}
		out = append(out, trace[i])
	}
	return out, n
}

func withoutExtraMessages(messages []any) (out []any) {
	for i, m := range messages {
		if i > 0 && emptyAborted(m) && field(messages[i-1], "role") == "toolResult" {
			continue
		}
		out = append(out, m)
	}
	return out
}

func emptyAborted(m any) bool {
	content, _ := field(m, "content").([]any)
	return len(content) == 0 && field(m, "stopReason") == "aborted" && field(m, "errorMessage") == "Request was aborted."
}

func field(v any, key string) any {
	m, _ := v.(map[string]any)
	return m[key]
}
