package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/internal/wire"
)

const (
	// healthTimeout bounds the whole check: container health checks have a
	// deadline of their own, and say less when it passes.
	healthTimeout = 4 * time.Second
	// healthAge is how old a worker's last sign of life may be; workers give
	// one every 5 s.
	healthAge = 16 * time.Second
)

var errUnhealthy = errors.New("no worker has given a sign of life")

func healthcheckCommand(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "healthcheck",
		Short: "End with 0 if the worker of this host is alive and its NATS answers",
		Long: `Ask the worker's /readyz where http.listen is configured. Otherwise look for a
recent sign of life of a worker on this host, or of the worker named by --id or
PI_WORKER_ID. For container health checks: it needs no shell and no port, and it
fails when the worker has lost its NATS.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), healthTimeout)
			defer cancel()
			if cfg.HTTP.Listen != "" {
				return askReady(ctx, out, cfg.HTTP.Listen)
			}
			nc, err := wire.Connect(cfg.NATS, "pi-worker healthcheck", slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer nc.Close()
			store, err := session.Open(ctx, nc, wire.Names(cfg), nil)
			if err != nil {
				return err
			}
			host, err := os.Hostname()
			if err != nil {
				return err
			}
			p, err := findAlive(ctx, store, cfg.Worker.ID, host)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "worker %s runs %d of %d sessions\n", p.Worker, p.Running, p.Slots)
			return nil
		},
	}
}

// askReady asks the worker that listens on addr of this host.
func askReady(ctx context.Context, out io.Writer, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return usageError{fmt.Errorf("http.listen: %w", err)}
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	url := "http://" + net.JoinHostPort(host, port) + "/readyz"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy: it is this host
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnhealthy, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("%w: reading the answer of %s: %w", errUnhealthy, url, err)
	}
	text := strings.ReplaceAll(strings.TrimSpace(string(body)), "\n", "; ")
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", text)
	}
	fmt.Fprintln(out, text)
	return nil
}

// findAlive gives the latest sign of life of the worker with that id, or, for
// "", of any worker on the host.
func findAlive(ctx context.Context, store *session.Store, id, host string) (*session.Presence, error) {
	var latest *session.Presence
	for p, err := range store.Workers(ctx) {
		if err != nil {
			return nil, err
		}
		ours := p.Worker == id || id == "" && p.Host == host
		if ours && (latest == nil || p.Beat.After(latest.Beat)) {
			latest = p
		}
	}
	if latest == nil || time.Since(latest.Beat) > healthAge {
		return nil, fmt.Errorf("%w: %s", errUnhealthy, cmp.Or(id, "host "+host))
	}
	return latest, nil
}
