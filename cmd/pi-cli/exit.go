package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
)

// The exit codes of pi-cli. They are part of its interface: scripts tell by
// them how a prompt ended.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitFailed      = 3
	exitAborted     = 4
	exitLimit       = 5
	exitDeadLetter  = 6
	exitLost        = 7
	exitUnknown     = 8
	exitConnection  = 9
	exitRefused     = 10
	exitUnsettled   = 11
	exitTooLate     = 12
	exitTimeout     = 124
	exitInterrupted = 130
)

// exitCode is one row of the table in the help and in the README.
type exitCode struct {
	Code    int
	Name    string
	Meaning string
}

// exitCodes is the whole table, in order.
var exitCodes = []exitCode{
	{exitOK, "ok", "the prompt settled as completed, or the command did its work"},
	{exitError, "error", "something else went wrong, such as a file that cannot be written"},
	{exitUsage, "usage", "bad flags or arguments: nothing was sent"},
	{exitFailed, "failed", "the prompt settled as failed: the model or the agent gave up"},
	{exitAborted, "aborted", "the prompt was aborted, or returned from the queue"},
	{exitLimit, "limit", "the prompt ended at a limit, with what it had so far"},
	{exitDeadLetter, "dead_letter", "the prompt went to the dead letters; the reason is shown"},
	{exitLost, "lost", "the stream of events ended before the prompt settled; it may still run"},
	{exitUnknown, "unknown", "no such session, open run, queued input, waiting call, dead letter or tool output"},
	{exitConnection, "connection", "NATS is unreachable, refuses the credentials, or has no JetStream or no streams of ours"},
	{exitRefused, "refused", "the input was refused: too large, malformed, or the session's inbox is full"},
	{exitUnsettled, "unsettled", "tail --follow=false came to the log's end while a run is open, or before the first"},
	{exitTooLate, "too_late", "the input to be changed was delivered or returned already"},
	{exitTimeout, "timeout", "--timeout passed first; the prompt runs on"},
	{exitInterrupted, "interrupted", "Ctrl-C or SIGTERM; the prompt runs on"},
}

// codedError ends a command with a code of its own. An empty message says that
// everything worth saying was said.
type codedError struct {
	code    int
	message string
	err     error
}

func (e *codedError) Error() string {
	switch {
	case e.err == nil:
		return e.message
	case e.message == "":
		return e.err.Error()
	}
	return e.message + ": " + e.err.Error()
}

func (e *codedError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error {
	return &codedError{code: exitUsage, message: fmt.Sprintf(format, args...)}
}

// quietExit ends with a code and no further word.
func quietExit(code int) error { return &codedError{code: code} }

func isQuiet(err error) bool {
	coded, ok := errors.AsType[*codedError](err)
	return ok && coded.message == "" && coded.err == nil
}

// meanings are the code and the words of the errors that commands end with.
var meanings = []struct {
	target error
	code   int
	words  string
}{
	{client.ErrUnknownSession, exitUnknown, "no such session"},
	{client.ErrNoCall, exitUnknown, "no such finished tool call"},
	{client.ErrNoOutput, exitUnknown, "no output is stored"},
	{client.ErrSession, exitUsage, "a session id is 1 to 64 letters, digits, _ and -"},
	{client.ErrEmptyPrompt, exitUsage, "the text is empty"},
	{client.ErrTooLarge, exitRefused, "the input is too large"},
	{client.ErrFull, exitRefused, "the session has too many inputs waiting"},
	{client.ErrLost, exitLost, "the stream of events is lost"},
	{client.ErrNoRun, exitUnknown, "no run is open in the parent session"},
	{client.ErrNoRequest, exitUnknown, "no such call waits for an approval"},
	{client.ErrNoInput, exitUnknown, "no such input"},
	{client.ErrNotMovable, exitUsage, "only a prompt can be moved, and only before a prompt that waits"},
	{client.ErrReturned, exitTooLate, "the input was returned already"},
	{client.ErrMalformed, exitRefused, "the input is malformed"},
	{client.ErrNoStreams, exitConnection, "this NATS has no streams of ours; a worker creates them when it starts"},
	{client.ErrNoServer, exitConnection, "NATS does not answer"},
	{context.DeadlineExceeded, exitTimeout, ""},
	{context.Canceled, exitInterrupted, ""},
}

// codeOf is the exit code that err stands for.
func codeOf(err error) int {
	if err == nil {
		return exitOK
	}
	if coded, ok := errors.AsType[*codedError](err); ok {
		return coded.code
	}
	for _, m := range meanings {
		if errors.Is(err, m.target) {
			return m.code
		}
	}
	return exitError
}

// sentence is an error for people: the words for what it is, and the details
// that came with it.
func sentence(err error) string {
	text := err.Error()
	for _, m := range meanings {
		if m.words == "" || !errors.Is(err, m.target) {
			continue
		}
		_, detail, _ := strings.Cut(text, m.target.Error())
		return m.words + detail
	}
	return text
}

// codeOfOutcome is the exit code of a settled prompt. An outcome that this
// version does not know is never taken for success.
func codeOfOutcome(o loop.Outcome) int {
	switch o {
	case loop.OutcomeCompleted:
		return exitOK
	case loop.OutcomeAborted:
		return exitAborted
	case loop.OutcomeLimit:
		return exitLimit
	case loop.OutcomeDeadLetter:
		return exitDeadLetter
	}
	return exitFailed
}

func (a *app) exitCodesCommand() *cobra.Command {
	var markdown bool
	cmd := &cobra.Command{
		Use:   "exit-codes",
		Short: "Print the exit codes and what they mean",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if markdown {
				return writeExitCodesMarkdown(a.out)
			}
			return writeExitCodes(a.out)
		},
	}
	cmd.Flags().BoolVar(&markdown, "markdown", false, "as a Markdown table")
	return cmd
}

func writeExitCodes(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range exitCodes {
		fmt.Fprintf(tw, "%d\t%s\t%s\n", c.Code, c.Name, c.Meaning)
	}
	return tw.Flush()
}

func writeExitCodesMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| code | name | meaning |\n| --- | --- | --- |\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", c.Code, c.Name, c.Meaning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// exitCodesHelp is the table as it stands at the end of --help.
func exitCodesHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range exitCodes {
		fmt.Fprintf(tw, "  %d\t%s\n", c.Code, c.Meaning)
	}
	tw.Flush()
	return b.String()
}
