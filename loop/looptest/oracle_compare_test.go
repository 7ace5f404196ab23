package looptest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/pi-worker/pi-worker/loop"
)

// decoded is JSON as Go values; what is no JSON is a string that says so.
func decoded(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return "not JSON: " + err.Error()
	}
	return v
}

// normalEvent is an event in the oracle's normal form.
func normalEvent(ev loop.Event) any {
	m, ok := decoded(loop.AppendEvent(nil, ev)).(map[string]any)
	if !ok {
		return "event is no JSON object"
	}
	clean(m)
	switch ev := ev.(type) {
	case *loop.MessageUpdate:
		delete(m, "message")
		if u, ok := m["assistantMessageEvent"].(map[string]any); ok {
			delete(u, "partial")
			if ev.Update.Type == loop.UpdateToolCallStart {
				delete(u, "toolCall")
				if c := ev.Update.ToolCall; c != nil {
					u["x_toolCall"] = map[string]any{"id": c.ID, "name": c.Name}
				}
			}
		}
	case *loop.MessageStart:
		if a, ok := ev.Message.(*loop.AssistantMessage); ok && a.StopReason == "" {
			msg, _ := m["message"].(map[string]any)
			for k := range msg {
				if !slices.Contains([]string{"role", "api", "provider", "model"}, k) {
					delete(msg, k)
				}
			}
		}
	}
	return m
}

func normalMessages(messages []loop.Message) []any {
	out := []any{}
	for _, m := range messages {
		b, err := loop.MarshalMessage(m)
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		v := decoded(b)
		clean(v)
		out = append(out, v)
	}
	return out
}

func normalResult(r loop.ToolResult) any {
	b, err := json.Marshal(r)
	if err != nil {
		return err.Error()
	}
	v := decoded(b)
	if m, ok := v.(map[string]any); ok {
		delete(m, "isError") // ours; pi has it beside the result
	}
	return v
}

// clean removes timestamps and the fields that pi doesn't have.
func clean(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["role"]; ok {
			delete(v, "timestamp")
		}
		if v["type"] == "toolCall" {
			delete(v, "incomplete")
			delete(v, "extra")
		}
		if _, ok := v["totalTokens"]; ok {
			delete(v, "reasoning")
			delete(v, "estimated")
			if cost, ok := v["cost"].(map[string]any); ok {
				delete(cost, "stated")
			}
		}
		dropFalse(v)
		for _, item := range v {
			clean(item)
		}
	case []any:
		for _, item := range v {
			clean(item)
		}
	}
}

// dropFalse removes "terminate": false from a tool's result, which says the
// same as none.
func dropFalse(m map[string]any) {
	if m["terminate"] == false {
		delete(m, "terminate")
	}
}

// comparer compares what was seen with what is expected, by FORMAT.md.
type comparer struct {
	s     *scenario
	diffs []string
}

func (c *comparer) differ(path, format string, args ...any) {
	if len(c.diffs) < 20 {
		c.diffs = append(c.diffs, path+": "+fmt.Sprintf(format, args...))
	}
}

// compare lists the differences; none means that they are the same.
func compare(s *scenario, got, want *expectation) []string {
	c := &comparer{s: s}
	if got.Outcome != want.Outcome {
		c.differ("outcome", "got %s %s, want %s %s", got.Outcome, got.Error, want.Outcome, want.Error)
	}
	c.value("error", got.Error, want.Error)
	c.value("runs", got.Runs, want.Runs)
	c.trace(got.Trace, want.Trace)
	c.value("events", got.Events, want.Events)
	c.value("messages", got.Messages, want.Messages)
	c.value("agentState", got.AgentState, want.AgentState)
	c.value("callerContext", got.CallerContext, want.CallerContext)
	c.value("toolExecutions", got.ToolExecutions, want.ToolExecutions)
	c.value("hookCalls", got.HookCalls, want.HookCalls)
	c.value("polls", got.Polls, want.Polls)
	c.value("actionErrors", got.ActionErrors, want.ActionErrors)
	c.value("unhandledRejections", got.UnhandledRejections, want.UnhandledRejections)
	if len(got.Requests) != len(want.Requests) {
		c.differ("requests", "got %d, want %d", len(got.Requests), len(want.Requests))
		return c.diffs
	}
	for i := range want.Requests {
		c.value(fmt.Sprintf("requests[%d]", i), withoutSDK(got.Requests[i]), withoutSDK(want.Requests[i]))
	}
	return c.diffs
}

// withoutSDK drops the header that is the client library's own.
func withoutSDK(r request) request {
	r.Headers = maps.Clone(r.Headers)
	delete(r.Headers, "x-stainless-retry-count")
	return r
}

// trace compares the order of everything. The executions of one batch, and
// the actions that they start, have no order among each other; with the
// stream driver the model's calls have no fixed place.
func (c *comparer) trace(got, want []string) {
	g, w := c.normalTrace(got), c.normalTrace(want)
	if !slices.Equal(g, w) {
		for i := range max(len(g), len(w)) {
			if i >= len(g) || i >= len(w) || g[i] != w[i] {
				c.differ("trace", "differs at %d:\n   got  %v\n   want %v", i, g[min(i, len(g)):], w[min(i, len(w)):])
				return
			}
		}
	}
}

func (c *comparer) normalTrace(trace []string) []string {
	var out []string
	for _, e := range trace {
		if c.s.Driver == "stream" && strings.HasPrefix(e, "llm:") {
			continue
		}
		out = append(out, e)
	}
	unordered := func(e string) bool {
		return strings.HasPrefix(e, "exec:") || strings.HasPrefix(e, "action:") || e == "abort"
	}
	for i := 0; i < len(out); i++ {
		j := i
		for j < len(out) && unordered(out[j]) {
			j++
		}
		if slices.ContainsFunc(out[i:j], func(e string) bool { return strings.HasPrefix(e, "exec:") }) {
			slices.Sort(out[i:j])
		}
		i = max(i, j-1)
	}
	return out
}

// value compares as decoded JSON.
func (c *comparer) value(path string, got, want any) {
	c.any(path, "", plain(got), plain(want))
}

// plain turns structs and typed lists into decoded JSON.
func plain(v any) any {
	if rv := reflect.ValueOf(v); !rv.IsValid() || (rv.Kind() == reflect.Slice || rv.Kind() == reflect.Map) && rv.IsNil() {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return decoded(b)
}

func (c *comparer) any(path, key string, got, want any) {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			c.differ(path, "got %s, want %s", short(got), short(want))
			return
		}
		c.object(path, g, w)
	case []any:
		g, ok := got.([]any)
		if !ok && !(got == nil && len(w) == 0) {
			c.differ(path, "got %s, want %s", short(got), short(want))
			return
		}
		for i := range min(len(g), len(w)) {
			c.any(fmt.Sprintf("%s[%d]", path, i), key, g[i], w[i])
		}
		if len(g) != len(w) {
			c.differ(path, "got %d items, want %d; first beyond: %s | %s", len(g), len(w), beyond(g, len(w)), beyond(w, len(g)))
		}
	case float64:
		g, ok := got.(float64)
		if !ok || g != w && math.Abs(g-w) > 1e-12*math.Abs(w) {
			c.differ(path, "got %s, want %v", short(got), w)
		}
	case string:
		c.text(path, key, got, w)
	default:
		empty, ok := got.([]any)
		if want == nil && ok && len(empty) == 0 && key == "" {
			return
		}
		if got != want {
			c.differ(path, "got %s, want %s", short(got), short(want))
		}
	}
}

func beyond(list []any, n int) string {
	if n < len(list) {
		return short(list[n])
	}
	return "-"
}

func (c *comparer) object(path string, got, want map[string]any) {
	dropFalse(want)
	for k, w := range want {
		g, ok := got[k]
		if k == "x_toolCall" && !ok {
			continue // optional
		}
		if !ok {
			c.differ(path+"."+k, "missing, want %s", short(w))
			continue
		}
		c.any(path+"."+k, k, g, w)
	}
	for k, g := range got {
		if _, ok := want[k]; !ok {
			c.differ(path+"."+k, "got %s, want nothing", short(g))
		}
	}
}

func (c *comparer) text(path, key string, got any, want string) {
	g, ok := got.(string)
	switch {
	case !ok:
		c.differ(path, "got %s, want %q", short(got), want)
	case g == want:
	case (key == "errorMessage" || key == "error") && c.s.Compare.ErrorMessage == "nonempty" && g != "":
	case c.s.Compare.LoneSurrogates && key == "delta":
	case firstLine(g) == firstLine(want):
	case jsonString(key) && reflect.DeepEqual(decoded([]byte(g)), decoded([]byte(want))) && json.Valid([]byte(want)):
	default:
		c.differ(path, "got %q, want %q", g, want)
	}
}

func jsonString(key string) bool {
	return slices.Contains([]string{"arguments", "thoughtSignature", "thinkingSignature", "textSignature"}, key)
}

// firstLine is a validation error without the validator's own words, and any
// other text whole.
func firstLine(s string) string {
	if strings.HasPrefix(s, `Validation failed for tool "`) {
		s, _, _ = strings.Cut(s, "\n")
	}
	return s
}

func short(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(b) > 300 {
		return string(b[:300]) + "…"
	}
	return string(b)
}
