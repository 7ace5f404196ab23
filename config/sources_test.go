package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func loadText(t *testing.T, yaml string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PI_CONFIG", path)
	return Load(nil)
}

func TestMCPServersAreReadAndMasked(t *testing.T) {
	cfg, err := loadText(t, `
mcp:
  files: {command: mcp-files, args: [--x, "1", "1", ""], env: [A=token-1], timeout: 2m}
  wiki: {url: "https://u:pw@wiki/mcp", headers: {Authorization: "Bearer verysecret"}}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := cfg.MCP["files"]
	if f.Command != "mcp-files" || !slices.Equal(f.Args, []string{"--x", "1", "1", ""}) || f.Timeout != 2*time.Minute {
		t.Errorf("files: %+v", f)
	}
	if got := cfg.MCP["wiki"].Headers["authorization"].Reveal(); got != "Bearer verysecret" {
		t.Errorf("header %q", got)
	}
	for _, s := range cfg.Effective() {
		for _, secret := range []string{"verysecret", "token-1", "pw@"} {
			if strings.Contains(s.Value, secret) {
				t.Errorf("%s shows %q", s.Key, secret)
			}
		}
	}
}

func TestUnusableMCPServersAreRefused(t *testing.T) {
	for _, yaml := range []string{
		"mcp: {a: {command: x, url: 'http://x'}}", "mcp: {a: {}}", "mcp: {a: {command: x, tmeout: 1s}}", "mcp: {a: x}", "mcp: [a]",
		"mcp: {a: {command: x, timeout: soon}}", "agents: {default: {remote_tools: ['a b']}}", "agents: {default: {approval: {ask: ['bash(']}}}",
	} {
		if _, err := loadText(t, yaml); !errors.Is(err, ErrValue) {
			t.Errorf("%s: %v", yaml, err)
		}
	}
}
