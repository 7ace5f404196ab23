package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/chaos/check"
	"github.com/pi-worker/pi-worker/internal/wire"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/worker"
)

// workerConfig is what a worker process gets besides pi-worker's own
// configuration.
type workerConfig struct {
	World string // URL of the world
}

// readyLine is written to the worker's standard output once it claims.
const readyLine = "chaos worker ready"

// workerMain is `pi-worker run`, by the same wiring, with tools that have
// their effect on the world.
func workerMain() (err error) {
	var own workerConfig
	if err := json.Unmarshal([]byte(os.Getenv(configEnv)), &own); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var parent sync.WaitGroup // ends with the process
	parent.Go(func() {
		_, _ = bytes.NewBuffer(nil).ReadFrom(os.Stdin)
		os.Exit(3)
	})
	cfg, err := config.Load(nil)
	if err != nil {
		return err
	}
	log := wire.Logger(cfg.Log, os.Stderr)
	nc, err := wire.Connect(cfg.NATS, "chaos", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := wire.Ensure(ctx, nc, cfg, false); err != nil {
		return err
	}
	agents := wire.NewAgents(cfg, log)
	defer func() { err = errors.Join(err, agents.Close()) }()
	if err := agents.Start(ctx, nc); err != nil {
		return err
	}
	wcfg := agents.Worker(nc, "chaos")
	wcfg.Agent = func(ctx context.Context, req worker.AgentRequest) (*worker.Agent, error) {
		a, err := agents.Agent(ctx, req)
		if err == nil {
			a.Tools = effectTools(own.World, cfg.Worker.ID)
		}
		return a, err
	}
	w, err := worker.New(ctx, wcfg)
	if err != nil {
		return err
	}
	fmt.Println(readyLine)
	return w.Run(ctx)
}

// effectTool asks the world for one effect, and then takes its time.
type effectTool struct {
	loop.ToolSpec
	world, worker string
	takes         time.Duration
}

func effectTools(world, id string) []loop.Tool {
	params := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	tool := func(name string, idempotent bool, takes time.Duration) loop.Tool {
		return &effectTool{loop.ToolSpec{
			Name: name, Description: name, Parameters: params, Idempotent: idempotent,
		}, world, id, takes}
	}
	return []loop.Tool{
		tool("pay", false, 0), tool("ship", false, 700*time.Millisecond),
		tool("look", true, 0), tool("scan", true, 500*time.Millisecond),
	}
}

// Spec implements loop.Tool.
func (t *effectTool) Spec() loop.ToolSpec { return t.ToolSpec }

// Execute implements loop.Tool.
func (t *effectTool) Execute(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
	body, err := json.Marshal(check.Effect{Key: call.Key, CallID: call.ID, Worker: t.worker, Idempotent: t.Idempotent})
	if err != nil {
		return loop.ToolResult{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.world, bytes.NewReader(body))
	if err != nil {
		return loop.ToolResult{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return loop.ToolResult{}, err
	}
	resp.Body.Close()
	for end := time.Now().Add(t.takes); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return loop.ToolResult{}, ctx.Err()
		case <-time.After(100 * time.Millisecond):
			update(loop.TextResult("."))
		}
	}
	return loop.TextResult(t.Name + " done " + call.Key), nil
}
