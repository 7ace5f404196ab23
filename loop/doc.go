// Package loop is the agent loop of pi: LLM turn, tool calls, steering between
// turns, follow-ups at the end. It knows no broker and no provider: a [Model]
// streams one answer, a [Tool] runs one call, and [Run] turns a history and
// some prompts into a stream of [Event]s.
//
//	for ev, err := range loop.Run(ctx, cfg, history, prompt) {
//		...
//	}
//
// The run happens while the sequence is read, in the reader's goroutine; only
// tools have goroutines of their own. The package keeps no state between runs:
// what a run adds is in its events, and [Transcript] adds them up. [Agent] is
// the same with a memory and queues, for programs that embed the loop.
//
// # A run
//
// A run is a list of turns, a turn one answer and the calls in it. Steering is
// polled before the first answer and after each turn; its messages open the
// next turn and never skip a call, unless [Config.Interrupt] says so. When
// there is nothing to answer, follow-ups are polled, and without one the run
// ends. Calls of one answer run side by side; their ends come as they happen,
// their results in the order of the calls.
//
// # What can go wrong
//
// The model and the tools cannot break a run. An error or a panic around a
// call is the call's error result. A request that fails is repeated by the
// [RetryPolicy], each time announced by an [AutoRetryStart]; what remains is an
// answer with [StopError]. A queue or a conversion that fails ends the run with
// such an answer too. Arguments that are cut, are no JSON or don't fit the
// tool's schema are never run: the model is told why, and after three answers
// of nothing else the run ends.
//
// Ending the context aborts: the request is given up, the calls that run are
// asked to stop, no other starts, nothing is polled, and the events still end
// in order. Breaking off the iteration releases everything without events.
//
// # After a crash
//
// The events of a run that was cut anywhere add up to an [OpenRun], and
// [Resume] goes on with it: finished calls keep their results, a half-streamed
// answer is asked for again, and a call whose outcome nobody knows is run again
// only if its tool is idempotent.
//
// The semantics are those of pi 0.73.1 (packages @mariozechner/pi-agent-core
// and pi-ai), replayed from recordings by loop/looptest; where pi is wrong the
// better behaviour is pinned there.
package loop
