package loop_test

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/pi-worker/pi-worker/loop"
	"pgregory.net/rapid"
)

// Generators of events as an engine emits them.

var (
	words = rapid.SampledFrom([]string{"", "a", "hello ", "line\nbreak", "\u2028", "<b>&", `q"\`, "\x00\x1f", "é", "😀", "日本", "tab\t"})
	ids   = rapid.SampledFrom([]string{"call_1", "call_2", "", "x|y"})
	raws  = rapid.SampledFrom([]string{`{}`, `{"a":1}`, `{"a": "x y", "b":[1,2.50,1e400]}`, `[]`, `"s"`, `null`, `{"e":"\ud83d"}`})
)

func genRaw(t *rapid.T, label string) json.RawMessage { return json.RawMessage(raws.Draw(t, label)) }

func genUsage(t *rapid.T) loop.Usage {
	n := func(l string) int64 { return rapid.Int64Range(0, 1<<40).Draw(t, l) }
	f := func(l string) float64 { return rapid.Float64Range(0, 100).Draw(t, l) }
	return loop.Usage{Input: n("in"), Output: n("out"), CacheRead: n("cr"), CacheWrite: n("cw"), TotalTokens: n("tt"), Reasoning: n("r"),
		Cost:      loop.Cost{Input: f("ci"), Output: f("co"), Total: f("ct"), Stated: rapid.Bool().Draw(t, "stated")},
		Estimated: rapid.Bool().Draw(t, "est")}
}

func genBlock(t *rapid.T, roles string) loop.Block {
	switch rapid.SampledFrom([]string{"text", roles, "unknown"}).Draw(t, "block") {
	case "thinking":
		if rapid.Bool().Draw(t, "call") {
			return &loop.ToolCall{ID: ids.Draw(t, "id"), Name: words.Draw(t, "name"), Arguments: genRaw(t, "args"),
				ThoughtSignature: words.Draw(t, "sig"), Extra: json.RawMessage(`{"k":{"z":1,"a":2}}`), Incomplete: words.Draw(t, "inc")}
		}
		return &loop.Thinking{Thinking: words.Draw(t, "thinking"), Signature: words.Draw(t, "sig"), Redacted: rapid.Bool().Draw(t, "red")}
	case "image":
		return &loop.Image{Data: "aGk=", MIMEType: "image/png", Other: json.RawMessage(`{"detail":"low"}`)}
	case "unknown":
		return &loop.UnknownBlock{Type: "hologram", Raw: json.RawMessage(`{"type":"hologram","z":1,"a":[true]}`)}
	}
	return &loop.Text{Text: words.Draw(t, "text"), Signature: words.Draw(t, "sig")}
}

func genBlocks(t *rapid.T, roles string) []loop.Block {
	blocks := []loop.Block{}
	for range rapid.IntRange(0, 3).Draw(t, "blocks") {
		blocks = append(blocks, genBlock(t, roles))
	}
	return blocks
}

func genMessage(t *rapid.T) loop.Message {
	ts := rapid.Int64Range(0, 1<<42).Draw(t, "ts")
	switch rapid.SampledFrom([]string{"user", "bare", "assistant", "toolResult", "custom"}).Draw(t, "role") {
	case "user":
		return &loop.UserMessage{Content: genBlocks(t, "image"), Timestamp: ts}
	case "bare":
		return &loop.UserMessage{Content: []loop.Block{&loop.Text{Text: words.Draw(t, "text")}}, ContentString: true}
	case "assistant":
		return genAssistant(t)
	case "toolResult":
		return &loop.ToolResultMessage{ToolCallID: ids.Draw(t, "id"), ToolName: "t", Content: genBlocks(t, "image"),
			Details: genRaw(t, "details"), IsError: rapid.Bool().Draw(t, "err"), Timestamp: ts}
	}
	return &loop.CustomMessage{CustomRole: "note", Raw: json.RawMessage(`{"role":"note","content":"x","z":1.50}`)}
}

func genAssistant(t *rapid.T) *loop.AssistantMessage {
	return &loop.AssistantMessage{Content: genBlocks(t, "thinking"), API: "openai-completions", Provider: "p", Model: "m",
		Usage: genUsage(t), StopReason: rapid.SampledFrom([]loop.StopReason{loop.StopStop, loop.StopToolUse, loop.StopError, loop.StopAborted}).Draw(t, "stop"),
		ErrorMessage: words.Draw(t, "err"), ResponseID: words.Draw(t, "rid"), ResponseModel: words.Draw(t, "rm"),
		Timestamp: rapid.Int64Range(0, 1<<42).Draw(t, "ts"), Other: json.RawMessage(`{"vendor":{"b":1,"a":2}}`)}
}

// genLog generates the events of one session: runs of turns, answers streamed
// or not, tools, crashes at any point.
func genLog(t *rapid.T) []loop.Event {
	g := &logGen{t: t}
	for range rapid.IntRange(1, 3).Draw(t, "runs") {
		g.oneRun()
	}
	return g.events
}

type logGen struct {
	t      *rapid.T
	events []loop.Event
	calls  int
	run    []loop.Message // the new messages of the run
}

func (g *logGen) emit(ev ...loop.Event) { g.events = append(g.events, ev...) }

func (g *logGen) message(m loop.Message) {
	g.run = append(g.run, m)
	g.emit(&loop.MessageStart{Message: m}, &loop.MessageEnd{Message: m})
}

func (g *logGen) oneRun() {
	t := g.t
	g.run = []loop.Message{}
	g.emit(&loop.SessionClaimed{Worker: "w", Epoch: "1-abc"}, &loop.AgentStart{}, &loop.TurnStart{})
	g.message(loop.NewUserText(words.Draw(t, "prompt")))
	turns := rapid.IntRange(1, 3).Draw(t, "turns")
	for turn := range turns {
		if turn > 0 {
			g.emit(&loop.TurnStart{})
		}
		m, results := g.turn()
		u := m.Usage
		g.emit(&loop.TurnEnd{Message: m, ToolResults: results, Usage: &u})
		if rapid.IntRange(0, 3).Draw(t, "compaction") == 0 {
			g.emit(&loop.CompactionStart{Reason: loop.CompactionThreshold}, genCompaction(t))
		}
		if rapid.Bool().Draw(t, "unknown event") {
			g.emit(&loop.UnknownEvent{Type: "novelty", Raw: json.RawMessage(`{"type":"novelty","n":1}`)})
		}
	}
	g.emit(&loop.AgentEnd{Messages: g.run, Usage: &loop.Usage{}})
	if rapid.Bool().Draw(t, "settled") {
		g.emit(&loop.AgentSettled{Outcome: loop.OutcomeCompleted, Attempts: 1, Usage: genUsage(t), PromptSeq: 3, PromptID: "p"})
	}
}

func genCompaction(t *rapid.T) *loop.CompactionEnd {
	e := &loop.CompactionEnd{Reason: loop.CompactionThreshold, Usage: genUsage(t)}
	if rapid.Bool().Draw(t, "failed") {
		e.ErrorMessage = "no summary"
		return e
	}
	e.Result = &loop.Compacted{Summary: words.Draw(t, "summary"), Kept: rapid.IntRange(0, 4).Draw(t, "kept"),
		TokensBefore: 900, TokensAfter: 20, Timestamp: rapid.Int64Range(0, 1<<42).Draw(t, "ts")}
	return e
}

func (g *logGen) turn() (*loop.AssistantMessage, []*loop.ToolResultMessage) {
	t := g.t
	if rapid.Bool().Draw(t, "crash") {
		g.stream(nil)
		g.emit(&loop.SessionClaimed{Worker: "v", Epoch: "2-x"}, &loop.RunResumed{Attempt: 2, Reason: "crash"}, &loop.MessageDiscarded{Reason: "resumed"})
	}
	m := &loop.AssistantMessage{Content: []loop.Block{}, API: "a", Provider: "p", Model: "m", Usage: genUsage(t), StopReason: loop.StopToolUse}
	g.stream(m)
	var results []*loop.ToolResultMessage
	for _, b := range m.Content {
		if c, ok := b.(*loop.ToolCall); ok {
			results = append(results, g.tool(c))
		}
	}
	for _, r := range results {
		g.message(r)
	}
	return m, results
}

// stream emits a streamed answer and, unless m is nil, ends it.
func (g *logGen) stream(m *loop.AssistantMessage) {
	t := g.t
	live := &loop.AssistantMessage{Content: []loop.Block{}, API: "a", Provider: "p", Model: "m"}
	g.emit(&loop.MessageStart{Message: &loop.AssistantMessage{API: "a", Provider: "p", Model: "m"}})
	update := func(u loop.Update) { g.emit(&loop.MessageUpdate{Partial: snapshot(live), Update: u}) }
	for i := range rapid.IntRange(0, 3).Draw(t, "streamed") {
		switch rapid.SampledFrom([]string{"text", "thinking", "call"}).Draw(t, "kind") {
		case "text":
			b := &loop.Text{}
			live.Content = append(live.Content, b)
			update(loop.Update{Type: loop.UpdateTextStart, ContentIndex: i})
			for range rapid.IntRange(0, 4).Draw(t, "deltas") {
				d := words.Draw(t, "delta")
				b.Text += d
				update(loop.Update{Type: loop.UpdateTextDelta, ContentIndex: i, Delta: d})
			}
			update(loop.Update{Type: loop.UpdateTextEnd, ContentIndex: i, Content: b.Text})
		case "thinking":
			b := &loop.Thinking{}
			live.Content = append(live.Content, b)
			update(loop.Update{Type: loop.UpdateThinkingStart, ContentIndex: i})
			d := words.Draw(t, "delta")
			b.Thinking += d
			update(loop.Update{Type: loop.UpdateThinkingDelta, ContentIndex: i, Delta: d})
			update(loop.Update{Type: loop.UpdateThinkingEnd, ContentIndex: i, Content: b.Thinking})
		case "call":
			g.streamCall(live, i, update)
		}
	}
	if m != nil {
		m.Content = live.Content
		g.run = append(g.run, m)
		g.emit(&loop.MessageEnd{Message: m})
	}
}

func (g *logGen) streamCall(live *loop.AssistantMessage, i int, update func(loop.Update)) {
	g.calls++
	c := &loop.ToolCall{ID: fmt.Sprintf("call_%d", g.calls), Name: "t", Arguments: json.RawMessage("{}")}
	live.Content = append(live.Content, c)
	update(loop.Update{Type: loop.UpdateToolCallStart, ContentIndex: i, ToolCall: &loop.ToolCall{ID: c.ID, Name: c.Name}})
	args, err := json.Marshal(map[string]string{"a": words.Draw(g.t, "arg"), "b": words.Draw(g.t, "arg")})
	if err != nil {
		panic(err)
	}
	cut := rapid.IntRange(0, len(args)).Draw(g.t, "cut")
	for cut < len(args) && !utf8.RuneStart(args[cut]) {
		cut++ // a model's reader hands out whole characters
	}
	for _, part := range [][]byte{args[:cut], args[cut:]} {
		update(loop.Update{Type: loop.UpdateToolCallDelta, ContentIndex: i, Delta: string(part)})
	}
	c.Arguments = args
	update(loop.Update{Type: loop.UpdateToolCallEnd, ContentIndex: i, ToolCall: c})
}

func (g *logGen) tool(c *loop.ToolCall) *loop.ToolResultMessage {
	t := g.t
	g.emit(&loop.ToolExecutionStart{ToolCallID: c.ID, ToolName: c.Name, Args: c.Arguments})
	if rapid.Bool().Draw(t, "progress") {
		g.emit(&loop.ToolExecutionUpdate{ToolCallID: c.ID, ToolName: c.Name, Args: c.Arguments, PartialResult: loop.TextResult(words.Draw(t, "part"))},
			&loop.Waiting{For: "tool", Since: 5})
	}
	result := loop.ToolResult{Content: genBlocks(t, "image"), Details: genRaw(t, "details"), Terminate: rapid.Bool().Draw(t, "terminate")}
	isError := rapid.Bool().Draw(t, "error")
	g.emit(&loop.ToolExecutionEnd{ToolCallID: c.ID, ToolName: c.Name, Result: result, IsError: isError})
	return &loop.ToolResultMessage{ToolCallID: c.ID, ToolName: c.Name, Content: result.Content, Details: result.Details, IsError: isError}
}

func snapshot(m *loop.AssistantMessage) *loop.AssistantMessage {
	b, err := loop.MarshalMessage(m)
	if err != nil {
		panic(err)
	}
	c, err := loop.ParseMessage(b)
	if err != nil {
		panic(err)
	}
	return c.(*loop.AssistantMessage)
}

// ownEvents is one of each of the product's own events.
var ownEvents = []loop.Event{
	&loop.SessionClaimed{Worker: "w-1", Epoch: "3-f00"},
	&loop.RunReleased{Worker: "w-1", Reason: "shutdown"},
	&loop.RunLost{Worker: "w-1", Epoch: "3-f00", Since: 1764600000000},
	&loop.RunLost{Worker: "w-1", Epoch: "3-f00"},
	&loop.LeaseLost{Worker: "w-1", Epoch: "3-f00", Reason: "no answer"},
	&loop.RunResumed{Attempt: 2, Reason: "lease lost"},
	&loop.MessageDiscarded{Reason: "resumed"},
	&loop.MessageDiscarded{Attempt: 2, Reason: "cut"},
	&loop.InputReturned{Kind: "steer", Seq: 1 << 60, ID: "i", Reason: "abort", Turn: 3, Input: json.RawMessage(`{"message":"x"}`)},
	&loop.AutoRetryStart{Attempt: 1, MaxAttempts: 3, Delay: 1500 * time.Millisecond, ErrorMessage: "429 slow down", Class: "rate_limited"},
	&loop.AutoRetryEnd{Success: true, Attempt: 2},
	&loop.AutoRetryEnd{Attempt: 3, FinalError: "500"},
	&loop.AutoRetryEnd{Attempt: 1, FinalError: "429", RetryAfter: 5 * time.Minute},
	&loop.CompactionStart{Reason: loop.CompactionOverflow},
	&loop.CompactionEnd{Reason: loop.CompactionOverflow, WillRetry: true, Usage: loop.Usage{Input: 9, TotalTokens: 9},
		Result: &loop.Compacted{Summary: "so\nfar", Kept: 3, TokensBefore: 900, TokensAfter: 20, Timestamp: 1764600000000}},
	&loop.CompactionEnd{Reason: loop.CompactionThreshold, Aborted: true, ErrorMessage: "no"},
	&loop.AgentSettled{Outcome: loop.OutcomeFailed, ErrorMessage: "429", RetryAfter: time.Hour},
	&loop.Waiting{For: "model", Since: 1764600000000},
	&loop.ApprovalRequested{ToolCallID: "c", ToolName: "bash", Args: json.RawMessage(`{"command":"rm x"}`), Key: "s/1/0/0", Policy: "deny_after", Deadline: 1764600000000},
	&loop.ApprovalAnswered{ToolCallID: "c", ToolName: "bash", Key: "s/1/0/0", Answer: loop.Denied, By: "ada", Reason: "no"},
	&loop.ApprovalAnswered{ToolCallID: "c", ToolName: "bash", Key: "s/1/0/0", Answer: loop.TimedOut},
	&loop.WorkspaceSaved{Manifest: "s/files/1-abc.2", Files: 3, Bytes: 1 << 40, Stored: 9},
	&loop.ToolsChanged{Source: "mcp:sums", Added: []string{"a", "b"}, Removed: []string{"c"}, Reason: "there"},
	&loop.ToolsChanged{Source: "remote"},
	&loop.WorkspaceUnsaved{ErrorMessage: "too many"},
	&loop.AgentSettled{Outcome: loop.OutcomeFailed, Attempts: 2, Usage: loop.Usage{Input: 3, Cost: loop.Cost{Total: 0.25}}, PromptSeq: 7, PromptID: "p", ErrorMessage: "no"},
	&loop.UnknownEvent{Type: "novelty", Raw: json.RawMessage(`{"type":"novelty", "z":1,"a":1.50}`)},
}
