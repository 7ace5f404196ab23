package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/subjects"
)

// working is a `pi-worker run` inside the test.
type working struct {
	t        *testing.T
	errOut   *screen
	url      string // of http.listen
	debugURL string // of http.debug_listen
	stop     context.CancelFunc
	done     chan int
}

var listening = regexp.MustCompile(`listening.*for=(\S+) address=(\S+)`)

// startRun runs `pi-worker run` until the test ends, and waits until it
// listens.
func startRun(t *testing.T, args ...string) *working {
	t.Helper()
	w := launch(t, args...)
	w.waitFor("worker ready")
	w.findListeners()
	return w
}

// launch runs it without waiting.
func launch(t *testing.T, args ...string) *working {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &working{t: t, errOut: &screen{}, stop: cancel, done: make(chan int, 1)}
	args = append([]string{"run", "--http", "127.0.0.1:0", "--http-debug", "127.0.0.1:0"}, args...)
	go func() { w.done <- run(ctx, args, io.Discard, w.errOut) }()
	t.Cleanup(func() {
		cancel()
		if code := <-w.done; code != exitOK {
			t.Errorf("the worker ended with %d: %s", code, w.errOut)
		}
	})
	return w
}

func (w *working) findListeners() {
	for _, found := range listening.FindAllStringSubmatch(w.errOut.String(), -1) {
		if found[1] == "http.listen" {
			w.url = "http://" + found[2]
		} else {
			w.debugURL = "http://" + found[2]
		}
	}
}

func (w *working) waitFor(text string) {
	w.t.Helper()
	eventually(w.t, func() bool { return strings.Contains(w.errOut.String(), text) }, func() string {
		return "it never logged " + text + ":\n" + w.errOut.String()
	})
}

// eventually looks again and again until ok; it fails after two minutes.
func eventually(t *testing.T, ok func() bool, why func() string) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(why())
		}
	}
}

var plainClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func ask(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := plainClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestWorkerServesMetricsHealthAndProfiles(t *testing.T) {
	plain(t)
	env := natstest.Start(t, nil)
	w := startRun(t, "--server", env.Server.ClientURL())
	for _, c := range []struct {
		url  string
		code int
		says string
	}{
		{w.url + "/healthz", 200, "ok"},
		{w.url + "/readyz", 200, "ok"},
		{w.url + "/metrics", 200, `pi_worker_queue_sessions{state="waiting"} 0`},
		{w.url + "/metrics", 200, "pi_worker_ready 1"},
		{w.url + "/debug/pprof/", 404, ""},
		{w.url + "/log/level", 404, ""},
		{w.debugURL + "/debug/pprof/goroutine?debug=1", 200, "goroutine profile"},
		{w.debugURL + "/debug/pprof/cmdline", 404, ""},
		{w.debugURL + "/log/level", 200, "info"},
		{w.debugURL + "/metrics", 404, ""},
	} {
		if code, text := ask(t, "GET", c.url, ""); code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %.200q, want %d and %q", c.url, code, text, c.code, c.says)
		}
	}
}

func TestLogLevelIsChangedWhileTheWorkerRuns(t *testing.T) {
	plain(t)
	env := natstest.Start(t, nil)
	w := startRun(t, "--server", env.Server.ClientURL())
	if code, text := ask(t, "PUT", w.debugURL+"/log/level", "debug"); code != 200 || text != "debug\n" {
		t.Fatalf("got %d %q", code, text)
	}
	w.waitFor("log level changed")
}

func TestNotReadyWithoutTheConsumerAndReadyAgain(t *testing.T) {
	plain(t)
	env := natstest.Start(t, nil)
	w := startRun(t, "--server", env.Server.ClientURL())
	eventually(t, func() bool { code, _ := ask(t, "GET", w.url+"/readyz", ""); return code == 200 }, func() string { return "never ready" })
	// Again and again: the worker makes it anew, and may do so between two looks.
	var said string
	eventually(t, func() bool {
		if err := env.JS.DeleteConsumer(t.Context(), "AGENT_BELL", subjects.ConsumerWorkers); err != nil {
			t.Logf("deleting: %v", err)
		}
		code, text := ask(t, "GET", w.url+"/readyz", "")
		said = text
		return code == 503
	}, func() string { return "it was ready all the time" })
	if !strings.HasPrefix(said, "consumer: ") {
		t.Errorf("readyz says %q, not that it is the consumer", said)
	}
	if code, text := ask(t, "GET", w.url+"/healthz", ""); code != 200 {
		t.Errorf("healthz says %d %s: it would be killed for its broker", code, text)
	}
	begun := time.Now()
	eventually(t, func() bool { code, _ := ask(t, "GET", w.url+"/readyz", ""); return code == 200 }, func() string { return "never ready again" })
	t.Logf("ready again after %s", time.Since(begun))
}

func TestHealthcheckAsksReadyzWhereThereIsAPort(t *testing.T) {
	plain(t)
	env := natstest.Start(t, nil)
	w := startRun(t, "--server", env.Server.ClientURL())
	addr := strings.TrimPrefix(w.url, "http://")
	eventually(t, func() bool {
		code, out, _ := command(t, "healthcheck", "--http", addr)
		return code == exitOK && out == "ok\n"
	}, func() string { return "never healthy" })
	sick := httptest.NewServer(health(func() error { return errors.New("disk: full") }, http.NotFoundHandler()))
	defer sick.Close()
	code, _, errOut := command(t, "healthcheck", "--http", sick.Listener.Addr().String())
	if code != exitError {
		t.Errorf("code %d, want %d", code, exitError)
	}
	oneSentence(t, errOut, "not ready: disk: full")
}

func TestReadinessNamesWhatIsNotFit(t *testing.T) {
	env := natstest.Start(t, nil)
	ended, end := context.WithCancel(t.Context())
	disk := error(nil)
	f := &fitness{disk: func() error { return disk }, ended: ended}
	if err := f.Check(); err == nil || err.Error() != "worker: it starts\nbroker: not connected yet" {
		t.Errorf("before the broker answers: %v", err)
	}
	f.nc.Store(env.Connect())
	if err := f.Check(); err == nil || err.Error() != "worker: it starts" {
		t.Errorf("at the start: %v", err)
	}
	ready := func() error { return nil }
	f.worker.Store(&ready)
	if err := f.Check(); err != nil {
		t.Errorf("fit, but: %v", err)
	}
	disk = errors.Join(errors.New("no space left on device"), errors.New("and more"))
	if err := f.Check(); err == nil || err.Error() != "disk: no space left on device; and more" {
		t.Errorf("full disk: %v", err)
	}
	f.nc.Load().Close()
	end()
	err := f.Check()
	for _, want := range []string{"worker: it ends", "broker: the connection is closed", "disk: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	w := httptest.NewRecorder()
	health(f.Check, http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
	if w.Code != 503 || strings.Count(w.Body.String(), "\n") != 3 {
		t.Errorf("readyz says %d %q, want 503 and three lines", w.Code, w.Body)
	}
}

func TestLogLevelByPut(t *testing.T) {
	var level slog.LevelVar
	var out screen
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: &level}))
	h := debugging(&level, log)
	put := func(body string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("PUT", "/log/level", strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	log.Debug("before")
	if code, text := put("DEBUG\n"); code != 200 || text != "debug\n" {
		t.Errorf("got %d %q", code, text)
	}
	log.Debug("after")
	if s := out.String(); strings.Contains(s, "before") || !strings.Contains(s, "after") {
		t.Errorf("logged:\n%s", s)
	}
	for _, bad := range []string{"", "loud", "INFO+2", strings.Repeat("x", 1000)} {
		if code, text := put(bad); code != 400 || !strings.Contains(text, "debug, info, warn, error") {
			t.Errorf("%.20q: got %d %q", bad, code, text)
		}
	}
	if level.Level() != slog.LevelDebug {
		t.Errorf("level is %s after refusals", level.Level())
	}
}

func TestAddressInUse(t *testing.T) {
	plain(t)
	env := natstest.Start(t, nil)
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	code, _, errOut := command(t, "run", "--server", env.Server.ClientURL(), "--http", taken.Listener.Addr().String())
	if code != exitUsage || !strings.Contains(errOut, "http.listen") || !strings.Contains(errOut, "in use") {
		t.Errorf("code %d: %s", code, errOut)
	}
}
