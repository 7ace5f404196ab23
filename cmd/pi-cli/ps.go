package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
)

func (a *app) psCommand() *cobra.Command {
	var asJSON bool
	var sort string
	var states []string
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the fleet's sessions: state, worker, turn, age",
		Long: `ps lists every session that a worker has told of. AGE is the time since the
last progress. A session is lost when its worker has not been heard of for 30
seconds; another worker takes it over.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ps(cmd.Context(), asJSON, sort, states) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON a line")
	cmd.Flags().StringVar(&sort, "sort", "state", "order: "+sortNames())
	cmd.Flags().StringSliceVar(&states, "state", nil, "only sessions in these states: running, approval, waiting, idle, lost")
	return cmd
}

func (a *app) ps(ctx context.Context, asJSON bool, sort string, states []string) error {
	if _, err := inStates(nil, states); err != nil {
		return err
	}
	if err := sortSessions(nil, sort); err != nil {
		return err
	}
	c, closeAll, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, stop := a.untilInterrupted(ctx, nil)
	defer stop()
	sessions, err := c.Sessions(ctx)
	if err != nil {
		return err
	}
	if sessions, err = inStates(sessions, states); err != nil {
		return err
	}
	if err := sortSessions(sessions, sort); err != nil {
		return err
	}
	if !asJSON {
		return writeSessions(a.out, sessions, time.Now())
	}
	enc := json.NewEncoder(a.out)
	for _, s := range sessions {
		if err := enc.Encode(s); err != nil {
			return fmt.Errorf("writing to standard output: %w", err)
		}
	}
	return nil
}

// stateRank puts what needs a look first.
func stateRank(state string) int {
	rank := slices.Index([]string{client.StateLost, client.StateRunning, client.StateApproval, client.StateWaiting, client.StateIdle}, state)
	if rank < 0 {
		return len(state)
	}
	return rank
}

func writeSessions(w io.Writer, sessions []*client.SessionInfo, now time.Time) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SESSION\tSTATE\tWORKER\tTURN\tTOOL\tAGE\tLAST\tMODEL\tCOST\tPARENT")
	for _, s := range sessions {
		cost := "-"
		if s.Cost > 0 {
			cost = fmt.Sprintf("$%.4f", s.Cost)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Session, s.State, dash(s.Worker), s.Turn, dash(s.Tool),
			ageOf(now, s.Updated), dash(string(s.Outcome)), dash(safeLine(s.Model, 30)), cost, dash(s.Parent))
	}
	return tw.Flush()
}

func dash(s string) string { return cmp.Or(safeLine(s, 40), "-") }

// ageOf is how long ago something was, "-" if it was never.
func ageOf(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return age(now.Sub(then))
}

// age is a duration in its largest unit.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// completeSessions offers the sessions' names to the shell.
func (a *app) completeSessions(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	a.server.connectTimeout = min(a.server.connectTimeout, time.Second)
	c, closeAll, err := a.connect(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer closeAll()
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	sessions, err := c.Sessions(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range sessions {
		names = append(names, s.Session+"\t"+s.State)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
