package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
)

func (a *app) removeCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm --yes SESSION...",
		Short: "Delete all of a session for good",
		Long: `rm deletes the session's inputs, log, dead letters, summary and payloads. Nothing
brings them back, so it wants --yes. A worker that is at the session stops.`,
		Args:              sessionAndText,
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return usageErrorf("rm deletes for good: say --yes")
			}
			for _, id := range args {
				if _, err := client.ParseSession(id); err != nil {
					return err
				}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				for _, id := range args {
					if err := c.Remove(ctx, id); err != nil {
						return err
					}
					a.note("session %s removed", id)
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, delete it")
	return cmd
}
