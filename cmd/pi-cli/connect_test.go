package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pi-worker/pi-worker/loop/looptest"
)

func TestExitCodesOfBadConnections(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	tests := []struct{ name, url, want string }{
		{"nobody there", "nats://" + closed.Addr().String(), "no NATS answers"},
		{"nothing said", "nats://" + silent.Addr().String(), "NATS"},
		{"secrets in the URL", "nats://me:secret@" + closed.Addr().String(), "no NATS answers"},
		{"no URL", "nats://:::", "NATS"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := invoke(t, invocation{args: []string{"--server", tt.url, "--connect-timeout", "300ms", "ps"}})
			r.want(t, exitConnection, "", tt.want)
			if strings.Contains(r.err, "secret") {
				t.Errorf("the password is shown: %q", r.err)
			}
		})
	}
}

func TestServerFromEnvironment(t *testing.T) {
	f := newFleet(t)
	for _, env := range []map[string]string{
		{"NATS_URL": f.Server.ClientURL()},
		{"PI_NATS_URL": f.Server.ClientURL(), "NATS_URL": "nats://127.0.0.1:1"},
	} {
		invoke(t, invocation{env: env, args: []string{"ps"}}).want(t, exitOK, "SESSION", "")
	}
}

func TestTailDroppedConnectionIsNotSuccess(t *testing.T) {
	for _, command := range [][]string{
		{"tail", "s"},
		{"tail", "--json", "s"},
		{"tail", "--forever", "--from", "start", "done"},
		{"prompt", "--session", "s", "go on"},
	} {
		t.Run(strings.Join(command, " "), func(t *testing.T) {
			f := newFleet(t, looptest.Text("one"), looptest.Reply{Text: "endless words", Hold: make(chan struct{})})
			// A broker of its own, which can be stopped under the command.
			f.startWorker(t)
			f.cli(t, "prompt", "--session", "done", "hi").want(t, exitOK, "one", "")
			if command[0] == "tail" {
				f.prompt(t, "s", "go on")
			}
			var r result
			var wg sync.WaitGroup
			args := append([]string{"--reconnect-timeout", "200ms"}, command...)
			proxy := newProxy(t, strings.TrimPrefix(f.Server.ClientURL(), "nats://"))
			wg.Go(func() {
				r = invoke(t, invocation{args: append([]string{"--server", "nats://" + proxy.Addr()}, args...)})
			})
			proxy.untilBytes("endless", "completed")
			proxy.Close()
			wg.Wait()
			r.want(t, exitLost, "", "lost")
			f.script.Close()
		})
	}
}

// startServer runs a broker with options of its own.
func startServer(t *testing.T, opts *server.Options) string {
	t.Helper()
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return srv.ClientURL()
}

func TestNoJetStreamIsSaid(t *testing.T) {
	url := startServer(t, &server.Options{})
	for _, args := range [][]string{{"prompt", "hi"}, {"ps"}, {"tail", "s"}} {
		invoke(t, invocation{args: append(args, "--server", url)}).want(t, exitConnection, "", "has no JetStream")
	}
}

func TestCredentials(t *testing.T) {
	withUser := startServer(t, &server.Options{Username: "me", Password: "secret"})
	withToken := startServer(t, &server.Options{Authorization: "secret"})
	tests := []struct {
		name, url, want string
		env             map[string]string
		args            []string
	}{
		{"none", withUser, "refuses these credentials", nil, nil},
		{"wrong", withUser, "refuses these credentials", map[string]string{"PI_NATS_PASSWORD": "guess"}, []string{"--user", "me"}},
		{"right", withUser, "has no JetStream", map[string]string{"PI_NATS_PASSWORD": "secret"}, []string{"--user", "me"}},
		{"from the environment", withUser, "has no JetStream", map[string]string{"PI_NATS_USER": "me", "PI_NATS_PASSWORD": "secret"}, nil},
		{"wrong token", withToken, "refuses these credentials", map[string]string{"PI_NATS_TOKEN": "guess"}, nil},
		{"right token", withToken, "has no JetStream", map[string]string{"PI_NATS_TOKEN": "secret"}, nil},
		{"right password on the command line", withUser, "has no JetStream", nil, []string{"--user", "me", "--password", "secret"}},
		{"right token on the command line", withToken, "has no JetStream", nil, []string{"--token", "secret"}},
		{"no credentials file", withUser, "no such file", nil, []string{"--creds", "/no/such.creds"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"--server", tt.url, "ps"}, tt.args...)
			r := invoke(t, invocation{env: tt.env, args: args})
			r.want(t, exitConnection, "", tt.want)
			if strings.Contains(r.err, "secret") || strings.Count(r.err, "\n") != 1 {
				t.Errorf("stderr is %q", r.err)
			}
		})
	}
}

// The file and its errors are those of pi-worker.
func TestConfigurationFileCounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	url := startServer(t, &server.Options{})
	for text, want := range map[string]string{
		"nats: {url: '" + url + "'}":     "has no JetStream",
		"nats: {ulr: x}\nlog: {levl: x}": "did you mean nats.url?; log.levl",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code := exitConnection
		if strings.Contains(text, "ulr") {
			code = exitUsage
		}
		invoke(t, invocation{args: []string{"--config", file, "ps"}}).want(t, code, "", want)
	}
}
