package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
)

func (a *app) queueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "See what waits in a session, cancel, change or reorder it",
		Long: `queue shows the inputs of a session that are not delivered yet, and takes them
back, changes or moves them, by their id or sequence. Of an input that was delivered
meanwhile it says in which turn, and ends with code 12.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.queueListCommand(), a.queueRemoveCommand(), a.queueEditCommand(), a.queueMoveCommand())
	return cmd
}

func (a *app) queueListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "ls [flags] SESSION",
		Short:             "List what waits",
		Args:              sessionArg,
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				inputs, err := c.Queue(ctx, args[0])
				if err != nil {
					return err
				}
				return a.listQueue(inputs, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON a line, with the whole messages")
	return cmd
}

func (a *app) listQueue(inputs []*client.QueuedInput, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(a.out)
		for _, in := range inputs {
			if err := enc.Encode(in); err != nil {
				return fmt.Errorf("writing to standard output: %w", err)
			}
		}
		return nil
	}
	tw := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SEQ\tKIND\tID\tAGE\tTEXT")
	for _, in := range inputs {
		text := in.Malformed
		if in.Message != nil {
			text = summary(in.Message.Content)
		}
		fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t%s\n", in.Seq, in.Kind, dash(in.ID), age(time.Since(in.Time)), safeLine(text, argLimit))
	}
	return tw.Flush()
}

func (a *app) queueRemoveCommand() *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "rm [flags] SESSION ID...",
		Short: "Cancel inputs that wait",
		Long:  "rm cancels inputs by their ids or sequences. A cancelled prompt settles as aborted.",
		Args: func(cmd *cobra.Command, args []string) error {
			return asUsage(cmd, cobra.MinimumNArgs(2)(cmd, args), args)
		},
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeQueue(cmd.Context(), args[0], args[1:], patience, "cancelled", (*client.Client).Cancel)
		},
	}
	registerPatience(cmd, &patience)
	return cmd
}

func (a *app) queueEditCommand() *cobra.Command {
	var patience time.Duration
	var f inputFlags
	cmd := &cobra.Command{
		Use:   "edit [flags] SESSION ID [TEXT | @FILE | -]...",
		Short: "Put another message in the place of one that waits",
		Long: `edit changes the message of an input that waits; its id and its place stay.

` + inputHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			return asUsage(cmd, cobra.MinimumNArgs(2)(cmd, args), args)
		},
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			msg, err := a.message(args[2:], &f)
			if err != nil {
				return err
			}
			edit := func(c *client.Client, ctx context.Context, id string, target client.Target) error {
				return c.Edit(ctx, id, target, msg)
			}
			return a.changeQueue(cmd.Context(), args[0], args[1:2], patience, "edited", edit)
		},
	}
	registerPatience(cmd, &patience)
	f.registerImages(cmd)
	return cmd
}

func (a *app) queueMoveCommand() *cobra.Command {
	var patience time.Duration
	var first bool
	var before string
	cmd := &cobra.Command{
		Use:   "move [flags] SESSION ID",
		Short: "Move a prompt that waits before others",
		Long:  "move puts a waiting prompt before another one, or before all (--first). Other inputs keep their places.",
		Args: func(cmd *cobra.Command, args []string) error {
			return asUsage(cmd, cobra.ExactArgs(2)(cmd, args), args)
		},
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if first == (before != "") {
				return usageErrorf("queue move needs --first or --before ID, one of them")
			}
			move := func(c *client.Client, ctx context.Context, id string, target client.Target) error {
				if first {
					return c.Move(ctx, id, target, nil)
				}
				queue, err := c.Queue(ctx, id)
				if err != nil {
					return err
				}
				other := targetOf(queue, before)
				return c.Move(ctx, id, target, &other)
			}
			return a.changeQueue(cmd.Context(), args[0], args[1:], patience, "moved", move)
		},
	}
	registerPatience(cmd, &patience)
	cmd.Flags().BoolVar(&first, "first", false, "before all that wait")
	cmd.Flags().StringVar(&before, "before", "", "before this prompt, by its id or sequence")
	return cmd
}

func registerPatience(cmd *cobra.Command, patience *time.Duration) {
	cmd.Flags().DurationVar(patience, "timeout", 30*time.Second, "how long to wait for the answer of a worker; the change is on its way even then")
}

type changeFunc func(*client.Client, context.Context, string, client.Target) error

func (a *app) changeQueue(ctx context.Context, id string, names []string, patience time.Duration, done string, change changeFunc) error {
	if _, err := client.ParseSession(id); err != nil {
		return err
	}
	return a.withClient(ctx, func(ctx context.Context, c *client.Client) error {
		ctx, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
		defer cancel()
		queue, err := c.Queue(ctx, id)
		if err != nil {
			return err
		}
		for _, name := range names {
			err := change(c, ctx, id, targetOf(queue, name))
			if late, ok := errors.AsType[*client.AlreadyDeliveredError](err); ok {
				return &codedError{code: exitTooLate, message: fmt.Sprintf("already_delivered: %s is in turn %d of its run", name, late.Turn)}
			}
			if err != nil && errors.Is(context.Cause(ctx), errNoAnswer) {
				return errNoAnswer
			}
			if err != nil {
				return err
			}
			a.note("%s %s", name, done)
		}
		return nil
	})
}

var errNoAnswer = &codedError{code: exitTimeout, message: "no worker has answered in time; the change is accepted, and done when one comes"}

// targetOf takes a name for an id, unless it is the sequence of an input.
func targetOf(queue []*client.QueuedInput, name string) client.Target {
	seq, err := strconv.ParseUint(name, 10, 64)
	for _, in := range queue {
		if in.ID == name {
			return client.Target{ID: name}
		}
	}
	for _, in := range queue {
		if err == nil && in.Seq == seq {
			return client.Target{Seq: seq}
		}
	}
	return client.Target{ID: name}
}
