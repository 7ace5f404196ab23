package main

import (
	"context"
	"encoding/json"
	"fmt"

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
	cmd.Flags().BoolVar(&f.interrupt, "interrupt", false, "do not wait for the calls of the turn that have not begun: they are not run")
	return cmd
}

// sendFlags are those of steer and followup.
type sendFlags struct {
	inputFlags
	json, wait, interrupt bool
}

func (f *sendFlags) register(cmd *cobra.Command) {
	f.inputFlags.register(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print the receipts as JSON on stdout")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until the message is delivered, returned or dead-lettered")
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
	receipt, err := publish(c, ctx, session, msg, &client.InputOptions{ID: f.id, Interrupt: f.interrupt})
	if err != nil {
		return err
	}
	if err := a.acknowledge(receipt, f.json); err != nil || !f.wait {
		return err
	}
	return a.await(ctx, c, receipt, f.json)
}

// await waits for the fate of an input, and ends with its code.
func (a *app) await(ctx context.Context, c *client.Client, r *client.Receipt, asJSON bool) error {
	d, err := c.Await(ctx, r)
	if err != nil {
		return err
	}
	if asJSON {
		if err := json.NewEncoder(a.out).Encode(d); err != nil {
			return fmt.Errorf("writing to standard output: %w", err)
		}
	}
	switch d.Fate {
	case client.Delivered:
		a.note("%s %d delivered in turn %d", r.Kind, r.Seq, d.Turn)
		return nil
	case client.DeadLettered:
		a.note("%s %d dead-lettered; see pi-cli dlq ls %s", r.Kind, r.Seq, r.Session)
		return quietExit(exitDeadLetter)
	}
	a.note("%s %d returned (%s)", r.Kind, r.Seq, d.Reason)
	return quietExit(exitAborted)
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
