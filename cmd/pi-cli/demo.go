package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/internal/natsd"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// demoAckWait is the life of a lease in the demo: short, so that the killed
// worker's session is soon taken over.
const demoAckWait = 2 * time.Second

type demoFlags struct {
	model   demoModel
	quick   bool
	verbose bool
	timeout time.Duration
}

func (a *app) demoCommands() []*cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it all at work: nothing to install, nothing left behind",
		Long: `demo starts a NATS with JetStream inside this process and two worker processes,
in a temporary folder. A prompt calls real tools, is steered while it works and
gets a follow-up; the worker that answers is killed with SIGKILL in mid-answer,
and the other one finishes the same run. Then demo reads the log and says what
is in it. It exits with 0 only if everything is there, once.

The model is a scripted one, unless --base-url names an endpoint or the default
agent of pi-worker's configuration has one: $OPENAI_API_KEY or $OPENAI_BASE_URL
are enough.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.model.baseURL, "base-url", "", "use this OpenAI-compatible endpoint instead of the scripted model")
	flags.StringVar(&f.model.name, "model", "", "model of the real endpoint (default the configured one)")
	flags.BoolVar(&f.model.scripted, "scripted", false, "use the scripted model even if a real one is configured")
	flags.BoolVar(&f.quick, "quick", false, "let the scripted model speak faster")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "show the workers' logs at the end")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Minute, "give up after this time")
	return []*cobra.Command{cmd, a.demoWorkerCommand()}
}

// demo runs the whole show and removes everything that it started.
func (a *app) demo(ctx context.Context, f *demoFlags) (err error) {
	ctx, stop := a.untilInterrupted(ctx, nil)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, &codedError{code: exitTimeout, message: "the demo did not end in time"})
	defer cancel()
	d := &demo{app: a, flags: f}
	defer func() {
		if cleanErr := d.close(); cleanErr != nil {
			err = errors.Join(err, fmt.Errorf("cleaning up: %w", cleanErr))
		}
	}()
	if err := d.start(ctx); err != nil {
		return causeOf(ctx, err)
	}
	if err := d.play(ctx); err != nil {
		d.showLogs()
		return causeOf(ctx, err)
	}
	ok, err := d.report(ctx)
	if err != nil {
		return causeOf(ctx, err)
	}
	if f.verbose || !ok {
		d.showLogs()
	}
	if !ok {
		return &codedError{code: exitError, message: "the demo did not show what it promises"}
	}
	return nil
}

// causeOf prefers the reason why ctx ended to what broke because of it.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// demo is what the show needs: a broker, a model, two workers, a client.
type demo struct {
	app    *app
	flags  *demoFlags
	dir    string
	broker *natsd.Server
	script *looptest.Script // nil with a real model
	fleet  []*demoWorker
	nc     *nats.Conn
	client *client.Client
}

func (d *demo) start(ctx context.Context) (err error) {
	if d.dir, err = os.MkdirTemp("", "pi-cli-demo-"); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	if d.broker, err = natsd.Start(natsd.Config{Dir: filepath.Join(d.dir, "nats")}); err != nil {
		return err
	}
	d.app.note("· NATS with JetStream at %s", d.broker.ClientURL())
	if err := d.connect(ctx); err != nil {
		return err
	}
	if err := d.startModel(); err != nil {
		return err
	}
	return d.startFleet(ctx)
}

func (d *demo) connect(ctx context.Context) (err error) {
	if d.nc, err = nats.Connect(d.broker.ClientURL(), nats.Name("pi-cli demo")); err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	js, err := jetstream.New(d.nc)
	if err != nil {
		return fmt.Errorf("opening JetStream: %w", err)
	}
	if err := subjects.Ensure(ctx, js, subjects.Names{}, &subjects.EnsureOptions{AckWait: demoAckWait}); err != nil {
		return err
	}
	d.client, err = client.New(ctx, d.nc, nil)
	return err
}

func (d *demo) startFleet(ctx context.Context) error {
	config, err := d.writeConfig()
	if err != nil {
		return err
	}
	for _, name := range []string{"worker-1", "worker-2"} {
		w, err := startDemoWorker(ctx, name, config, filepath.Join(d.dir, name+".log"))
		if err != nil {
			return err
		}
		d.fleet = append(d.fleet, w)
		d.app.note("· %s is process %d", name, w.cmd.Process.Pid)
	}
	return nil
}

// close ends everything, in the order in which nobody complains.
func (d *demo) close() error {
	var errs []error
	for _, w := range d.fleet {
		errs = append(errs, w.stop())
	}
	if d.nc != nil {
		d.nc.Close()
	}
	if d.script != nil {
		errs = append(errs, d.script.Close())
	}
	if d.broker != nil {
		errs = append(errs, d.broker.Close())
	}
	if d.dir != "" {
		errs = append(errs, os.RemoveAll(d.dir))
	}
	return errors.Join(errs...)
}

// showLogs copies the workers' logs to stderr.
func (d *demo) showLogs() {
	for _, w := range d.fleet {
		b, err := os.ReadFile(w.logFile)
		if err != nil {
			continue
		}
		fmt.Fprintf(d.app.err, "--- %s\n%s", w.name, b)
	}
}
