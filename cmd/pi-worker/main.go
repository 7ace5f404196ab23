// Command pi-worker runs agents for the sessions whose prompts wait in a
// NATS JetStream.
//
//	pi-worker                 claim sessions from nats://127.0.0.1:4222
//	pi-worker dev             the same with a NATS of its own, for a first look
//	pi-worker config          what is configured, and where it comes from
//
// Any number of workers may share one NATS: each session is run by one of
// them at a time, and goes on at another one when its worker ends.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code. The first SIGINT or
// SIGTERM ends the command's context with itself as the cause; after it the
// signals have their usual effect, so that a second one kills.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	root := newRoot(out, errOut)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err != nil {
		complain(errOut, err)
	}
	return codeOf(err)
}
