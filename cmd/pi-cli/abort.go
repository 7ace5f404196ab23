package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
)

func (a *app) abortCommand() *cobra.Command {
	var queue string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "abort [flags] SESSION",
		Short: "Stop a session's run",
		Long: `abort stops the session's run within milliseconds, and for certain. --queue says
what becomes of the prompts, steers and follow-ups that wait: keep them for next,
drop them, or return them (their texts come back in input_returned events).`,
		Args:              sessionArg,
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.abort(cmd.Context(), args[0], client.Queue(queue), asJSON)
		},
	}
	cmd.Flags().StringVar(&queue, "queue", string(client.QueueKeep), "what to do with waiting inputs: keep, drop or return")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the receipt as JSON on stdout")
	_ = cmd.RegisterFlagCompletionFunc("queue", cobra.FixedCompletions([]string{"keep", "drop", "return"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) abort(ctx context.Context, session string, queue client.Queue, asJSON bool) error {
	switch queue {
	case client.QueueKeep, client.QueueDrop, client.QueueReturn:
	default:
		return usageErrorf("--queue must be keep, drop or return, not %q", string(queue))
	}
	if _, err := client.ParseSession(session); err != nil {
		return err
	}
	c, closeAll, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, stop := a.untilInterrupted(ctx, nil)
	defer stop()
	receipt, err := c.Abort(ctx, session, queue)
	if err != nil {
		return err
	}
	return a.acknowledge(receipt, asJSON)
}
