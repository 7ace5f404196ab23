package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// app is one invocation of pi-cli.
type app struct {
	streams
	server serverFlags
	quiet  bool
	// noted counts the lines of note, which come from other goroutines too: a
	// renderer that sees it change knows that its screen is disturbed.
	noted atomic.Int64
}

const rootLong = `pi-cli prompts, steers and watches the agents that pi-worker runs behind a NATS.

  pi-cli demo                            see it all, nothing to install
  pi-cli prompt "fix the failing test"   ask, watch, and exit by the outcome
  pi-cli prompt --detach @task.md        ask and go away
  pi-cli tail SESSION                    watch; again, later, from anywhere
  pi-cli steer SESSION "not that file"   correct a run while it works

The answer goes to stdout, everything else to stderr. Colour is used on a
terminal only, and never when NO_COLOR is set.`

// rootCommand builds the whole tree.
func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:               "pi-cli",
		Short:             "Prompt, steer and watch agents behind a NATS",
		Long:              rootLong + "\n\n" + exitCodesHelp(),
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              noArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate("pi-cli {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageErrorf("%v; see %s --help", err, cmd.CommandPath())
	})
	a.server.register(root.PersistentFlags())
	root.PersistentFlags().BoolVarP(&a.quiet, "quiet", "q", false, "no progress on stderr, only errors")
	root.AddCommand(
		a.promptCommand(), a.tailCommand(), a.steerCommand(), a.followUpCommand(),
		a.abortCommand(), a.showCommand(), a.psCommand(), a.queueCommand(), a.removeCommand(), a.dlqCommand(), a.exitCodesCommand(),
	)
	root.AddCommand(a.approvalCommands()...)
	root.AddCommand(a.demoCommands()...)
	root.AddCommand(a.operatingCommands()...)
	return root
}

// complain prints an error as one line.
func (a *app) complain(err error) {
	fmt.Fprintf(a.err, "pi-cli: %s\n", safeLine(sentence(err), 0))
}

// note prints a line about what is going on, unless --quiet.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		a.noted.Add(1)
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// noArgs, exactArgs and minArgs are cobra's, as usage errors.
func noArgs(cmd *cobra.Command, args []string) error {
	return asUsage(cmd, cobra.NoArgs(cmd, args), args)
}

func sessionArg(cmd *cobra.Command, args []string) error {
	return asUsage(cmd, cobra.ExactArgs(1)(cmd, args), args)
}

func sessionAndText(cmd *cobra.Command, args []string) error {
	return asUsage(cmd, cobra.MinimumNArgs(1)(cmd, args), args)
}

func asUsage(cmd *cobra.Command, err error, args []string) error {
	if err == nil {
		return nil
	}
	if cmd.HasSubCommands() && len(args) > 0 {
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return usageErrorf("no such command %q%s", args[0], hint)
	}
	return usageErrorf("usage: %s", cmd.UseLine())
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
	var revision, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = ", modified"
			}
		}
	}
	if revision != "" {
		v += " (" + revision + dirty + ")"
	}
	return v + " " + info.GoVersion
}

// isTerminal says whether a person is at the other end of a stream.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalSize is a terminal's size, 0 and 0 for anything else.
func terminalSize(w io.Writer) (columns, rows int) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return columns, rows
}

// reason is what the operating system said, without the path and the call.
func reason(err error) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err.Error()
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}
