package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// verdict is how a check came out.
type verdict string

const (
	good  verdict = "ok"
	doubt verdict = "note" // works, and is worth knowing
	bad   verdict = "FAIL"
)

// report gathers the lines of doctor.
type report struct {
	w      io.Writer
	failed int
}

// line prints one check; advice says what to do, "" is nothing.
func (r *report) line(v verdict, what, found, advice string) {
	if v == bad {
		r.failed++
	}
	fmt.Fprintf(r.w, "%-4s  %-12s  %s\n", v, what, safeLine(found, 0))
	if advice != "" {
		fmt.Fprintf(r.w, "%-4s  %-12s  → %s\n", "", "", advice)
	}
}

// doctorOptions are the flags of doctor.
type doctorOptions struct {
	monitor string
	baseURL string
	model   string
	keyEnv  string
	noNATS  bool
}

func (a *app) doctorCommand() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the broker, its streams, your permissions, and a model endpoint",
		Long: `doctor tries what a worker and a client need, and says for each whether it is
ok or what to do. It changes nothing: what it publishes is refused by the
streams on purpose.

With --base-url it also asks an OpenAI-compatible endpoint a few short
questions, which costs a few hundred tokens, and names the settings that the
endpoint wants.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), o) },
	}
	cmd.Flags().StringVar(&o.monitor, "monitor", "", "the broker's monitoring URL, such as http://127.0.0.1:8222: shows when it syncs to disk")
	cmd.Flags().StringVar(&o.baseURL, "base-url", "", "OpenAI-compatible endpoint to try, with /v1")
	cmd.Flags().StringVar(&o.model, "model", "gpt-5-mini", "model to ask there")
	cmd.Flags().StringVar(&o.keyEnv, "api-key-env", "OPENAI_API_KEY", "variable that holds the key")
	cmd.Flags().BoolVar(&o.noNATS, "no-nats", false, "the endpoint only")
	return cmd
}

func (a *app) doctor(ctx context.Context, o doctorOptions) error {
	ctx, stop := a.untilInterrupted(ctx, nil)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	r := &report{w: a.out}
	if !o.noNATS {
		if err := a.examineBroker(ctx, r, o.monitor); err != nil {
			return err
		}
	}
	if o.baseURL != "" {
		newEndpoint(o.baseURL, o.model, a.env(o.keyEnv)).examine(ctx, r)
	}
	if r.failed > 0 {
		return &codedError{code: exitError, message: plural(r.failed, "check") + " failed"}
	}
	return nil
}
