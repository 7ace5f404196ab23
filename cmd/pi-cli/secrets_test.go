package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/wire"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/worker"
)

// What pi-cli prints has none of the secrets that it or the worker was given,
// whatever the endpoint repeats and commands print.
func TestNoOutputHasAPlantedSecret(t *testing.T) {
	const password, key, header = "pl4nted-password", "pl4nted-key", "pl4nted-header"
	url := startServer(t, &server.Options{JetStream: true, StoreDir: t.TempDir(), Username: "joe", Password: password})
	withPassword := strings.Replace(url, "nats://", "nats://joe:"+password+"@", 1)
	script := looptest.NewScript()
	t.Cleanup(func() { _ = script.Close() })
	file := filepath.Join(t.TempDir(), "pi-worker.yaml")
	text := fmt.Sprintf(`
nats: {url: %q}
defaults: {base_url: %s, headers: {X-Team: %s}, tools: [bash], bash: {private: false, network: true}, retry: {base_delay: 1ms}}
agents: {default: {api_key_env: MY_MODEL_KEY}}
`, withPassword, script.BaseURL(), header)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PI_CONFIG", file)
	t.Setenv("MY_MODEL_KEY", key)
	script.Otherwise(func(r *looptest.Request) looptest.Answer {
		switch {
		case r.ToolResults() == 0:
			return looptest.Calls(looptest.Call{Name: "bash", Args: fmt.Sprintf(`{"command":%q}`, "env; cat "+file)})
		case strings.Contains(r.LastUser(), "fail"):
			return looptest.Reply{Status: 401, Text: "bad key " + r.Header.Get("Authorization") + " of " + r.Header.Get("X-Team")}
		}
		return looptest.Text("done")
	})
	workWith(t)

	all := ""
	for _, args := range [][]string{
		{"prompt", "--session", "s1", "hello"},
		{"prompt", "--session", "s2", "please fail"},
		{"prompt", "--session", "s3", "--agent", "nobody", "hello"},
		{"tail", "--follow=false", "--from=start", "s1"}, {"tail", "--follow=false", "--from=start", "--json", "s1"}, {"tail", "--follow=false", "--from=start", "--wire", "s2"},
		{"show", "s1"}, {"show", "--markdown", "s1"}, {"show", "--html", "s2"}, {"show", "--json", "s2"},
		{"ps"}, {"ps", "--json"}, {"queue", "ls", "s1"}, {"dlq", "ls"}, {"dlq", "ls", "--json"},
		{"doctor"}, {"doctor", "--base-url", script.BaseURL(), "--model", "m"},
		{"prompt", "--server", "nats://joe:" + password + "x@127.0.0.1:1", "hello"},
	} {
		r := invoke(t, invocation{args: args})
		if r.code == exitUsage {
			t.Errorf("%v: %s", args, r.err)
		}
		all += args[0] + ":\n" + r.out + r.err + "\n"
	}
	for line := range strings.Lines(all) {
		for _, secret := range []string{password, key, header} {
			if strings.Contains(line, secret) {
				t.Errorf("printed: %s", line)
			}
		}
	}
	for _, want := range []string{"[secret]", "bad key", "dead_letter", "bash", "doctor"} {
		if !strings.Contains(all, want) {
			t.Errorf("nothing printed %q:\n%s", want, all)
		}
	}
}

// workWith runs a worker of the configuration until the test ends.
func workWith(t *testing.T) {
	t.Helper()
	cfg, err := config.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	nc, err := wire.Connect(cfg.NATS, "test", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx, stop := context.WithCancel(context.Background())
	if err := wire.Ensure(ctx, nc, cfg, false); err != nil {
		t.Fatal(err)
	}
	agents := wire.NewAgents(cfg, log)
	w, err := worker.New(ctx, agents.Worker(nc, "v"))
	if err != nil {
		t.Fatal(err)
	}
	serve(ctx, t, w, stop, agents.Close)
}
