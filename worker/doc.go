// Package worker claims sessions and runs their prompts.
//
//	w, err := worker.New(ctx, worker.Config{
//		NATS: nc,
//		Agent: func(ctx context.Context, req worker.AgentRequest) (*worker.Agent, error) {
//			return &worker.Agent{Model: model, Tools: tools}, nil
//		},
//	})
//	if err != nil {
//		return err
//	}
//	return w.Run(ctx) // until ctx ends, then hands over
//
// # What happens to a session
//
// A bell in AGENT_BELL says that a session has something to do; whoever holds
// the un-acked bell owns the session. The owner folds the log, appends
// session_claimed (from there on nobody else can append), goes on with a run
// that another worker left open, then takes one input after the other from
// AGENT_INBOX until there is none, and removes the bell.
//
// A prompt becomes a run. What comes in meanwhile is read where the loop polls
// for it: steers after each turn, follow-ups when the run would stop. Steers
// and follow-ups that find no run are prompts. Inputs that wait are taken in
// the order in which the inbox stored them, whatever their kind.
//
// An abort ends the run that was going on when it was stored, and no other: an
// abort that the inbox had before a prompt, or that is found while no run is
// open, has no effect but the one on the queue. With "drop" and "return" every
// input that was stored before the abort and is not delivered yet is answered
// with input_returned.
//
// # What is promised
//
// Each input has one outcome, which is an event: delivered (the record with
// its message consumes it), returned (input_returned), or dead-lettered
// (input_returned and a message in AGENT_DLQ). Each prompt has exactly one
// agent_settled, the last of its events. The broker has acknowledged every
// event that led to a model request or to a tool call before that begins.
//
// A worker that is told to stop (the end of Run's context) claims no more,
// lets turns end within Config.Grace, and hands what is left to other workers
// at once. A worker that is killed is followed by another one after AckWait.
// Both ways the run goes on where the log ends.
package worker
