package main

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/internal/chaos/check"
)

// world is what tools have their effect on. It outlives every worker, and
// remembers each effect by the call's key.
type world struct {
	srv *http.Server
	url string
	wg  sync.WaitGroup

	mu      sync.Mutex // guards effects
	effects []check.Effect
}

func startWorld() (*world, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &world{url: "http://" + ln.Addr().String()}
	w.srv = &http.Server{Handler: http.HandlerFunc(w.effect)}
	w.wg.Go(func() { _ = w.srv.Serve(ln) })
	return w, nil
}

func (w *world) effect(rw http.ResponseWriter, r *http.Request) {
	var e check.Effect
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		return // the worker died in the middle of asking: no effect
	}
	e.Time = time.Now()
	e.Session, _, _ = strings.Cut(e.Key, "/")
	w.mu.Lock()
	w.effects = append(w.effects, e)
	w.mu.Unlock()
	rw.WriteHeader(http.StatusNoContent)
}

func (w *world) all() []check.Effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]check.Effect(nil), w.effects...)
}

func (w *world) close() {
	w.srv.Close()
	w.wg.Wait()
}
