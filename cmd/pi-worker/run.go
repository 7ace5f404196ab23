package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/metrics"
	"github.com/pi-worker/pi-worker/internal/otlp"
	"github.com/pi-worker/pi-worker/internal/secret"
	"github.com/pi-worker/pi-worker/internal/wire"
	"github.com/pi-worker/pi-worker/worker"
)

func runCommand(errOut io.Writer) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Claim sessions and run them (the default)",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			mask := secret.New(wire.Secrets(cfg)...)
			log, level := wire.LeveledLogger(cfg.Log, mask.Writer(errOut))
			return work(cmd.Context(), cfg, &voice{log, level, mask}, func(ctx context.Context) (*nats.Conn, error) {
				return wire.Start(ctx, cfg, "pi-worker", force, log)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "change streams that exist with another configuration")
	return cmd
}

// voice is the command's log, its level, and what it must not say.
type voice struct {
	log   *slog.Logger
	level *slog.LevelVar
	mask  *secret.Mask
}

// work connects, and runs a worker until ctx ends and its sessions are finished
// or handed over.
func work(ctx context.Context, cfg *config.Config, v *voice, connect func(context.Context) (*nats.Conn, error)) (err error) {
	log := v.log
	agents := wire.NewAgents(cfg, log).Masking(v.mask)
	defer func() { err = errors.Join(err, agents.Close()) }()
	if err := agents.Check(); err != nil {
		return err
	}
	tracer, endTraces, err := otlp.Start(ctx, "pi-worker", version(), log)
	if err != nil {
		return usageError{err}
	}
	defer endTraces()

	counts := metrics.New(version())
	fit := &fitness{disk: agents.Disk, ended: ctx}
	listening := &listeners{log: log}
	defer func() { err = errors.Join(err, listening.Close()) }()
	// Before the worker is there: whoever asks meanwhile is told that it starts.
	if err := listening.listenAll(cfg.HTTP, health(fit.Check, counts.Handler()), debugging(v.level, log)); err != nil {
		return err
	}

	nc, err := connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	fit.nc.Store(nc)
	if err := agents.Start(ctx, nc); err != nil {
		return err
	}
	wcfg := agents.Worker(nc, version())
	wcfg.Tracer = tracer
	if cfg.HTTP.Listen != "" {
		wcfg.Hooks = counts.Hooks()
		nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrSlowConsumer) {
				counts.SlowConsumer()
			}
			log.Warn("NATS", "error", err)
		})
	}
	w, err := worker.New(ctx, wcfg)
	if err != nil {
		return err
	}
	counts.Watch(metrics.Sources{Worker: w, NATS: nc, Ready: fit.Check})
	ready := w.Ready
	fit.worker.Store(&ready)
	log.Info("worker ready", "worker", w.ID(), "nats", nc.ConnectedUrlRedacted(), "sessions", cfg.Worker.Sessions)
	err = w.Run(ctx)
	log.Info("worker ended", "worker", w.ID())
	return err
}
