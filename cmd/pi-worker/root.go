package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/config"
)

const rootLong = `pi-worker claims sessions from NATS JetStream and runs their prompts: it asks
the model, calls tools, takes steers and follow-ups, and publishes every event.

  pi-worker dev                      a NATS of its own, for a first look
  pi-worker                          join the NATS of the configuration
  pi-worker config                   effective values and where they come from

SIGTERM lets turns end within --grace, then hands the sessions to other
workers. A second signal kills.`

func newRoot(out, errOut io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "pi-worker",
		Short:         "Run agents for sessions in NATS JetStream",
		Long:          rootLong + "\n\n" + exitCodesHelp(),
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,

		SuggestionsMinimumDistance: 2,
	}
	// Not SetVersionTemplate: it links text/template, which keeps every exported
	// method of every type in the binary (61.0 MiB in place of 39.6).
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	config.AddFlags(root.PersistentFlags(), config.ForWorker)
	runner := runCommand(errOut)
	root.RunE = runner.RunE
	root.Flags().AddFlagSet(runner.Flags())
	root.AddCommand(runner, devCommand(out, errOut), configCommand(out), toolsCommand(out, errOut), healthcheckCommand(out))
	return root
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return usageError{fmt.Errorf("no such command %q%s", args[0], hint)}
	}
	return usageError{fmt.Errorf("%s takes no arguments; see %[1]s --help", cmd.CommandPath())}
}

// load reads the configuration with the command's flags.
func load(cmd *cobra.Command) (*config.Config, error) {
	cfg, err := config.Load(cmd.Flags())
	if err != nil {
		return nil, usageError{err}
	}
	return cfg, nil
}

// version is what the Go toolchain noted in the binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && !strings.Contains(v, s.Value[:min(12, len(s.Value))]):
			v += " " + s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true" && !strings.Contains(v, "dirty"):
			v += " modified"
		}
	}
	return v + " " + info.GoVersion
}
