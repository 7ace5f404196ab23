package config_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pi-worker/pi-worker/config"
	"github.com/spf13/pflag"
)

func Example() {
	dir, _ := os.MkdirTemp("", "config")
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "pi-worker.yaml")
	_ = os.WriteFile(file, []byte(`
agents:
  coder:
    model: qwen3-coder
    base_url: http://localhost:11434/v1
    tools: [read, ls, bash]
`), 0o600)

	fs := pflag.NewFlagSet("pi-worker", pflag.ContinueOnError)
	config.AddFlags(fs, config.ForWorker)
	_ = fs.Parse([]string{"--config", file, "--sessions", "8"})
	cfg, err := config.Load(fs)
	if err != nil {
		fmt.Println(err)
		return
	}
	coder, _ := cfg.Profile("coder")
	fmt.Println(coder.Model, coder.Tools, cfg.Worker.Sessions)
	_, err = coder.Narrow(config.Narrowing{Tools: []string{"write"}})
	fmt.Println(err)
	// Output:
	// qwen3-coder [read ls bash] 8
	// config: more than the agent profile allows: agent "coder": tool "write" (allowed: read, ls, bash)
}
