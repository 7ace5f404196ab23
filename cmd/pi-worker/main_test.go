package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/pi-worker/pi-worker/internal/natstest"
)

// asWorker makes a process of the test binary a pi-worker.
const asWorker = "TEST_AS_PI_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// screen is what a command printed; it may be read while the command runs.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func command(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var o, e screen
	code = run(ctx, args, &o, &e)
	return code, o.String(), e.String()
}

// plain keeps the developer's own configuration away.
func plain(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "PI_") || strings.HasPrefix(name, "OPENAI_") {
			t.Setenv(name, "")
		}
	}
}

// oneSentence is what every failure ends with: a line, never a stack trace.
func oneSentence(t *testing.T, errOut string, words ...string) {
	t.Helper()
	if n := strings.Count(errOut, "\n"); n != 1 || strings.Contains(errOut, "goroutine ") {
		t.Errorf("stderr has %d lines, want one sentence:\n%s", n, errOut)
	}
	for _, w := range words {
		if !strings.Contains(errOut, w) {
			t.Errorf("stderr %q lacks %q", errOut, w)
		}
	}
}

func TestVersionFromBuildInfo(t *testing.T) {
	plain(t)
	code, out, _ := command(t, "--version")
	if code != exitOK || !strings.HasPrefix(out, "pi-worker ") || !strings.Contains(out, "go1.") {
		t.Errorf("code %d, %q", code, out)
	}
}

func TestUsageErrors(t *testing.T) {
	plain(t)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--no-such-flag"}, "no-such-flag"},
		{[]string{"rnu"}, `did you mean run?`},
		{[]string{"config", "more"}, "takes no arguments"},
		{[]string{"--sessions", "none"}, "sessions"},
		{[]string{"dev", "--port", "99999"}, "--port 99999 is no port"},
		{[]string{"dev", "--port", "-1"}, "--port -1 is no port"},
	} {
		code, _, errOut := command(t, c.args...)
		if code != exitUsage {
			t.Errorf("%v: code %d, want %d", c.args, code, exitUsage)
		}
		oneSentence(t, errOut, c.says)
	}
}

func TestConfigShowsOriginsAndMasks(t *testing.T) {
	plain(t)
	t.Setenv("PI_NATS_TOKEN", "very-secret")
	code, out, errOut := command(t, "config", "--sessions", "3")
	if code != exitOK {
		t.Fatalf("code %d: %s", code, errOut)
	}
	if strings.Contains(out, "very-secret") {
		t.Error("the token is printed")
	}
	for _, want := range []string{"flag --sessions", "env PI_NATS_TOKEN", "nats.url"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q", want)
		}
	}
}

func TestNATSUnreachable(t *testing.T) {
	plain(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := command(t, "--server", "nats://"+addr, "--start-timeout", "0s")
	if code != exitUnreachable {
		t.Errorf("code %d, want %d", code, exitUnreachable)
	}
	oneSentence(t, errOut, addr, "does not answer")
}

// bare starts a server with options of its own.
func bare(t *testing.T, opts *server.Options) string {
	t.Helper()
	opts.Host, opts.Port, opts.NoLog, opts.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, true
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("server is not ready")
	}
	return srv.ClientURL()
}

func TestNATSWithoutJetStream(t *testing.T) {
	plain(t)
	code, _, errOut := command(t, "--server", bare(t, &server.Options{}))
	if code != exitJetStream {
		t.Errorf("code %d, want %d", code, exitJetStream)
	}
	oneSentence(t, errOut, "JetStream is not enabled")
}

func TestWrongCredentials(t *testing.T) {
	plain(t)
	url := bare(t, &server.Options{Username: "u", Password: "right"})
	t.Setenv("PI_NATS_PASSWORD", "wrong-password")
	code, _, errOut := command(t, "--server", url, "--user", "u")
	if code != exitCredentials {
		t.Errorf("code %d, want %d", code, exitCredentials)
	}
	oneSentence(t, errOut, "refuses the credentials")
	if strings.Contains(errOut, "wrong-password") {
		t.Error("the password is printed")
	}
}

func TestStreamWithAnotherConfiguration(t *testing.T) {
	plain(t)
	e := natstest.Start(t, nil)
	_, err := e.JS.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "AGENT_EVENTS", Subjects: []string{"agent.*.events"}, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	code, _, errOut := command(t, "--server", e.Server.ClientURL())
	if code != exitConflict {
		t.Errorf("code %d, want %d: %s", code, exitConflict, errOut)
	}
	if !strings.Contains(errOut, "AGENT_EVENTS") || !strings.Contains(errOut, "storage") {
		t.Errorf("stderr %q names neither stream nor field", errOut)
	}
}

// devRun runs `pi-worker dev` until the test ends, and gives its URL.
func devRun(t *testing.T, args ...string) (out *screen, url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out = &screen{}
	var errOut screen
	done := make(chan int, 1)
	go func() { done <- run(ctx, append([]string{"dev", "--port", "0"}, args...), out, &errOut) }()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != exitOK {
			t.Errorf("dev ended with %d: %s", code, errOut.String())
		}
	})
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, rest, ok := strings.Cut(out.String(), "JetStream:"); ok && strings.Contains(errOut.String(), "worker ready") {
			return out, strings.Fields(rest)[0]
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("dev says %q and %q", out.String(), errOut.String())
		}
	}
}

func TestDevAnswersStranger(t *testing.T) {
	plain(t)
	dir := filepath.Join(t.TempDir(), "js")
	out, url := devRun(t, "--dir", dir)
	if !strings.Contains(out.String(), "scripted") {
		t.Errorf("nothing says that the model is scripted:\n%s", out)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync("agent.s1.events")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish("agent.s1.prompt", []byte("hello from a stranger")); err != nil {
		t.Fatal(err)
	}
	all := ""
	for !strings.Contains(all, "agent_settled") {
		m, err := sub.NextMsg(30 * time.Second)
		if err != nil {
			t.Fatalf("%v after\n%s", err, all)
		}
		all += string(m.Data) + "\n"
	}
	if !strings.Contains(all, `"outcome":"completed"`) || !strings.Contains(all, "tool_execution_end") {
		t.Errorf("events lack an outcome or a tool call:\n%s", all)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("nothing was kept: %v", err)
	}
}

func TestDevPortInUse(t *testing.T) {
	plain(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := l.Addr().(*net.TCPAddr).Port
	code, _, errOut := command(t, "dev", "--port", fmt.Sprint(port))
	if code != exitPort {
		t.Errorf("code %d, want %d", code, exitPort)
	}
	oneSentence(t, errOut, fmt.Sprint(port))
}

func TestDevWithoutItsKeyFile(t *testing.T) {
	plain(t)
	t.Setenv("PI_AGENTS_DEFAULT_API_KEY_FILE", "/no/such/key")
	code, _, errOut := command(t, "dev", "--port", "0")
	if code != exitUsage {
		t.Errorf("code %d, want %d", code, exitUsage)
	}
	if !strings.Contains(errOut, "/no/such/key") {
		t.Errorf("stderr %q does not name the file", errOut)
	}
}
