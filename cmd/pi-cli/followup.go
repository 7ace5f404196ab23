package main

import (
	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
)

func (a *app) followUpCommand() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:     "followup [flags] SESSION [TEXT | @FILE | -]...",
		Aliases: []string{"follow-up"},
		Short:   "Give a run more to do when it would end",
		Long: `followup gives the session's run another message when it has nothing else to
do. If no run is open, the message becomes the next prompt.

` + inputHelp,
		Example:           `  pi-cli followup web-7 "then write the changelog"`,
		Args:              sessionAndText,
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.send(cmd.Context(), &f, args, (*client.Client).FollowUp)
		},
	}
	f.register(cmd)
	return cmd
}
