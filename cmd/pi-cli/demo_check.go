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
	records, ephemeral, events int
	turns, calls, results      int
	claims, resumes, discarded int
	starts, ends, settled      int
	consumed                   map[client.Kind]int
	workers                    []string
	outcome                    loop.Outcome
	ended                      map[string]int // tool results by call
	gaps, doubles              []string
	seq, number, sub           uint64
	inputs                     map[client.InputRef]bool
	lastType                   string
}

// gather reads the whole log, as it is stored.
func (d *demo) gather(ctx context.Context) (*evidence, error) {
	e := &evidence{consumed: map[client.Kind]int{}, ended: map[string]int{}, inputs: map[client.InputRef]bool{}}
	for ev, err := range d.client.Tail(ctx, demoSession, &client.TailOptions{NoFollow: true, Wire: true}) {
		if err != nil {
			return nil, err
		}
		e.record(ev)
		if ev.Event != nil {
			e.event(ev.Event)
		}
	}
	return e, nil
}

// record checks that the numbers are dense and that inputs are consumed once.
func (e *evidence) record(ev *client.Event) {
	if ev.Gap != nil {
		e.gaps = append(e.gaps, fmt.Sprintf("sequences %d to %d are gone", ev.Gap.From, ev.Gap.To))
		return
	}
	for _, in := range ev.Inputs {
		if e.inputs[in] {
			e.doubles = append(e.doubles, fmt.Sprintf("%s %d consumed twice", in.Kind, in.Seq))
		}
		e.inputs[in] = true
		e.consumed[in.Kind]++
	}
	if ev.Seq == e.seq {
		return
	}
	wantNumber, wantSub := e.number+1, uint64(0)
	if ev.Sub > 0 {
		wantNumber, wantSub = e.number, e.sub+1
		e.ephemeral++
	}
	if ev.Number != wantNumber || ev.Sub != wantSub {
		e.gaps = append(e.gaps, fmt.Sprintf("record %d.%d after %d.%d", ev.Number, ev.Sub, e.number, e.sub))
	}
	e.records++
	e.seq, e.number, e.sub = ev.Seq, ev.Number, ev.Sub
}

func (e *evidence) event(ev loop.Event) {
	e.events++
	e.lastType = ev.EventType()
	switch v := ev.(type) {
	case *loop.TurnStart:
		e.turns++
	case *loop.AgentStart:
		e.starts++
	case *loop.AgentEnd:
		e.ends++
	case *loop.ToolExecutionStart:
		e.calls++
	case *loop.ToolExecutionEnd:
		e.results++
		if e.ended[v.ToolCallID]++; e.ended[v.ToolCallID] > 1 {
			e.doubles = append(e.doubles, "tool call "+v.ToolCallID+" ended twice")
		}
	case *loop.SessionClaimed:
		e.claims++
		if !slices.Contains(e.workers, v.Worker) {
			e.workers = append(e.workers, v.Worker)
		}
	case *loop.RunResumed:
		e.resumes++
	case *loop.MessageDiscarded:
		e.discarded++
	case *loop.AgentSettled:
		e.settled++
		e.outcome = v.Outcome
	}
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
	count := func(name string, n int, ok bool, want string) check {
		return check{name, fmt.Sprint(n), ok, want}
	}
	once := func(name string, n int) check { return count(name, n, n == 1, "1") }
	none := func(name string, list []string) check {
		return check{name, strings.Join(append([]string{fmt.Sprint(len(list))}, list...), "; "), len(list) == 0, "0"}
	}
	return []check{
		{"records", fmt.Sprintf("%d (%d of them only deltas)", e.records, e.ephemeral), e.records > 0, "some"},
		count("events", e.events, e.events > 0, "some"),
		count("turns", e.turns, e.turns >= 3, "3 or more"),
		{"tool calls", fmt.Sprintf("%d, %d results", e.calls, e.results), e.calls >= 2 && e.calls == e.results, "2 or more, each with one result"},
		once("prompts delivered", e.consumed[client.KindPrompt]),
		once("steers delivered", e.consumed[client.KindSteer]),
		once("follow-ups delivered", e.consumed[client.KindFollowUp]),
		{"claims", fmt.Sprintf("%d, by %s", e.claims, strings.Join(e.workers, " and ")), len(e.workers) == 2, "by both workers"},
		count("resumes", e.resumes, e.resumes >= 1, "1 or more"),
		count("discarded messages", e.discarded, e.discarded >= 1, "1 or more"),
		once("agent_start", e.starts),
		once("agent_end", e.ends),
		{"agent_settled", fmt.Sprintf("%d, last in the log: %v", e.settled, e.lastType == "agent_settled"), e.settled == 1 && e.lastType == "agent_settled", "1, last"},
		{"outcome", string(e.outcome), e.outcome == loop.OutcomeCompleted, "completed"},
		none("gaps in the numbers", e.gaps),
		none("doubles", e.doubles),
	}
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
	for _, c := range e.checks() {
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
