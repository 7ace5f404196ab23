package looptest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// checkInvariants checks what is true of every run, whatever pi did: events
// nest, each run ends with agent_end, each call has one result in call order,
// no call of a failed answer runs, no cut call runs, nothing starts or is
// polled after an abort, and each request is one that the API accepts.
func checkInvariants(t *testing.T, s *scenario, got *expectation) {
	t.Helper()
	c := invariants{t: t, s: s}
	if got.Outcome != "ok" && !strings.HasPrefix(got.Error, "Cannot continue") && got.Error != "No messages to continue from" {
		t.Errorf("outcome %s: %s: only misuse is an error of the sequence", got.Outcome, got.Error)
	}
	for _, ev := range got.Events {
		m, ok := ev.(map[string]any)
		if !ok {
			t.Fatalf("event %v", ev)
		}
		c.event(m)
	}
	if c.run != 0 {
		t.Error("the last run has no agent_end")
	}
	c.order(got.Trace)
	c.executions(got.ToolExecutions)
	if os.Getenv("LOOP_ORACLE_DIR") != "" && s.Divergence == nil {
		return // compared with pi's requests, whatever a server thinks of them
	}
	for i, r := range got.Requests {
		if err := acceptable(r.Body); err != nil {
			t.Errorf("request %d: %v", i+1, err)
		}
	}
}

type invariants struct {
	t                  *testing.T
	s                  *scenario
	run, turn, message int
	tools              map[string]int
	calls              []map[string]any // of the last finished answer
	results            []map[string]any // after it
	refusedIDs         []string         // calls that must not run
}

func (c *invariants) event(m map[string]any) {
	typ, _ := m["type"].(string)
	msg, _ := m["message"].(map[string]any)
	id, _ := m["toolCallId"].(string)
	switch typ {
	case "agent_start":
		c.step(&c.run, 1, typ)
	case "agent_end":
		if c.turn+c.message != 0 {
			c.t.Errorf("agent_end inside a turn or a message")
		}
		c.step(&c.run, -1, typ)
	case "turn_start":
		c.step(&c.turn, 1, typ)
	case "turn_end":
		c.step(&c.turn, -1, typ)
		c.turnEnd(msg)
	case "message_start":
		c.step(&c.message, 1, typ)
	case "message_end":
		c.step(&c.message, -1, typ)
		c.messageEnd(msg)
	case "tool_execution_start":
		if c.tools == nil {
			c.tools = map[string]int{}
		}
		c.tools[id]++
	case "tool_execution_update", "tool_execution_end":
		if c.tools[id] <= 0 {
			c.t.Errorf("%s of %q, which is not running", typ, id)
		}
		if typ == "tool_execution_end" {
			c.tools[id]--
		}
	case "message_discarded":
		c.t.Error("an answer was discarded without a policy that says so")
	}
	if c.run == 0 && typ != "agent_end" {
		c.t.Errorf("%s outside a run", typ)
	}
}

func (c *invariants) step(n *int, by int, typ string) {
	*n += by
	if *n != 0 && *n != 1 {
		c.t.Errorf("%s does not nest", typ)
	}
}

func (c *invariants) messageEnd(msg map[string]any) {
	switch msg["role"] {
	case "assistant":
		c.calls, c.results = nil, nil
		stop, _ := msg["stopReason"].(string)
		if !slices.Contains([]string{"stop", "length", "toolUse", "error", "aborted"}, stop) {
			c.t.Errorf("stop reason %q", stop)
		}
		text, _ := msg["errorMessage"].(string)
		if failed := stop == "error" || stop == "aborted"; failed != (text != "") {
			c.t.Errorf("stop reason %q with error message %q", stop, text)
		}
		blocks, _ := msg["content"].([]any)
		for _, b := range blocks {
			block, _ := b.(map[string]any)
			if block["type"] != "toolCall" {
				continue
			}
			if stop == "error" || stop == "aborted" {
				c.refusedIDs = append(c.refusedIDs, fmt.Sprint(block["id"]))
				continue
			}
			c.calls = append(c.calls, block)
		}
	case "toolResult":
		c.results = append(c.results, msg)
	}
}

// turnEnd: every call of the turn's answer has its result, in call order.
func (c *invariants) turnEnd(msg map[string]any) {
	if msg["role"] != "assistant" {
		c.t.Errorf("turn_end with a message of role %v", msg["role"])
	}
	if len(c.results) != len(c.calls) {
		c.t.Errorf("%d results for %d calls", len(c.results), len(c.calls))
		return
	}
	for i, call := range c.calls {
		if c.results[i]["toolCallId"] != call["id"] {
			c.t.Errorf("result %d answers %v, not %v", i, c.results[i]["toolCallId"], call["id"])
		}
	}
	c.calls, c.results = nil, nil
}

func (c *invariants) order(trace []string) {
	aborted := false
	for _, entry := range trace {
		switch {
		case entry == "abort":
			aborted = true
		case strings.HasPrefix(entry, "run:"):
			aborted = false
		case aborted && strings.HasPrefix(entry, "poll:"), aborted && strings.HasPrefix(entry, "exec:"):
			if !c.batch(trace, entry) {
				c.t.Errorf("%s after an abort", entry)
			}
		}
	}
}

// batch says whether an execution began at the same moment as the one whose
// action was the abort: those of one batch have no order.
func (c *invariants) batch(trace []string, entry string) bool {
	i := slices.Index(trace, "abort")
	j := slices.Index(trace, entry)
	for _, between := range trace[i+1 : j] {
		if !strings.HasPrefix(between, "exec:") {
			return false
		}
	}
	return i > 0 && strings.HasPrefix(trace[i-1], "exec:") && strings.HasPrefix(entry, "exec:")
}

// executions: what ran had whole arguments. The texts of the arguments are
// taken from the raw responses, so that this does not rest on what the loop
// thinks of them.
func (c *invariants) executions(list []any) {
	cut := cutCalls(c.s)
	for _, e := range list {
		m, _ := e.(map[string]any)
		id, _ := m["toolCallId"].(string)
		bare, _, _ := strings.Cut(id, "|")
		if slices.Contains(c.refusedIDs, id) && !c.elsewhere(id) {
			c.t.Errorf("call %s of a failed answer ran", id)
		}
		if cut[bare] {
			c.t.Errorf("call %s ran with cut or malformed arguments", id)
		}
	}
}

// elsewhere says whether an id occurs in several responses.
func (c *invariants) elsewhere(id string) bool {
	n := 0
	for _, r := range c.s.Responses {
		for _, chunk := range r.Chunks {
			if strings.Contains(string(chunk.Data), `"`+id+`"`) {
				n++
				break
			}
		}
	}
	return n > 1
}

// cutCalls lists the calls, by id, whose argument text is open at its end: in a
// string, a list or an object. Only calls whose pieces carry an index and whose id
// occurs once are looked at.
func cutCalls(s *scenario) map[string]bool {
	cut := map[string]bool{}
	for _, r := range s.Responses {
		type piece struct {
			id, args string
			shared   bool // two calls have its index
		}
		calls := map[int]*piece{}
		for _, chunk := range r.Chunks {
			var data struct {
				Choices []struct {
					Delta struct {
						ToolCalls []struct {
							Index    *int   `json:"index"`
							ID       string `json:"id"`
							Function struct {
								Arguments string `json:"arguments"`
							} `json:"function"`
						} `json:"tool_calls"`
					} `json:"delta"`
				} `json:"choices"`
			}
			if json.Unmarshal(chunk.Data, &data) != nil {
				continue
			}
			for _, ch := range data.Choices {
				for _, tc := range ch.Delta.ToolCalls {
					if tc.Index == nil {
						continue
					}
					if calls[*tc.Index] == nil {
						calls[*tc.Index] = &piece{}
					}
					p := calls[*tc.Index]
					p.shared = p.shared || tc.ID != "" && p.id != "" && tc.ID != p.id
					if tc.ID != "" {
						p.id = tc.ID
					}
					p.args += tc.Function.Arguments
				}
			}
		}
		for _, p := range calls {
			if p.id != "" && !p.shared && openEnded(p.args) {
				cut[p.id] = true
			}
		}
	}
	return cut
}

func openEnded(text string) bool {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			depth--
		}
	}
	return inString || depth > 0
}
