package wire_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/wire"
)

func TestWhatEverySessionWouldFailByIsSaidBefore(t *testing.T) {
	dir, file := t.TempDir(), write(t, "file", nil)
	for _, c := range []struct{ yaml, says string }{
		{`worker: {workspace: {mode: snapshot, dir: "` + dir + `/a/b"}}`, ""},
		{`worker: {workspace: {mode: temp, dir: "` + dir + `/c"}}`, ""},
		{`worker: {workspace: {mode: dir, dir: "` + file + `"}}`, "worker.workspace.dir"},
		{`worker: {workspace: {mode: temp, dir: "` + file + `/x"}}`, "worker.workspace.dir"},
		{`worker: {workspace: {mode: snapshot, exclude: ["[a"]}}`, "worker.workspace.exclude"},
		{`defaults: {tools: [raed, ls]}`, `agents.default.tools: no built-in tool is called "raed"`},
	} {
		err := agents(t, c.yaml+"\nagents: {default: {model: m, base_url: 'http://127.0.0.1:1/v1'}}").Check()
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, wire.ErrConfig) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v", c.yaml, err)
		}
	}
}

// A file that is not there is the configuration's fault, not that of a broker
// that may be waited for.
func TestFilesOfTheIdentityThatAreNotThereAreTheConfigurationsFault(t *testing.T) {
	const gone = "/no/such/file"
	for key, cfg := range map[string]config.NATS{
		"nats.creds":    {Creds: gone},
		"nats.tls.ca":   {TLS: config.TLS{CA: gone}},
		"nats.tls.cert": {TLS: config.TLS{Cert: gone, Key: gone}},
	} {
		cfg.URL = "nats://127.0.0.1:1"
		if _, err := wire.Connect(cfg, "test", slog.New(slog.DiscardHandler)); !errors.Is(err, wire.ErrConfig) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: got %v", key, err)
		}
	}
}
