package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/config"
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
			log := wire.Logger(cfg.Log, errOut)
			nc, err := wire.Connect(cfg.NATS, "pi-worker", log)
			if err != nil {
				return err
			}
			defer nc.Close()
			if err := wire.Ensure(cmd.Context(), nc, cfg, force); err != nil {
				return err
			}
			return work(cmd.Context(), nc, cfg, log)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "change streams that exist with another configuration")
	return cmd
}

// work runs a worker until ctx ends and its sessions are finished or handed
// over.
func work(ctx context.Context, nc *nats.Conn, cfg *config.Config, log *slog.Logger) (err error) {
	agents := wire.NewAgents(cfg, log)
	defer func() { err = errors.Join(err, agents.Close()) }()
	if err := agents.Start(ctx, nc); err != nil {
		return err
	}
	w, err := worker.New(ctx, agents.Worker(nc, version()))
	if err != nil {
		return err
	}
	log.Info("worker ready", "worker", w.ID(), "nats", nc.ConnectedUrlRedacted(), "sessions", cfg.Worker.Sessions)
	err = w.Run(ctx)
	log.Info("worker ended", "worker", w.ID())
	return err
}
