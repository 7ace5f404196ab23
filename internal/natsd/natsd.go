// Package natsd runs a nats-server with JetStream inside the process, for
// pi-worker dev, the demo and tests.
package natsd

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Errors of [Start].
var (
	// ErrPortInUse says that another process listens on the wanted port.
	ErrPortInUse = errors.New("natsd: port is in use")
	// ErrFolderInUse says that another server keeps its files there.
	ErrFolderInUse = errors.New("natsd: folder is in use by another server")
)

// DefaultReadyTimeout is how long Start waits for the server.
const DefaultReadyTimeout = 10 * time.Second

// Config configures [Start].
type Config struct {
	Dir  string // where JetStream keeps its files; "" means a new temporary folder, removed by Close
	Host string // "" means 127.0.0.1
	Port int    // 0 means any free port
	// DontListen opens no port: only [nats.InProcessServer] reaches it.
	DontListen bool
	MaxPayload int32 // bytes; 0 means the server's default of 1 MiB
	// SyncAlways makes JetStream sync every message to disk before it
	// acknowledges.
	SyncAlways   bool
	ReadyTimeout time.Duration // 0 means DefaultReadyTimeout
	Logger       *slog.Logger  // nil discards
}

// Server is a running nats-server.
type Server struct {
	srv  *server.Server
	temp string   // folder to remove, "" none
	lock *os.File // on the folder, nil none
}

// Start starts a server and waits until it takes connections. It listens on
// loopback unless Host says otherwise. [ErrPortInUse] if it can't.
func Start(cfg Config) (_ *Server, err error) {
	s := &Server{}
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	if cfg.ReadyTimeout <= 0 {
		cfg.ReadyTimeout = DefaultReadyTimeout
	}
	port := cfg.Port
	if port == 0 {
		port = server.RANDOM_PORT
	} else if err := checkPort(cfg.Host, port); err != nil && !cfg.DontListen {
		return nil, err
	}
	if cfg.Dir == "" {
		if cfg.Dir, err = os.MkdirTemp("", "pi-worker-nats-"); err != nil {
			return nil, fmt.Errorf("natsd: making a folder: %w", err)
		}
		s.temp = cfg.Dir
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.lock, err = lock(cfg.Dir); err != nil {
		return nil, fmt.Errorf("natsd: folder %s: %w", cfg.Dir, err)
	}
	log := &logger{log: cfg.Logger, dead: make(chan struct{})}
	if log.log == nil {
		log.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	s.srv, err = server.NewServer(&server.Options{
		ServerName: "pi-worker-dev",
		Host:       cfg.Host,
		Port:       port,
		DontListen: cfg.DontListen,
		JetStream:  true,
		StoreDir:   cfg.Dir,
		MaxPayload: cfg.MaxPayload,
		SyncAlways: cfg.SyncAlways,
		NoSigs:     true,
	})
	if err != nil {
		return nil, fmt.Errorf("natsd: configuring: %w", err)
	}
	s.srv.SetLoggerV2(log, false, false, false)
	s.srv.Start()
	if err := s.ready(log, cfg.ReadyTimeout); err != nil {
		return nil, fmt.Errorf("natsd: starting with folder %s: %w", cfg.Dir, err)
	}
	return s, nil
}

// ready waits until the server takes connections, or says why it never will.
func (s *Server) ready(log *logger, timeout time.Duration) error {
	for end := time.Now().Add(timeout); !s.srv.ReadyForConnections(100 * time.Millisecond); {
		select {
		case <-log.dead:
			return errors.New(log.fatal())
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("not ready within %v", timeout)
		}
	}
	if !s.srv.JetStreamEnabled() {
		return fmt.Errorf("JetStream is not enabled: %s", log.fatal())
	}
	return nil
}

// checkPort finds out before the server does, which would only log it.
func checkPort(host string, port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: %s:%d", ErrPortInUse, host, port)
	}
	if err != nil {
		return fmt.Errorf("natsd: listening on %s:%d: %w", host, port, err)
	}
	return l.Close()
}

// ClientURL is where clients connect; "" with DontListen.
func (s *Server) ClientURL() string {
	if s.srv.Addr() == nil {
		return ""
	}
	return s.srv.ClientURL()
}

// InProcessConn makes Server a nats.InProcessConnProvider.
func (s *Server) InProcessConn() (net.Conn, error) { return s.srv.InProcessConn() }

// Close stops the server and waits for it; messages on disk stay unless the
// folder is a temporary one.
func (s *Server) Close() error {
	if s.srv != nil {
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
	}
	if s.lock != nil {
		s.lock.Close() // opened for its lock alone, nothing was written
		s.lock = nil
	}
	if s.temp == "" {
		return nil
	}
	if err := os.RemoveAll(s.temp); err != nil {
		return fmt.Errorf("natsd: removing the temporary folder: %w", err)
	}
	return nil
}
