package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
)

// Causes that end the following of a prompt; the prompt itself runs on.
var (
	errInterrupted = &codedError{code: exitInterrupted, message: "interrupted"}
	errTimedOut    = &codedError{code: exitTimeout, message: "--timeout passed"}
)

type promptFlags struct {
	inputFlags
	session, agent, model, thinking string
	parent                          string
	limits                          []string
	detach, json                    bool
	abortOnInterrupt                bool
	showThinking                    bool
	timeout                         time.Duration
}

// thinkingLevels are those that an input may ask for.
var thinkingLevels = []string{"off", "minimal", "low", "medium", "high", "xhigh"}

func (a *app) promptCommand() *cobra.Command {
	var f promptFlags
	cmd := &cobra.Command{
		Use:   "prompt [flags] [TEXT | @FILE | -]...",
		Short: "Ask an agent, watch it, and exit by the outcome",
		Long: `prompt asks an agent and shows what it does until the prompt is settled. The
answer streams to stdout. The exit code is the outcome's; see pi-cli exit-codes.

` + inputHelp + `

Ctrl-C leaves the prompt running and says how to watch and how to stop it; with
--abort-on-interrupt it aborts the run, and a second Ctrl-C leaves.`,
		Example: `  pi-cli prompt "which files have no tests?"
  git diff | pi-cli prompt review this: -
  pi-cli prompt --session web-7 --image shot.png what is wrong here
  pi-cli prompt --detach @task.md        # prints SESSION and SEQUENCE`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.prompt(cmd.Context(), &f, args, cmd.Flags().Changed("session"))
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.session, "session", "", "session to talk to (default a new one)")
	flags.StringVar(&f.agent, "agent", "", "agent profile of the worker")
	flags.StringVar(&f.model, "model", "", "model, one that the profile allows")
	flags.StringVar(&f.thinking, "thinking", "", "thinking level: "+strings.Join(thinkingLevels, ", "))
	flags.StringVar(&f.parent, "parent", "", "run above this prompt, SESSION or SESSION/SEQUENCE: what aborts it aborts this")
	flags.StringSliceVar(&f.limits, "limit", nil, "lower a limit of the profile, NAME=VALUE: "+strings.Join(limitNames(), ", ")+"; may be repeated")
	flags.BoolVarP(&f.detach, "detach", "d", false, "do not wait: print session and sequence")
	flags.BoolVar(&f.json, "json", false, "print pi's events, one JSON a line; with --detach the receipt")
	flags.BoolVar(&f.showThinking, "show-thinking", false, "show the model's reasoning on stderr")
	flags.BoolVar(&f.abortOnInterrupt, "abort-on-interrupt", false, "the first Ctrl-C aborts the run")
	flags.DurationVar(&f.timeout, "timeout", 0, "leave after this time with code 124, the prompt runs on (0 is never)")
	return cmd
}

func (a *app) prompt(ctx context.Context, f *promptFlags, args []string, named bool) error {
	// A name that was given and is empty is a variable that a script forgot to
	// set: a new session each time is not what it wants.
	if named {
		if _, err := client.ParseSession(f.session); err != nil {
			return err
		}
	}
	if f.thinking != "" && !slices.Contains(thinkingLevels, f.thinking) {
		return usageErrorf("--thinking must be one of %s, not %q", strings.Join(thinkingLevels, ", "), f.thinking)
	}
	var parent *client.Parent
	if f.parent != "" {
		var err error
		if parent, err = client.ParseParent(f.parent); err != nil {
			return usageErrorf("--parent: %v", err)
		}
	}
	limits, err := parseLimits(f.limits)
	if err != nil {
		return err
	}
	msg, err := a.message(args, &f.inputFlags)
	if err != nil {
		return err
	}
	c, closeAll, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	receipt, err := a.publish(ctx, c, msg, f.session, &client.InputOptions{
		ID: f.id, Agent: f.agent, Model: f.model, ThinkingLevel: f.thinking, Parent: parent, Limits: limits,
	})
	if err != nil {
		return err
	}
	if f.detach {
		return a.printReceipt(receipt, f.json)
	}
	return a.follow(ctx, c, receipt, f)
}

// publish sends the prompt. An interrupt here ends the command: nobody knows
// then whether the broker has the prompt.
func (a *app) publish(ctx context.Context, c *client.Client, msg *loop.UserMessage, session string, opts *client.InputOptions) (*client.Receipt, error) {
	ctx, stop := a.untilInterrupted(ctx, nil)
	defer stop()
	return c.Prompt(ctx, session, msg, opts)
}

// printReceipt prints what a script needs to come back.
func (a *app) printReceipt(r *client.Receipt, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(a.out).Encode(r)
	}
	_, err := fmt.Fprintf(a.out, "%s %d\n", r.Session, r.Seq)
	return err
}

// follow shows a prompt until it settles and ends with its outcome's code.
func (a *app) follow(ctx context.Context, c *client.Client, receipt *client.Receipt, f *promptFlags) error {
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, errTimedOut)
		defer cancel()
	}
	var firstInterrupt func() error
	if f.abortOnInterrupt {
		firstInterrupt = func() error {
			a.note("! aborting; Ctrl-C again leaves")
			_, err := c.Abort(ctx, receipt.Session, client.QueueKeep)
			return err
		}
	}
	ctx, stop := a.untilInterrupted(ctx, firstInterrupt)
	defer stop()
	a.note("session %s · prompt %d", receipt.Session, receipt.Seq)

	opts := a.renderOptions()
	opts.Thinking, opts.SkipUsers = f.showThinking, 1
	p := a.printer(opts, f.json, false)
	defer p.Close()
	p.Status("… waiting for a worker")
	var result client.Result
	for ev, err := range c.Follow(ctx, receipt) {
		if err != nil {
			p.Close()
			return a.leave(ctx, err, receipt)
		}
		if err := p.Print(ev); err != nil {
			return err
		}
		if ev.Event != nil {
			result.Apply(ev.Event)
		}
	}
	return outcomeError(result.Outcome)
}

// outcomeError is the end of a command that showed a settled prompt: the
// renderer has said why already.
func outcomeError(o loop.Outcome) error {
	if code := codeOfOutcome(o); code != exitOK {
		return quietExit(code)
	}
	return nil
}

// leave ends the watching of a prompt that has not settled, with a hint.
func (a *app) leave(ctx context.Context, err error, r *client.Receipt) error {
	hint := fmt.Sprintf("watch: pi-cli tail %s   stop: pi-cli abort %s", r.Session, r.Session)
	cause := context.Cause(ctx)
	if errors.Is(cause, errInterrupted) || errors.Is(cause, errTimedOut) {
		a.complain(fmt.Errorf("%w; the prompt runs on", cause))
		a.note("%s", hint)
		return quietExit(codeOf(cause))
	}
	a.complain(err)
	a.note("the prompt may still run; %s", hint)
	return quietExit(codeOf(err))
}
