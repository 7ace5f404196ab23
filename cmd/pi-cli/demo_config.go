package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pi-worker/pi-worker/config"
)

// demoModel says which model the demo uses.
type demoModel struct {
	scripted        bool
	baseURL, name   string
	api             string
	keyEnv, keyFile string // where the workers find the key
}

// resolve finds out which model to use: the one that the flags name, the one
// of the configured default agent, or the scripted one.
func (m *demoModel) resolve() error {
	if m.scripted {
		return nil
	}
	cfg, err := config.Load(nil)
	if err != nil {
		return err
	}
	p := cfg.Agents[config.DefaultAgent]
	if m.baseURL == "" {
		if _, err := p.APIKey(); err != nil {
			m.scripted = true
			return nil
		}
		m.baseURL = p.BaseURL
	}
	if m.name == "" {
		m.name = p.Model
	}
	m.api, m.keyEnv, m.keyFile = p.API, p.APIKeyEnv, p.APIKeyFile
	return nil
}

// writeConfig writes the workers' configuration file. JSON is YAML.
func (d *demo) writeConfig() (string, error) {
	m := d.flags.model
	if m.scripted {
		m = demoModel{baseURL: d.script.BaseURL(), name: "scripted", api: "completions", keyEnv: demoKeyEnv}
	}
	type object = map[string]any
	defaults := object{
		"model": m.name, "base_url": m.baseURL, "api": m.api, "api_key_env": m.keyEnv,
		"tools":         []string{"ls", "read", "write", "bash"},
		"system_prompt": "You are an agent in an empty folder. Work in small steps, one or two tool calls at a time.",
	}
	if m.keyFile != "" {
		defaults["api_key_file"] = m.keyFile
	}
	b, err := json.MarshalIndent(object{
		"nats": object{"url": d.broker.ClientURL(), "ack_wait": demoAckWait.String()},
		"worker": object{
			"grace":     "0s",
			"workspace": object{"mode": "dir", "dir": filepath.Join(d.dir, "workspaces")},
		},
		"defaults": defaults,
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding the workers' configuration: %w", err)
	}
	name := filepath.Join(d.dir, "pi-worker.yaml")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		return "", fmt.Errorf("writing the workers' configuration: %w", err)
	}
	return name, nil
}
