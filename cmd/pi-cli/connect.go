package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/config"
)

// serverFlags say which NATS, and as whom: the configuration's flags, which
// stand over its variables and its file.
type serverFlags struct {
	flags            *pflag.FlagSet
	password, token  string
	connectTimeout   time.Duration
	reconnectTimeout time.Duration
}

func (f *serverFlags) register(flags *pflag.FlagSet) {
	f.flags = flags
	config.AddFlags(flags, config.ForClient)
	flags.StringVar(&f.password, "password", "", "password of --user; better in $PI_NATS_PASSWORD, where ps does not show it")
	flags.StringVar(&f.token, "token", "", "token; better in $PI_NATS_TOKEN")
	flags.DurationVar(&f.connectTimeout, "connect-timeout", 5*time.Second, "how long to wait for the server")
	flags.DurationVar(&f.reconnectTimeout, "reconnect-timeout", 30*time.Second, "how long a lost connection is tried again before the command ends with code 7")
}

// load reads the configuration; what is wrong with it is one usage error.
func (f *serverFlags) load() (*config.Config, error) {
	cfg, err := config.Load(f.flags)
	if err != nil {
		return nil, usageErrorf("%s", strings.NewReplacer("\nconfig: ", "; ", "\n", " ").Replace(strings.TrimPrefix(err.Error(), "config: ")))
	}
	if f.password != "" {
		cfg.NATS.Password = config.Secret(f.password)
	}
	if f.token != "" {
		cfg.NATS.Token = config.Secret(f.token)
	}
	return cfg, nil
}

// options are the configuration as nats.go takes it.
func (f *serverFlags) options(n config.NATS) ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name("pi-cli"), nats.Timeout(f.connectTimeout),
		nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		// A server that is frozen, or cut off, is noticed after 15 s, not 4 minutes.
		nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2),
	}
	if n.Creds != "" {
		opts = append(opts, nats.UserCredentials(n.Creds))
	}
	if n.NKey != "" {
		opt, err := nats.NkeyOptionFromSeed(n.NKey)
		if err != nil {
			return nil, usageErrorf("reading the NKey seed %s: %s", n.NKey, reason(err))
		}
		opts = append(opts, opt)
	}
	if n.User != "" {
		opts = append(opts, nats.UserInfo(n.User, n.Password.Reveal()))
	}
	if n.Token != "" {
		opts = append(opts, nats.Token(n.Token.Reveal()))
	}
	if n.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(n.InboxPrefix))
	}
	if n.TLS.CA != "" {
		opts = append(opts, nats.RootCAs(n.TLS.CA))
	}
	if n.TLS.Cert != "" {
		opts = append(opts, nats.ClientCert(n.TLS.Cert, n.TLS.Key))
	}
	return opts, nil
}

// connect opens the connection and the client over it; close ends both.
func (a *app) connect(ctx context.Context) (c *client.Client, closeAll func(), err error) {
	f := &a.server
	cfg, err := f.load()
	if err != nil {
		return nil, nil, err
	}
	server := cfg.NATS.URL.Reveal()
	opts, err := f.options(cfg.NATS)
	if err != nil {
		return nil, nil, err
	}
	watch := &lossWatch{app: a, patience: f.reconnectTimeout}
	opts = append(opts, nats.DisconnectErrHandler(watch.lost), nats.ReconnectHandler(watch.back))
	nc, err := nats.Connect(server, opts...)
	if err != nil {
		return nil, nil, connectionError(server, err)
	}
	closeAll = func() {
		watch.stop()
		nc.Close()
	}
	openCtx, cancel := context.WithTimeout(ctx, f.connectTimeout)
	defer cancel()
	c, err = client.New(openCtx, nc, &client.Options{Prefix: cfg.NATS.Prefix, MaxInputBytes: int(cfg.MaxInputBytes)})
	if err != nil {
		closeAll()
		if errors.Is(err, client.ErrPrefix) {
			return nil, nil, usageErrorf("prefix %q must be words of letters, digits, _ and -, joined by dots", cfg.NATS.Prefix)
		}
		return nil, nil, connectionError(server, err)
	}
	return c, closeAll, nil
}

// lossWatch closes a connection that stays lost for longer than the user's
// patience. The client then reports the stream as lost.
type lossWatch struct {
	app      *app
	patience time.Duration
	timer    atomic.Pointer[time.Timer]
	stopped  atomic.Bool
}

func (w *lossWatch) lost(nc *nats.Conn, err error) {
	if w.stopped.Load() {
		return
	}
	why := ""
	if err != nil {
		why = " (" + err.Error() + ")"
	}
	w.app.note("! connection to NATS lost%s; trying again for %s", why, w.patience)
	w.timer.Store(time.AfterFunc(w.patience, nc.Close))
}

func (w *lossWatch) back(*nats.Conn) {
	if t := w.timer.Swap(nil); t != nil {
		t.Stop()
	}
	w.app.note("! connection to NATS is back")
}

func (w *lossWatch) stop() {
	w.stopped.Store(true)
	if t := w.timer.Swap(nil); t != nil {
		t.Stop()
	}
}

// connectionError says in one sentence why there is no NATS to talk to.
func connectionError(server string, err error) error {
	at := withoutSecrets(server)
	say := func(format string, args ...any) error {
		return &codedError{code: exitConnection, message: fmt.Sprintf(format, args...)}
	}
	var netErr net.Error
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return say("NATS at %s refuses these credentials", at)
	case errors.Is(err, nats.ErrSecureConnRequired):
		return say("NATS at %s wants TLS: use a tls:// URL, and --tls-ca for a private authority", at)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return say("NATS at %s does not speak TLS", at)
	case errors.Is(err, client.ErrNoJetStream):
		return say("NATS at %s has no JetStream for this account: start nats-server with -js", at)
	case errors.Is(err, nats.ErrNoServers):
		return say("no NATS answers at %s; `pi-worker dev` starts one, --server names another", at)
	case errors.As(err, &netErr) && netErr.Timeout(), errors.Is(err, nats.ErrTimeout), errors.Is(err, client.ErrNoServer):
		return say("NATS at %s does not answer in time", at)
	}
	return say("connecting to NATS at %s: %v", at, strings.TrimPrefix(err.Error(), "nats: "))
}

// withoutSecrets is a list of URLs fit for a message.
func withoutSecrets(servers string) string {
	list := strings.Split(servers, ",")
	for i, s := range list {
		if u, err := url.Parse(strings.TrimSpace(s)); err == nil && u.User != nil {
			u.User = nil
			list[i] = u.String()
		}
	}
	return strings.Join(list, ",")
}
