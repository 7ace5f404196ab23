package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
)

func (a *app) dlqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look at the dead letters, and send them again",
		Long: `A dead letter is an input that was given up: malformed, for an unknown agent, or
one whose run cost too many workers. It holds the reason and the whole input.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.dlqListCommand(), a.dlqShowCommand(), a.dlqRedriveCommand(), a.dlqRemoveCommand())
	return cmd
}

// withClient runs f with a connection, until it is interrupted.
func (a *app) withClient(ctx context.Context, f func(context.Context, *client.Client) error) error {
	c, closeAll, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, stop := a.untilInterrupted(ctx, nil)
	defer stop()
	return f(ctx, c)
}

func (a *app) dlqListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [flags] [SESSION]",
		Short: "List dead letters, of one session or of all",
		Args: func(cmd *cobra.Command, args []string) error {
			return asUsage(cmd, cobra.MaximumNArgs(1)(cmd, args), args)
		},
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := ""
			if len(args) > 0 {
				id = args[0]
				if _, err := client.ParseSession(id); err != nil {
					return err
				}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return a.listDead(ctx, c, id, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON a line, with the inputs")
	return cmd
}

func (a *app) listDead(ctx context.Context, c *client.Client, id string, asJSON bool) error {
	tw := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintln(tw, "SEQ\tSESSION\tKIND\tREASON\tATTEMPTS\tAGE\tERROR")
	}
	for d, err := range c.DeadLetters(ctx, id) {
		if err != nil {
			return err
		}
		if asJSON {
			if err := a.printDead(d); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t%d\t%s\t%s\n", d.Seq, d.Session, d.Kind, dash(d.Reason), d.Attempts,
			age(time.Since(d.Time)), safeLine(d.Error, 80))
	}
	return tw.Flush()
}

// printDead prints a letter with its input: as it is if it is JSON, otherwise
// as a string.
func (a *app) printDead(d *client.DeadLetter) error {
	input := json.RawMessage(d.Input)
	if !json.Valid(input) {
		text, err := json.Marshal(string(d.Input))
		if err != nil {
			return err
		}
		input = text
	}
	return json.NewEncoder(a.out).Encode(struct {
		*client.DeadLetter
		Input json.RawMessage `json:"input"`
	}{d, input})
}

func (a *app) dlqShowCommand() *cobra.Command {
	var asJSON, raw bool
	cmd := &cobra.Command{
		Use:   "show [flags] SEQ",
		Short: "Show a dead letter with its whole input",
		Args:  oneLetter,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLetters(cmd.Context(), args, func(ctx context.Context, c *client.Client, seq uint64) error {
				d, err := c.DeadLetter(ctx, seq)
				switch {
				case err != nil:
					return err
				case asJSON:
					return a.printDead(d)
				case raw:
					_, err = a.out.Write(d.Input)
					return err
				}
				return a.showDead(d)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as one JSON")
	cmd.Flags().BoolVar(&raw, "raw", false, "the input alone, byte by byte")
	cmd.MarkFlagsMutuallyExclusive("json", "raw")
	return cmd
}

func (a *app) showDead(d *client.DeadLetter) error {
	_, err := fmt.Fprintf(a.out, "session   %s\nkind      %s\nid        %s\ninput     %d\nreason    %s\nattempts  %d\nerror     %s\ntime      %s\n\n%s\n",
		d.Session, d.Kind, cmp.Or(safeLine(d.ID, 0), "-"), d.InputSeq, dash(d.Reason), d.Attempts, cmp.Or(safeLine(d.Error, 0), "-"),
		d.Time.UTC().Format(time.RFC3339), safeText(string(d.Input)))
	return err
}

func (a *app) dlqRedriveCommand() *cobra.Command {
	var sameID, asJSON bool
	cmd := &cobra.Command{
		Use:   "redrive [flags] SEQ...",
		Short: "Send dead letters again",
		Long: `redrive publishes the input again and removes the letter. The input is a new one,
with a new id; with --same-id it keeps its own and takes the place of the one that
was given up. A malformed input cannot be sent again: correct what dlq show --raw
prints, and publish that.`,
		Args: someLetters,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLetters(cmd.Context(), args, func(ctx context.Context, c *client.Client, seq uint64) error {
				r, err := c.Redrive(ctx, seq, sameID)
				if err != nil {
					return err
				}
				return a.acknowledge(r, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&sameID, "same-id", false, "keep the input's id")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the receipts as JSON on stdout")
	return cmd
}

func (a *app) dlqRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm SEQ...",
		Short: "Remove dead letters for good",
		Args:  someLetters,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLetters(cmd.Context(), args, func(ctx context.Context, c *client.Client, seq uint64) error {
				if err := c.DeleteDeadLetter(ctx, seq); err != nil {
					return err
				}
				a.note("dead letter %d removed", seq)
				return nil
			})
		},
	}
}

func oneLetter(cmd *cobra.Command, args []string) error {
	return asUsage(cmd, cobra.ExactArgs(1)(cmd, args), args)
}

func someLetters(cmd *cobra.Command, args []string) error {
	return asUsage(cmd, cobra.MinimumNArgs(1)(cmd, args), args)
}

// withLetters calls f for each sequence; all are read before the first call.
func (a *app) withLetters(ctx context.Context, args []string, f func(context.Context, *client.Client, uint64) error) error {
	var seqs []uint64
	for _, arg := range args {
		seq, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || seq == 0 {
			return usageErrorf("a dead letter is named by its sequence, see dlq ls; not %q", arg)
		}
		seqs = append(seqs, seq)
	}
	return a.withClient(ctx, func(ctx context.Context, c *client.Client) error {
		for _, seq := range seqs {
			if err := f(ctx, c, seq); err != nil {
				return err
			}
		}
		return nil
	})
}
