// Command chaos lets real worker processes work for publishers who change
// their minds, breaks everything that can break meanwhile, and then reads the
// whole inbox and all logs to see whether each promise was kept.
//
//	go run ./internal/chaos -seconds 60 -seed 1 -faults kill,stop,term
//	go run ./internal/chaos -faults none -sessions 200 -prompts 5 -workers 3
//	go run ./internal/chaos -seconds 30 -faults stop -control   # must be BROKEN
//
// The last line is "chaos: ok …" or "chaos: BROKEN …", with counts. The exit
// code is 0 for ok, 1 for broken, 2 for a run that could not be made.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// roleEnv makes this binary a child of a run: "worker" or "broker".
const roleEnv = "CHAOS_ROLE"

func main() {
	if code, child := runChild(); child {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(mainCode(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// runChild does the work of a child process, if this is one.
func runChild() (code int, child bool) {
	role := os.Getenv(roleEnv)
	if role == "" {
		return 0, false
	}
	var err error
	switch role {
	case "worker":
		err = workerMain()
	case "broker":
		err = brokerMain()
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos "+role+":", err)
		return 1, true
	}
	return 0, true
}

func mainCode(ctx context.Context, args []string, out, errOut io.Writer) int {
	o, err := parseOptions(args, errOut)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(errOut, "chaos:", err)
		return 2
	}
	res, err := run(ctx, o, errOut)
	if err != nil {
		fmt.Fprintln(errOut, "chaos: the run could not be made:", err)
		return 2
	}
	res.print(out, errOut)
	if len(res.broken) > 0 {
		return 1
	}
	return 0
}

// faultNames are what -faults takes; "all" means those that fit the nodes.
var faultNames = []string{"kill", "stop", "term", "broker", "cluster", "proxy", "full", "strangers"}

// options are the flags of one run.
type options struct {
	seconds    int
	seed       uint64
	faults     []string
	inputs     []string
	sessions   int
	workers    int
	nodes      int
	prompts    int
	ackWait    time.Duration
	grace      time.Duration
	every      time.Duration
	pace       time.Duration
	patience   time.Duration
	maxSilence time.Duration
	control    bool
	verbose    bool
	dir        string
}

func (o *options) has(fault string) bool { return slices.Contains(o.faults, fault) }

func parseOptions(args []string, errOut io.Writer) (*options, error) {
	o := &options{}
	var faults, inputs string
	fs := flag.NewFlagSet("chaos", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.IntVar(&o.seconds, "seconds", 0, "how long faults happen and inputs are published; 0: until -prompts are settled, or 20")
	fs.Uint64Var(&o.seed, "seed", 1, "chooses what happens when")
	fs.StringVar(&faults, "faults", "all", "comma-separated: none, all, "+strings.Join(faultNames, ", "))
	fs.StringVar(&inputs, "inputs", "", "what is published: prompt, steer, followup, abort, cancel, edit; default all, prompt alone without faults")
	fs.IntVar(&o.sessions, "sessions", 24, "number of sessions")
	fs.IntVar(&o.workers, "workers", 3, "number of worker processes")
	fs.IntVar(&o.nodes, "nodes", 1, "NATS servers: 1 or 3")
	fs.IntVar(&o.prompts, "prompts", 0, "prompts of each session; 0: as many as fit into -seconds")
	fs.DurationVar(&o.ackWait, "ack-wait", 5*time.Second, "life of a lease without a beat")
	fs.DurationVar(&o.grace, "grace", time.Second, "what a worker has after SIGTERM to end its turns")
	fs.DurationVar(&o.every, "every", 3*time.Second, "mean time between two faults of a kind")
	fs.DurationVar(&o.pace, "pace", 20*time.Millisecond, "time between two pieces of an answer")
	fs.DurationVar(&o.patience, "patience", 60*time.Second, "a run in which nothing settles for so long, after the faults, hangs")
	fs.DurationVar(&o.maxSilence, "max-silence", 0, "longest silence within a run that a tailing client may see; 0 is not checked")
	fs.BoolVar(&o.control, "control", false, "take the fence away from the workers: the run must be BROKEN")
	fs.BoolVar(&o.verbose, "v", false, "tell each fault")
	fs.StringVar(&o.dir, "dir", "", "keeps the servers' files and the workers' logs there; default: temporary")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return o, o.check(faults, inputs)
}

func (o *options) check(faults, inputs string) error {
	for name := range strings.SplitSeq(faults, ",") {
		switch {
		case name == "none" || name == "":
		case name == "all":
			for _, f := range faultNames {
				if f != "cluster" || o.nodes == 3 {
					o.faults = append(o.faults, f)
				}
			}
		case slices.Contains(faultNames, name):
			o.faults = append(o.faults, name)
		default:
			return fmt.Errorf("unknown fault %q", name)
		}
	}
	if o.has("cluster") && o.nodes == 1 {
		o.nodes = 3
	}
	if o.nodes != 1 && o.nodes != 3 || o.sessions < 1 || o.workers < 1 || o.prompts < 0 || o.seconds < 0 || o.every <= 0 {
		return errors.New("flags are out of range")
	}
	switch {
	case inputs != "":
		o.inputs = strings.Split(inputs, ",")
	case len(o.faults) == 0:
		o.inputs = []string{"prompt"}
	default:
		o.inputs = []string{"prompt", "steer", "followup", "abort", "cancel", "edit"}
	}
	if o.seconds == 0 && (o.prompts == 0 || len(o.faults) > 0) {
		o.seconds = 20
	}
	return nil
}
