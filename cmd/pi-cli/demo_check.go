package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
)

// evidence is what the log says of the demo.
type evidence struct {
	types    map[string]int // events by type
	consumed map[client.InputRef]int
	calls    map[string]int // results by tool call
	failed   int            // results that are errors
	workers  []string       // that claimed the session
	last     loop.Event
	order    recordOrder
}

// recordOrder checks that the records' numbers are dense.
type recordOrder struct {
	seq, number, sub   uint64 // of the record before
	records, ephemeral int
	gaps               []string
}

// gather reads the whole log, as it is stored.
func (d *demo) gather(ctx context.Context) (*evidence, error) {
	e := &evidence{types: map[string]int{}, consumed: map[client.InputRef]int{}, calls: map[string]int{}}
	for ev, err := range d.client.Tail(ctx, demoSession, &client.TailOptions{NoFollow: true, Wire: true}) {
		if err != nil {
			return nil, err
		}
		e.order.see(ev)
		for _, in := range ev.Inputs {
			e.consumed[in]++
		}
		if ev.Event != nil {
			e.see(ev.Event)
		}
	}
	return e, nil
}

func (o *recordOrder) see(ev *client.Event) {
	if ev.Gap != nil {
		o.gaps = append(o.gaps, fmt.Sprintf("sequences %d to %d are gone", ev.Gap.From, ev.Gap.To))
		return
	}
	if ev.Seq == o.seq {
		return
	}
	number, sub := o.number+1, uint64(0)
	if ev.Sub > 0 {
		number, sub = o.number, o.sub+1
		o.ephemeral++
	}
	if ev.Number != number || ev.Sub != sub {
		o.gaps = append(o.gaps, fmt.Sprintf("record %d.%d after %d.%d", ev.Number, ev.Sub, o.number, o.sub))
	}
	o.records++
	o.seq, o.number, o.sub = ev.Seq, ev.Number, ev.Sub
}

func (e *evidence) see(ev loop.Event) {
	e.last = ev
	e.types[ev.EventType()]++
	switch v := ev.(type) {
	case *loop.ToolExecutionEnd:
		e.calls[v.ToolCallID]++
		if v.IsError {
			e.failed++
		}
	case *loop.SessionClaimed:
		if !slices.Contains(e.workers, v.Worker) {
			e.workers = append(e.workers, v.Worker)
		}
	}
}

// events is the number of all events.
func (e *evidence) events() int {
	n := 0
	for _, of := range e.types {
		n += of
	}
	return n
}

// delivered counts the inputs of a kind.
func (e *evidence) delivered(kind client.Kind) int {
	n := 0
	for in := range e.consumed {
		if in.Kind == kind {
			n++
		}
	}
	return n
}

// doubles lists what happened twice and must not.
func (e *evidence) doubles() []string {
	var list []string
	for in, n := range e.consumed {
		if n > 1 {
			list = append(list, fmt.Sprintf("%s %d consumed %d times", in.Kind, in.Seq, n))
		}
	}
	for id, n := range e.calls {
		if n > 1 {
			list = append(list, fmt.Sprintf("tool call %s ended %d times", id, n))
		}
	}
	return list
}

// settled says how the log ends; ok is false if that is not a settled prompt.
func (e *evidence) settled() (outcome loop.Outcome, ok bool) {
	last, ok := e.last.(*loop.AgentSettled)
	if !ok {
		return "unknown", false
	}
	return last.Outcome, true
}

// check is one line of the report.
type check struct {
	name string
	seen string
	ok   bool
	want string
}

// checks compare what was seen with what the demo promises.
func (e *evidence) checks() []check {
	outcome, last := e.settled()
	started, ended := e.types["tool_execution_start"], e.types["tool_execution_end"]
	return []check{
		{"records", fmt.Sprintf("%d (%d with deltas only)", e.order.records, e.order.ephemeral), e.order.records > 0, "some"},
		atLeast("events", e.events(), 1),
		atLeast("turns", e.types["turn_start"], 3),
		{"tool calls", fmt.Sprintf("%d, %d results, %d errors", started, ended, e.failed), started >= 2 && started == ended, "2 or more, each with a result"},
		once("prompts delivered", e.delivered(client.KindPrompt)),
		once("steers delivered", e.delivered(client.KindSteer)),
		once("follow-ups delivered", e.delivered(client.KindFollowUp)),
		{"claims", fmt.Sprintf("%d, by %s", e.types["session_claimed"], strings.Join(e.workers, " and ")), len(e.workers) == 2, "by both workers"},
		atLeast("resumes", e.types["run_resumed"], 1),
		atLeast("discarded messages", e.types["message_discarded"], 1),
		once("agent_start", e.types["agent_start"]),
		once("agent_end", e.types["agent_end"]),
		{"agent_settled", fmt.Sprintf("%d, last in the log: %t", e.types["agent_settled"], last), e.types["agent_settled"] == 1 && last, "1, last"},
		{"outcome", string(outcome), outcome == loop.OutcomeCompleted, "completed"},
		none("gaps in the numbers", e.order.gaps),
		none("doubles", e.doubles()),
	}
}

func atLeast(name string, n, least int) check {
	return check{name, fmt.Sprint(n), n >= least, fmt.Sprintf("%d or more", least)}
}

func once(name string, n int) check { return check{name, fmt.Sprint(n), n == 1, "1"} }

func none(name string, list []string) check {
	return check{name, strings.Join(append([]string{fmt.Sprint(len(list))}, list...), "; "), len(list) == 0, "0"}
}

// report prints the evidence on stdout and says whether all of it holds.
func (d *demo) report(ctx context.Context) (bool, error) {
	e, err := d.gather(ctx)
	if err != nil {
		return false, err
	}
	all := true
	fmt.Fprintf(d.app.out, "\nWhat the log of session %q says:\n", demoSession)
	tw := tabwriter.NewWriter(d.app.out, 0, 0, 2, ' ', 0)
	checks := e.checks()
	if d.flags.model.scripted {
		// A real model may call a tool wrongly; the scripted one does not.
		checks = append(checks, check{"tool errors", fmt.Sprint(e.failed), e.failed == 0, "0"})
	}
	for _, c := range checks {
		verdict := "ok"
		if !c.ok {
			verdict, all = "NOT ok, wanted "+c.want, false
		}
		fmt.Fprintf(tw, "  %s\t%s\t%s\n", c.name, c.seen, verdict)
	}
	if err := tw.Flush(); err != nil {
		return false, fmt.Errorf("writing to standard output: %w", err)
	}
	model := "a scripted model"
	if !d.flags.model.scripted {
		model = d.flags.model.name
	}
	if all {
		fmt.Fprintf(d.app.out, "demo: ok: one prompt, one worker killed, one outcome, with %s\n", model)
	}
	return all, nil
}
