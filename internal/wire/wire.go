// Package wire makes what the commands need from a configuration: the
// connection, the streams' wishes, the logger, and the worker with the models
// and tools of its profiles. It is the one place that knows both the
// configuration and the packages that must not know it.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/subjects"
)

// Errors of [Connect], each with one clear sentence around it.
var (
	ErrUnreachable = errors.New("NATS does not answer")
	ErrCredentials = errors.New("NATS refuses the credentials")
)

// connectTimeout bounds the first connection.
const connectTimeout = 5 * time.Second

// Connect connects once; afterwards the connection comes back by itself, for
// as long as the process lives.
func Connect(cfg config.NATS, name string, log *slog.Logger) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name(name), nats.Timeout(connectTimeout),
		nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		// A server that is frozen, or cut off, is noticed after 15 s, not 4 minutes.
		nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2),
		nats.ReconnectBufSize(-1), // a publish either reaches the server or fails
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("connection to NATS lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("connection to NATS is back", "url", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("NATS", "error", err)
		}),
	}
	more, err := identity(cfg)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(cfg.URL.Reveal(), append(opts, more...)...)
	if err != nil {
		return nil, explain(cfg.URL, err)
	}
	return nc, nil
}

// readable says why a file cannot be read. The NATS client says it too, but no
// broker that is waited for makes it better.
func readable(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return f.Close()
}

// identity says who we are.
func identity(cfg config.NATS) ([]nats.Option, error) {
	var opts []nats.Option
	switch {
	case cfg.Creds != "":
		if err := readable(cfg.Creds); err != nil {
			return nil, fmt.Errorf("%w: nats.creds: %w", ErrConfig, err)
		}
		opts = append(opts, nats.UserCredentials(cfg.Creds))
	case cfg.NKey != "":
		opt, err := nats.NkeyOptionFromSeed(cfg.NKey)
		if err != nil {
			return nil, fmt.Errorf("%w: reading nats.nkey %s: %w", ErrCredentials, cfg.NKey, err)
		}
		opts = append(opts, opt)
	case cfg.User != "":
		opts = append(opts, nats.UserInfo(cfg.User, cfg.Password.Reveal()))
	case cfg.Token != "":
		opts = append(opts, nats.Token(cfg.Token.Reveal()))
	}
	if cfg.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(cfg.InboxPrefix))
	}
	for _, file := range []struct{ key, name string }{{"nats.tls.ca", cfg.TLS.CA}, {"nats.tls.cert", cfg.TLS.Cert}, {"nats.tls.key", cfg.TLS.Key}} {
		if file.name == "" {
			continue
		}
		if err := readable(file.name); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrConfig, file.key, err)
		}
	}
	if cfg.TLS.CA != "" {
		opts = append(opts, nats.RootCAs(cfg.TLS.CA))
	}
	if cfg.TLS.Cert != "" {
		opts = append(opts, nats.ClientCert(cfg.TLS.Cert, cfg.TLS.Key))
	}
	return opts, nil
}

func explain(url config.URL, err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		strings.Contains(strings.ToLower(err.Error()), "authorization"):
		return fmt.Errorf("%w (%s)", ErrCredentials, url)
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%w at %s", ErrUnreachable, url)
	}
	text := strings.TrimPrefix(err.Error(), "nats: ")
	if strings.Contains(text, "tls") || strings.Contains(text, "x509") {
		return &tlsError{fmt.Sprintf("TLS with NATS at %s fails: %s; see nats.tls.ca, and nats.tls.cert with nats.tls.key", url, text)}
	}
	return fmt.Errorf("%w at %s: %s", ErrUnreachable, url, text)
}

// tlsError is ErrUnreachable in other words: somebody answers.
type tlsError struct{ text string }

func (e *tlsError) Error() string { return e.text }

// Is makes errors.Is(err, ErrUnreachable) true.
func (e *tlsError) Is(target error) bool { return target == ErrUnreachable }

// Names are the subjects of the configured prefix.
func Names(cfg *config.Config) subjects.Names { return subjects.Names{Prefix: cfg.NATS.Prefix} }

// EnsureOptions are the configured wishes for the streams.
func EnsureOptions(cfg *config.Config) *subjects.EnsureOptions {
	return &subjects.EnsureOptions{
		Replicas: cfg.NATS.Replicas, AckWait: cfg.NATS.AckWait,
		EventsMaxAge: cfg.Retention.MaxAge, EventsMaxBytes: int64(cfg.Retention.MaxBytes),
		DLQMaxAge: cfg.Retention.DLQMaxAge,
	}
}

// Ensure creates the streams. With force it changes those that exist with
// another configuration.
func Ensure(ctx context.Context, nc *nats.Conn, cfg *config.Config, force bool) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("opening JetStream: %w", err)
	}
	opts := EnsureOptions(cfg)
	opts.Force = force
	return subjects.Ensure(ctx, js, Names(cfg), opts)
}

// Logger writes to w as configured.
func Logger(cfg config.Log, w io.Writer) *slog.Logger {
	log, _ := LeveledLogger(cfg, w)
	return log
}

// LeveledLogger is Logger, with the level to be changed while it is used.
func LeveledLogger(cfg config.Log, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	var level slog.LevelVar
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level.Set(slog.LevelInfo) // Load has checked it
	}
	opts := &slog.HandlerOptions{Level: &level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts)), &level
	}
	return slog.New(slog.NewTextHandler(w, opts)), &level
}
