package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
)

type tailFlags struct {
	from          string
	follow        bool
	forever, wait bool
	json, wire    bool
	showThinking  bool
}

func (a *app) tailCommand() *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail [flags] SESSION",
		Short: "Watch a session, from any point, until it settles",
		Long: `tail shows what a session does. It begins with the last run and ends when the
session has settled and no prompt waits; the exit code is the last outcome's, so
0 always means that a prompt settled well. With --follow=false it ends where the
log ends, with code 11 if the session is in the middle of a run, or has not begun one.
What retention or a purge has removed is told on stderr.

--from is one of
  last       the open run, or the last one (default)
  start      the whole log
  now        only what comes
  SEQUENCE   a stream sequence of the log, included
  TIME       2006-01-02T15:04:05Z (RFC 3339), or a duration ago, such as 10m`,
		Example: `  pi-cli tail web-7
  pi-cli tail web-7 --from start --json | jq -r .type
  pi-cli tail web-7 --from now --forever`,
		Args:              sessionArg,
		ValidArgsFunction: a.completeSessions,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.tail(cmd.Context(), &f, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "last", "where to begin: last, start, now, a sequence, a time or a duration ago")
	flags.BoolVarP(&f.follow, "follow", "f", true, "go on with what happens; --follow=false ends at the log's end")
	flags.BoolVar(&f.forever, "forever", false, "go on after the session has settled, until Ctrl-C")
	flags.BoolVar(&f.wait, "wait", false, "wait for a session that does not exist yet")
	flags.BoolVar(&f.json, "json", false, "print pi's events, one JSON a line")
	flags.BoolVar(&f.wire, "wire", false, "print events as they are stored, without what pi repeats")
	flags.BoolVar(&f.showThinking, "show-thinking", false, "show the model's reasoning on stderr")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{"last", "start", "now"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) tail(ctx context.Context, f *tailFlags, session string) error {
	if f.json && f.wire {
		return usageErrorf("--json and --wire exclude each other")
	}
	opts, err := parseFrom(f.from, time.Now())
	if err != nil {
		return err
	}
	opts.Wire, opts.Wait, opts.NoFollow = f.wire, f.wait, !f.follow
	opts.UntilSettled = f.follow && !f.forever
	c, closeAll, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, stop := a.untilInterrupted(ctx, nil)
	defer stop()
	return a.showTail(ctx, c, session, opts, f)
}

// showTail prints the events and ends with the last outcome.
func (a *app) showTail(ctx context.Context, c *client.Client, session string, opts *client.TailOptions, f *tailFlags) error {
	ropts := a.renderOptions()
	ropts.Thinking = f.showThinking
	p := a.printer(ropts, f.json, f.wire)
	defer p.Close()
	var state tailState
	for ev, err := range c.Tail(ctx, session, opts) {
		if err != nil {
			p.Close()
			if errors.Is(err, errInterrupted) {
				return quietExit(exitInterrupted)
			}
			return err
		}
		if err := p.Print(ev); err != nil {
			return err
		}
		state.note(ev.Event)
	}
	if !state.open && state.outcome == "" {
		if err := a.standing(ctx, c, session, &state); err != nil {
			return err
		}
	}
	if state.open {
		return quietExit(exitUnsettled)
	}
	return outcomeError(state.outcome)
}

// standing is the session's state for a tail that saw nothing of it: by the
// last run, or, if the log is gone, by what ps shows.
func (a *app) standing(ctx context.Context, c *client.Client, session string, state *tailState) error {
	for ev, err := range c.Tail(ctx, session, &client.TailOptions{LastRun: true, NoFollow: true, Wire: true}) {
		if err != nil {
			return err
		}
		state.note(ev.Event)
	}
	if state.open || state.outcome != "" {
		return nil
	}
	state.open = true // a prompt that nobody has begun
	all, err := c.Sessions(ctx)
	for _, info := range all {
		if info.Session == session && info.Outcome != "" {
			state.open, state.outcome = info.State != client.StateIdle, info.Outcome
		}
	}
	return err
}

// tailState is what the events said of the session's state so far.
type tailState struct {
	open    bool
	outcome loop.Outcome
}

func (s *tailState) note(ev loop.Event) {
	switch e := ev.(type) {
	case *loop.AgentSettled:
		s.open, s.outcome = false, e.Outcome
	case *loop.AgentStart, *loop.TurnStart, *loop.MessageStart, *loop.RunResumed:
		s.open = true
	}
}

// parseFrom reads the value of --from.
func parseFrom(s string, now time.Time) (*client.TailOptions, error) {
	switch s {
	case "last", "":
		return &client.TailOptions{LastRun: true}, nil
	case "start":
		return &client.TailOptions{}, nil
	case "now":
		return &client.TailOptions{Now: true}, nil
	}
	if seq, err := strconv.ParseUint(s, 10, 64); err == nil {
		return &client.TailOptions{Seq: seq}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return &client.TailOptions{Time: t}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return &client.TailOptions{Time: now.Add(-d)}, nil
	}
	return nil, usageErrorf("--from %q is no last, start, now, sequence, RFC 3339 time or duration", s)
}
