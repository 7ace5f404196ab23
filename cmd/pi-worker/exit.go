package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/pi-worker/pi-worker/internal/natsd"
	"github.com/pi-worker/pi-worker/internal/wire"
	"github.com/pi-worker/pi-worker/subjects"
)

// The exit codes of pi-worker; they are part of its interface.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitCredentials = 4
	exitJetStream   = 5
	exitConflict    = 6
	exitPort        = 7
)

var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "ended in order: what was running was finished or handed over"},
	{exitError, "something else went wrong"},
	{exitUsage, "bad flags, arguments or configuration: nothing was started"},
	{exitUnreachable, "NATS does not answer"},
	{exitCredentials, "NATS refuses the credentials"},
	{exitJetStream, "NATS answers, but without JetStream for this account"},
	{exitConflict, "a stream exists with another configuration; nothing was changed"},
	{exitPort, "dev: the wanted port is in use"},
}

// usageError is what the person at the keyboard can put right.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func codeOf(err error) int {
	if err == nil {
		return exitOK
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	for _, c := range []struct {
		target error
		code   int
	}{
		{wire.ErrConfig, exitUsage},
		{wire.ErrUnreachable, exitUnreachable},
		{subjects.ErrUnreachable, exitUnreachable},
		{wire.ErrCredentials, exitCredentials},
		{subjects.ErrNoJetStream, exitJetStream},
		{subjects.ErrConfig, exitConflict},
		{natsd.ErrPortInUse, exitPort},
		{context.Canceled, exitOK},
	} {
		if errors.Is(err, c.target) {
			return c.code
		}
	}
	return exitError
}

// complain prints each error as one line; a configuration may have several.
func complain(w io.Writer, err error) {
	if codeOf(err) == exitOK {
		return
	}
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{"config: ", "subjects: ", "session: ", "worker: ", "natsd: "} {
			line = strings.TrimPrefix(line, prefix)
		}
		fmt.Fprintln(w, "pi-worker: "+line)
	}
}

// exitCodesHelp is the table at the end of --help.
func exitCodesHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range exitCodes {
		fmt.Fprintf(tw, "  %d\t%s\n", c.code, c.meaning)
	}
	tw.Flush()
	return b.String()
}
