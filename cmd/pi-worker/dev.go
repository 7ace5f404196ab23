package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/natsd"
	"github.com/pi-worker/pi-worker/internal/secret"
	"github.com/pi-worker/pi-worker/internal/wire"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

const (
	devPort     = 4222 // where every NATS client looks first
	maxPort     = 65535
	usualKeyEnv = "OPENAI_API_KEY" // where the key is expected if nothing says otherwise
)

func devCommand(out, errOut io.Writer) *cobra.Command {
	var dir string
	var port int
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a worker with a NATS of its own, on loopback",
		Long: `Run a worker with an embedded NATS server (JetStream on disk) that listens on
127.0.0.1, so that pi-cli and any other NATS client can join.

Without an API key and without a base URL the answers are scripted.

Ctrl-C lets turns end within --grace, and removes the temporary folder. A second
one kills, and leaves it.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			if port < 0 || port > maxPort {
				return usageError{fmt.Errorf("--port %d is no port: 0 to %d", port, maxPort)}
			}
			mask := secret.New(wire.Secrets(cfg)...)
			log, level := wire.LeveledLogger(cfg.Log, mask.Writer(errOut))
			srv, err := startServer(dir, port, cmd.Flags().Changed("port"), log)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, srv.Close()) }()
			cfg.NATS = config.NATS{
				URL: config.URL(srv.ClientURL()), Prefix: cfg.NATS.Prefix, Replicas: 1, AckWait: cfg.NATS.AckWait,
			}
			model, closeModel, err := devModel(cfg)
			if err != nil {
				return err
			}
			defer closeModel()
			return work(cmd.Context(), cfg, &voice{log, level, mask}, func(ctx context.Context) (*nats.Conn, error) {
				nc, err := wire.Start(ctx, cfg, "pi-worker dev", false, log)
				if err == nil {
					greet(out, srv.ClientURL(), dir, model)
				}
				return nc, err
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder of JetStream's files (default a temporary one, removed at the end)")
	cmd.Flags().IntVar(&port, "port", devPort, "port on 127.0.0.1; 0 takes any free one")
	return cmd
}

// startServer takes another port than the usual one rather than fail, unless
// the port was asked for.
func startServer(dir string, port int, asked bool, log *slog.Logger) (*natsd.Server, error) {
	cfg := natsd.Config{Dir: dir, Port: port, Logger: log.With("part", "nats-server")}
	srv, err := natsd.Start(cfg)
	if errors.Is(err, natsd.ErrPortInUse) && !asked {
		cfg.Port = 0
		return natsd.Start(cfg)
	}
	return srv, err
}

// devModel says which model answers. With neither key nor base URL there is
// none to ask, so that a scripted one takes the place of the default agent's.
// A key that was asked for and cannot be read is an error.
func devModel(cfg *config.Config) (name string, closeModel func(), err error) {
	p := cfg.Agents[config.DefaultAgent]
	if _, err := p.APIKey(); err == nil {
		return fmt.Sprintf("%s at %s", p.Model, config.MaskURL(p.BaseURL)), func() {}, nil
	} else if p.APIKeyFile != "" || p.APIKeyEnv != usualKeyEnv {
		return "", nil, usageError{err}
	}
	script := looptest.NewScript()
	script.Otherwise(scriptedAnswer)
	p.BaseURL, p.API, p.APIKeyEnv, p.APIKeyFile = script.BaseURL(), "completions", "", ""
	p.Model = "scripted"
	cfg.Agents[config.DefaultAgent] = p
	return "scripted: no model is configured. Set OPENAI_API_KEY, or --base-url and --model, for a real one",
		func() { _ = script.Close() }, nil
}

// scriptedAnswer looks around once if it may, then says what it is.
func scriptedAnswer(r *looptest.Request) looptest.Answer {
	said := strings.TrimSpace(r.LastUser())
	if r.ToolResults() == 0 && bytes.Contains(r.Body, []byte(`"name":"ls"`)) {
		return looptest.Reply{
			Text:  "Let me look at the workspace first. ",
			Calls: []looptest.Call{{Name: "ls", Args: `{"path":"."}`}}, ChunkDelay: 40 * time.Millisecond,
		}
	}
	return looptest.Reply{
		Text: fmt.Sprintf("This is the scripted model, which can only repeat: you said %q. ", said) +
			"Configure a real model to get a real answer.",
		ChunkDelay: 40 * time.Millisecond,
		Usage:      &looptest.Usage{Input: int64(len(r.Body) / 4), Output: 30},
	}
}

func greet(out io.Writer, url, dir, model string) {
	if dir == "" {
		dir = "a temporary folder, removed at the end"
	}
	cli := "pi-cli"
	if url != fmt.Sprintf("nats://127.0.0.1:%d", devPort) {
		cli += " --server " + url
	}
	fmt.Fprintf(out, `NATS with JetStream:  %s
its files:            %s
model:                %s

In another terminal:
  %[4]s prompt --session s1 "hello"
  %[4]s tail s1

Ctrl-C ends it.
`, url, dir, model, cli)
}
