package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/config"
)

// maxLevelBytes is the longest body that /log/level reads.
const maxLevelBytes = 64

// fitness says whether the worker is fit for work, and if not, why.
type fitness struct {
	nc   atomic.Pointer[nats.Conn] // nil before the first connection
	disk func() error
	// worker is asked once the worker is there.
	worker atomic.Pointer[func() error]
	ended  context.Context // it hands over when this has ended
}

// Check joins an error for each thing that is not fit.
func (f *fitness) Check() error {
	var errs []error
	bad := func(what string, err error) {
		if err != nil {
			// One line each, however many the cause has.
			errs = append(errs, fmt.Errorf("%s: %s", what, strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
	}
	ready := f.worker.Load()
	switch {
	case f.ended.Err() != nil:
		bad("worker", errors.New("it ends, and hands its sessions over"))
	case ready == nil:
		bad("worker", errors.New("it starts"))
	}
	if nc := f.nc.Load(); nc == nil {
		bad("broker", errors.New("not connected yet"))
	} else if status := nc.Status(); status != nats.CONNECTED {
		bad("broker", fmt.Errorf("the connection is %s", strings.ToLower(status.String())))
	} else if ready != nil {
		bad("consumer", (*ready)())
	}
	bad("disk", f.disk())
	return errors.Join(errs...)
}

// health serves what probes ask for, and the metrics.
func health(ready func() error, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// debugging serves profiles and the log's level.
func debugging(level *slog.LevelVar, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	// Not /debug/pprof/cmdline: flags are none of a reader's business.
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	say := func(w http.ResponseWriter) { fmt.Fprintln(w, strings.ToLower(level.Level().String())) }
	mux.HandleFunc("GET /log/level", func(w http.ResponseWriter, _ *http.Request) { say(w) })
	mux.HandleFunc("PUT /log/level", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxLevelBytes))
		word := strings.ToLower(strings.TrimSpace(string(body)))
		var to slog.Level
		switch word {
		case "debug", "info", "warn", "error":
			err = errors.Join(err, to.UnmarshalText([]byte(word)))
		default:
			err = fmt.Errorf("the body must be one of debug, info, warn, error, not %q", word)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		level.Set(to)
		log.Warn("log level changed", "level", word) // a warning: seen at most levels
		say(w)
	})
	return mux
}

// listeners are the worker's own addresses.
type listeners struct {
	log     *slog.Logger
	servers []*http.Server
	wg      sync.WaitGroup
}

// listen serves on addr until Close; "" opens nothing.
func (l *listeners) listen(what, addr string, h http.Handler) error {
	if addr == "" {
		return nil
	}
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", what, err)}
	}
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(l.log.Handler(), slog.LevelDebug),
	}
	l.servers = append(l.servers, srv)
	l.log.Info("listening", "for", what, "address", lis.Addr().String())
	l.wg.Go(func() { // ends by Close
		if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			l.log.Error("serving", "for", what, "error", err)
		}
	})
	return nil
}

// listenAll opens the configured addresses.
func (l *listeners) listenAll(cfg config.HTTP, public, private http.Handler) error {
	if err := l.listen("http.listen", cfg.Listen, public); err != nil {
		return err
	}
	return l.listen("http.debug_listen", cfg.DebugListen, private)
}

// Close ends them; requests that run get a second.
func (l *listeners) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var errs []error
	for _, srv := range l.servers {
		if srv.Shutdown(ctx) != nil {
			errs = append(errs, srv.Close())
		}
	}
	l.wg.Wait()
	return errors.Join(errs...)
}
