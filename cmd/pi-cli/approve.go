package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
)

// approvalCommands are approve and deny.
func (a *app) approvalCommands() []*cobra.Command {
	return []*cobra.Command{
		a.decideCommand(true, "approve", "Allow a tool call that waits for it"),
		a.decideCommand(false, "deny", "Refuse a tool call that waits for approval"),
	}
}

// decideFlags are those of approve and deny.
type decideFlags struct {
	reason, by string
	wait       time.Duration
	json       bool
}

func (a *app) decideCommand(approve bool, name, short string) *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use:   name + " [flags] SESSION [CALL]",
		Short: short,
		Long: short + `.

CALL is the id of the tool call, or the key of the request. Without CALL the
session's requests are listed. The first answer counts: who comes second is told
who was first, with code 1. The answer is stored, and counts also if the worker
that asked is gone.`,
		Args: func(cmd *cobra.Command, args []string) error {
			return asUsage(cmd, cobra.RangeArgs(1, 2)(cmd, args), args)
		},
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.decide(cmd.Context(), args, approve, &f)
		},
	}
	cmd.Flags().StringVar(&f.reason, "reason", "", "why; the model reads it when the call is refused")
	cmd.Flags().StringVar(&f.by, "by", whoAmI(), "who answers")
	cmd.Flags().DurationVar(&f.wait, "wait", 15*time.Second, "how long to wait for a worker to take the answer")
	cmd.Flags().BoolVar(&f.json, "json", false, "list requests as JSON on stdout")
	return cmd
}

// whoAmI names the person at this terminal.
func whoAmI() string {
	name := "somebody"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

func (a *app) decide(ctx context.Context, args []string, approve bool, f *decideFlags) error {
	if _, err := client.ParseSession(args[0]); err != nil {
		return err
	}
	c, closeAll, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, stop := a.untilInterrupted(ctx, nil)
	defer stop()
	if len(args) == 1 {
		return a.listApprovals(ctx, c, args[0], f.json)
	}
	waiting, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	err = c.Approve(waiting, args[0], args[1], client.Decision{Approve: approve, By: f.by, Reason: f.reason})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		a.note("the answer is stored; no worker has taken it within %s", f.wait)
		return nil
	}
	if err != nil {
		return err
	}
	a.note("the answer counts")
	return nil
}

func (a *app) listApprovals(ctx context.Context, c *client.Client, session string, asJSON bool) error {
	list, err := c.Approvals(ctx, session)
	if err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(a.out)
		enc.SetIndent("", "  ")
		if list == nil {
			list = []*client.PendingApproval{}
		}
		return enc.Encode(list)
	}
	if len(list) == 0 {
		a.note("nothing waits for approval in session %s", session)
		return nil
	}
	tw := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "CALL\tTOOL\tUNTIL\tARGUMENTS")
	for _, p := range list {
		until := "-"
		if p.Deadline != 0 {
			until = time.UnixMilli(p.Deadline).Format(time.RFC3339)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", safeLine(p.Call, 0), safeLine(p.Tool, 0), until, safeLine(string(p.Args), 200))
	}
	return tw.Flush()
}
