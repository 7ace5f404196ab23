// Package loop is the agent loop of pi: LLM turn, tool calls, steering between
// turns, follow-ups at the end. It knows no broker and no provider: a [Model]
// streams one answer, a [Tool] runs one call, and [Run] turns a history and
// some prompts into a stream of [Event]s.
//
//	for ev, err := range loop.Run(ctx, cfg, history, prompt) {
//		...
//	}
//
// The semantics are those of pi 0.73.1 (packages @mariozechner/pi-agent-core
// and pi-ai); where pi is wrong the better behaviour is pinned by a test.
package loop
