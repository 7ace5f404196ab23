package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"log/slog"
	"os"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/wire"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/worker"
)

// runChild does the work of a child process, if this is one.
func runChild() (code int, child bool) {
	role := os.Getenv(roleEnv)
	if role == "" {
		return 0, false
	}
	main, ok := map[string]func() error{
		"broker": brokerMain, "model": modelMain, "worker": workerMain, "bare": bareMain,
	}[role]
	err := fmt.Errorf("unknown role %q", role)
	if ok {
		err = main()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench "+role+":", err)
		return 1, true
	}
	return 0, true
}

// childConfig is what any child gets.
type childConfig struct {
	Dir      string // of the broker's files
	NATS     string
	Model    string
	Profiles string // folder of CPU profiles, "" none
	ID       string
}

func readChildConfig() (cfg childConfig, err error) {
	return cfg, json.Unmarshal([]byte(os.Getenv(configEnv)), &cfg)
}

// brokerMain is a nats-server with JetStream on disk.
func brokerMain() error {
	cfg, err := readChildConfig()
	if err != nil {
		return err
	}
	stop, err := profile(cfg.Profiles, "broker")
	if err != nil {
		return err
	}
	defer stop()
	srv, err := server.NewServer(&server.Options{
		ServerName: "bench", Host: "127.0.0.1", Port: server.RANDOM_PORT,
		JetStream: true, StoreDir: cfg.Dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return err
	}
	srv.Start()
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	if !srv.ReadyForConnections(readyTime) {
		return errors.New("the server does not get ready")
	}
	return serveRole(srv.ClientURL(), func(string, *stats) error { return nil })
}

// workerMain is `pi-worker run` by the same wiring, with a tool that does
// nothing, and a CPU profile if one is wanted.
func workerMain() (err error) {
	own, err := readChildConfig()
	if err != nil {
		return err
	}
	stopProfile, err := profile(own.Profiles, "worker-"+own.ID)
	if err != nil {
		return err
	}
	defer stopProfile()
	cfg, err := config.Load(nil)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})) // a busy machine makes the broker late, which is no news here
	nc, err := wire.Connect(cfg.NATS, "bench", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := wire.Ensure(ctx, nc, cfg, false); err != nil {
		return err
	}
	agents := wire.NewAgents(cfg, log)
	defer func() { err = errors.Join(err, agents.Close()) }()
	if err := agents.Start(ctx, nc); err != nil {
		return err
	}
	w, err := newWorker(ctx, nc, agents)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup

	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			log.Error("worker", "error", err)
		}
	})
	defer wg.Wait()
	defer stop()
	return serveRole("ready", func(_ string, st *stats) error {
		out := nc.Stats()
		st.Out, st.OutMsgs = out.OutBytes, out.OutMsgs
		return nil
	})
}

func newWorker(ctx context.Context, nc *nats.Conn, agents *wire.Agents) (*worker.Worker, error) {
	cfg := agents.Worker(nc, "bench")
	cfg.Agent = func(ctx context.Context, req worker.AgentRequest) (*worker.Agent, error) {
		a, err := agents.Agent(ctx, req)
		if err == nil {
			a.Tools = []loop.Tool{stepTool{}}
		}
		return a, err
	}
	return worker.New(ctx, cfg)
}

// stepTool does nothing.
type stepTool struct{}

// Spec implements loop.Tool.
func (stepTool) Spec() loop.ToolSpec {
	return loop.ToolSpec{
		Name: "step", Description: "one step",
		Parameters: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`), Idempotent: true,
	}
}

// Execute implements loop.Tool.
func (stepTool) Execute(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
	return loop.TextResult("done"), nil
}
