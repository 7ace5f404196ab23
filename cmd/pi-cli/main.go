// Command pi-cli talks to the agents behind a NATS: it prompts and steers
// them, follows what they do, and shows who runs what. It needs the broker
// alone, never a worker's address.
//
// The answer goes to stdout and everything else to stderr, so that
//
//	pi-cli prompt "name three rivers" > rivers.txt
//
// does what it looks like. How a command ended is in its exit code; see
// `pi-cli exit-codes`.
package main

import (
	"context"
	"io"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], streams{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv,
	}))
}

// streams is what a command has of the outside world.
type streams struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) string
	// interrupts stands in for the process's signals in tests; nil means those.
	interrupts <-chan os.Signal
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, s streams) int {
	a := &app{streams: s}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	err := root.ExecuteContext(ctx)
	if err != nil && !isQuiet(err) {
		a.complain(err)
	}
	return codeOf(err)
}
