package main

import (
	"cmp"
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
)

// serverFlags say which NATS, and as whom.
type serverFlags struct {
	url, prefix           string
	creds, nkey           string
	user, password, token string
	ca, cert, key         string
	connectTimeout        time.Duration
	reconnectTimeout      time.Duration
}

// register defines the flags; what they leave open, resolve fills.
func (f *serverFlags) register(flags *pflag.FlagSet) {
	flags.StringVarP(&f.url, "server", "s", "", "NATS URL, several with commas ($PI_NATS_URL, $NATS_URL; default "+nats.DefaultURL+")")
	flags.StringVar(&f.prefix, "prefix", "", `first token of all subjects ($PI_NATS_PREFIX; default "agent")`)
	flags.StringVar(&f.creds, "creds", "", "credentials file with JWT and seed ($PI_NATS_CREDS)")
	flags.StringVar(&f.nkey, "nkey", "", "file with an NKey seed ($PI_NATS_NKEY)")
	flags.StringVar(&f.user, "user", "", "user name ($PI_NATS_USER)")
	flags.StringVar(&f.password, "password", "", "password; better in $PI_NATS_PASSWORD, where ps does not show it")
	flags.StringVar(&f.token, "token", "", "token; better in $PI_NATS_TOKEN")
	flags.StringVar(&f.ca, "tls-ca", "", "file with the authority that signed the server's certificate ($PI_NATS_TLS_CA)")
	flags.StringVar(&f.cert, "tls-cert", "", "client certificate file, with --tls-key ($PI_NATS_TLS_CERT)")
	flags.StringVar(&f.key, "tls-key", "", "client key file ($PI_NATS_TLS_KEY)")
	flags.DurationVar(&f.connectTimeout, "connect-timeout", 5*time.Second, "how long to wait for the server")
	flags.DurationVar(&f.reconnectTimeout, "reconnect-timeout", 30*time.Second, "how long a lost connection is tried again before the command ends with code 7")
}

// resolve fills what no flag gave from the environment. That is not done by
// flag defaults because --help would print the secrets.
func (f *serverFlags) resolve(env func(string) string) {
	f.url = cmp.Or(f.url, env("PI_NATS_URL"), env("NATS_URL"), nats.DefaultURL)
	for _, v := range []struct {
		value *string
		name  string
	}{
		{&f.prefix, "PI_NATS_PREFIX"},
		{&f.creds, "PI_NATS_CREDS"}, {&f.nkey, "PI_NATS_NKEY"},
		{&f.user, "PI_NATS_USER"}, {&f.password, "PI_NATS_PASSWORD"}, {&f.token, "PI_NATS_TOKEN"},
		{&f.ca, "PI_NATS_TLS_CA"}, {&f.cert, "PI_NATS_TLS_CERT"}, {&f.key, "PI_NATS_TLS_KEY"},
	} {
		*v.value = cmp.Or(*v.value, env(v.name))
	}
}

// options are the flags as nats.go takes them.
func (f *serverFlags) options() ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name("pi-cli"), nats.Timeout(f.connectTimeout),
		nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
	}
	if f.creds != "" {
		opts = append(opts, nats.UserCredentials(f.creds))
	}
	if f.nkey != "" {
		opt, err := nats.NkeyOptionFromSeed(f.nkey)
		if err != nil {
			return nil, usageErrorf("reading the NKey seed %s: %s", f.nkey, reason(err))
		}
		opts = append(opts, opt)
	}
	if f.user != "" || f.password != "" {
		opts = append(opts, nats.UserInfo(f.user, f.password))
	}
	if f.token != "" {
		opts = append(opts, nats.Token(f.token))
	}
	if f.ca != "" {
		opts = append(opts, nats.RootCAs(f.ca))
	}
	if (f.cert == "") != (f.key == "") {
		return nil, usageErrorf("--tls-cert and --tls-key go together")
	}
	if f.cert != "" {
		opts = append(opts, nats.ClientCert(f.cert, f.key))
	}
	return opts, nil
}

// connect opens the connection and the client over it; close ends both.
func (a *app) connect(ctx context.Context) (c *client.Client, closeAll func(), err error) {
	f := &a.server
	f.resolve(a.env)
	opts, err := f.options()
	if err != nil {
		return nil, nil, err
	}
	watch := &lossWatch{app: a, patience: f.reconnectTimeout}
	opts = append(opts, nats.DisconnectErrHandler(watch.lost), nats.ReconnectHandler(watch.back))
	nc, err := nats.Connect(f.url, opts...)
	if err != nil {
		return nil, nil, connectionError(f.url, err)
	}
	closeAll = func() {
		watch.stop()
		nc.Close()
	}
	openCtx, cancel := context.WithTimeout(ctx, f.connectTimeout)
	defer cancel()
	c, err = client.New(openCtx, nc, &client.Options{Prefix: f.prefix})
	if err != nil {
		closeAll()
		if errors.Is(err, client.ErrPrefix) {
			return nil, nil, usageErrorf("prefix %q must be words of letters, digits, _ and -, joined by dots", f.prefix)
		}
		return nil, nil, connectionError(f.url, err)
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
