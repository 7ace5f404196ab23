package main

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/internal/natsd"
)

// A worker that is started before its broker waits for it: not ready, one line
// in the log, and at work once the broker is there.
func TestWorkerMayStartBeforeItsBroker(t *testing.T) {
	plain(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	w := launch(t, "--server", "nats://127.0.0.1:"+port, "--start-timeout", "10m")
	w.waitFor("the broker is not ready, trying again")
	w.findListeners()
	if code, text := ask(t, "GET", w.url+"/readyz", ""); code != 503 || !strings.Contains(text, "broker: not connected yet") {
		t.Errorf("readyz says %d %q without a broker", code, text)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := natsd.Start(natsd.Config{Dir: t.TempDir(), Port: number})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.stop()
		w.done <- <-w.done
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	w.waitFor("worker ready")
	if code, text := ask(t, "GET", w.url+"/readyz", ""); code != 200 {
		t.Errorf("readyz says %d %q with a broker", code, text)
	}
	if n := strings.Count(w.errOut.String(), "trying again"); n != 1 {
		t.Errorf("the same trouble is logged %d times:\n%s", n, w.errOut)
	}
}

// Waiting for a broker ends in order, as a worker at work does.
func TestWorkerThatWaitsForItsBrokerEndsWhenAsked(t *testing.T) {
	plain(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	w := launch(t, "--server", "nats://"+addr, "--start-timeout", "10m")
	w.waitFor("trying again")
	w.stop() // launch wants exit code 0
}
