package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/wire"
	"github.com/pi-worker/pi-worker/worker"
)

// demoWorkerName is the hidden subcommand that a worker process runs. It is
// what pi-worker does, inside this binary.
const demoWorkerName = "demo-worker"

func (a *app) demoWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    demoWorkerName,
		Short:  "A worker of the demo",
		Hidden: true,
		Args:   noArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return a.demoWorker(cmd.Context()) },
	}
}

// demoWorker works until it is told to stop, or its standard input ends: then
// the demo is gone, however it went.
func (a *app) demoWorker(ctx context.Context) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// This goroutine ends with the process: a read of standard input cannot be
	// cut short.
	var parent sync.WaitGroup
	parent.Go(func() {
		_, _ = io.Copy(io.Discard, a.in)
		cancel()
	})
	cfg, err := config.Load(nil)
	if err != nil {
		return err
	}
	log := wire.Logger(cfg.Log, a.err)
	nc, err := wire.Connect(cfg.NATS, "pi-cli "+demoWorkerName, log)
	if err != nil {
		return err
	}
	defer nc.Close()
	agents := wire.NewAgents(cfg, log)
	defer func() { err = errors.Join(err, agents.Close()) }()
	if err := agents.Start(ctx, nc); err != nil {
		return err
	}
	w, err := worker.New(ctx, agents.Worker(nc, version()))
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// demoWorker is one worker process of the demo.
type demoWorker struct {
	name    string
	logFile string
	cmd     *exec.Cmd
	stdin   io.Closer
	ended   bool
}

// startDemoWorker runs this binary once more. The process is not in our
// terminal's foreground group, so that Ctrl-C is ours alone to handle.
func startDemoWorker(ctx context.Context, name, config, logFile string) (*demoWorker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this binary: %w", err)
	}
	log, err := os.Create(logFile)
	if err != nil {
		return nil, fmt.Errorf("creating the log of %s: %w", name, err)
	}
	defer log.Close()
	w := &demoWorker{name: name, logFile: logFile}
	w.cmd = exec.CommandContext(context.WithoutCancel(ctx), self, demoWorkerName)
	w.cmd.Env = append(demoEnv(), "PI_CONFIG="+config, "PI_WORKER_ID="+name)
	w.cmd.Stdout, w.cmd.Stderr = log, log
	ownProcessGroup(w.cmd)
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return w, nil
}

// demoEnv is our environment without what would configure another worker.
func demoEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PI_") && !strings.HasPrefix(kv, "NATS_") && !strings.HasPrefix(kv, "OPENAI_BASE_URL=") {
			env = append(env, kv)
		}
	}
	return append(env, demoKeyEnv+"=demo")
}

// kill ends the process as a crash would: no handler runs.
func (w *demoWorker) kill() error {
	w.ended = true
	if err := w.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("killing %s: %w", w.name, err)
	}
	_ = w.cmd.Wait() // "signal: killed" is what was wanted
	return nil
}

// stop ends the process, if it is still there. Nothing of the demo is worth an
// orderly shutdown.
func (w *demoWorker) stop() error {
	defer w.stdin.Close()
	if w.ended {
		return nil
	}
	return w.kill()
}

// demoKeyEnv is the variable from which the workers take the scripted model's
// key.
const demoKeyEnv = "DEMO_MODEL_KEY"
