package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
)

func (a *app) steerCommand() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "steer [flags] SESSION [TEXT | @FILE | -]...",
		Short: "Correct a run while it works",
		Long: `steer puts a message into the session's run after the current turn. If no run
is open, the message becomes the next prompt.

` + inputHelp,
		Example:           `  pi-cli steer web-7 "leave the tests alone"`,
		Args:              sessionAndText,
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.send(cmd.Context(), &f, args, (*client.Client).Steer)
		},
	}
	f.register(cmd)
	return cmd
}

// sendFlags are those of steer and followup.
type sendFlags struct {
	inputFlags
	json bool
}

func (f *sendFlags) register(cmd *cobra.Command) {
	f.inputFlags.register(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print the receipt as JSON on stdout")
}

type sendFunc func(*client.Client, context.Context, string, *loop.UserMessage, *client.InputOptions) (*client.Receipt, error)

// send publishes the message of a command line to an existing session.
func (a *app) send(ctx context.Context, f *sendFlags, args []string, publish sendFunc) error {
	session := args[0]
	if _, err := client.ParseSession(session); err != nil {
		return err
	}
	msg, err := a.message(args[1:], &f.inputFlags)
	if err != nil {
		return err
	}
	c, closeAll, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, stop := a.untilInterrupted(ctx, nil)
	defer stop()
	receipt, err := publish(c, ctx, session, msg, &client.InputOptions{ID: f.id})
	if err != nil {
		return err
	}
	return a.acknowledge(receipt, f.json)
}

// acknowledge tells that the broker has an input.
func (a *app) acknowledge(r *client.Receipt, asJSON bool) error {
	if asJSON {
		return a.printReceipt(r, true)
	}
	again := ""
	if r.Duplicate {
		again = " before: nothing new was sent"
	}
	a.note("%s %d accepted for session %s%s", r.Kind, r.Seq, r.Session, again)
	return nil
}
