package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/subjects"
)

// checkTime bounds one question to the broker.
const checkTime = 3 * time.Second

// broker is what doctor examines.
type broker struct {
	*report
	nc       *nats.Conn
	js       jetstream.JetStream
	names    subjects.Names
	url      string
	refusals chan string // of the server, from its error handler
	missing  bool        // streams do not exist
}

// examineBroker reports about the configured broker. Its error is only for a
// configuration that cannot be read.
func (a *app) examineBroker(ctx context.Context, r *report, monitor string) error {
	cfg, err := a.server.load()
	if err != nil {
		return err
	}
	opts, err := a.server.options(cfg.NATS)
	if err != nil {
		return err
	}
	b := &broker{
		report: r, names: subjects.Names{Prefix: cfg.NATS.Prefix}, url: withoutSecrets(cfg.NATS.URL.Reveal()),
		refusals: make(chan string, 64),
	}
	opts = append(opts, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case b.refusals <- err.Error():
		default: // nobody waits for so many
		}
	}))
	b.nc, err = nats.Connect(cfg.NATS.URL.Reveal(), opts...)
	if err != nil {
		words := connectionError(cfg.NATS.URL.Reveal(), err).Error()
		r.line(bad, "broker", words, adviceFor(err))
		return nil
	}
	defer b.nc.Close()
	if b.js, err = jetstream.New(b.nc, jetstream.WithDefaultTimeout(checkTime)); err != nil {
		return fmt.Errorf("opening JetStream: %w", err)
	}
	b.server()
	if !b.jetStream(ctx) {
		return nil
	}
	b.streams(ctx)
	b.consumers(ctx)
	b.permissions(ctx)
	b.disk(ctx, monitor)
	return nil
}

func adviceFor(err error) string {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return "give --creds, --nkey, --user with $PI_NATS_PASSWORD, or $PI_NATS_TOKEN"
	case errors.Is(err, nats.ErrSecureConnRequired), errors.Is(err, nats.ErrSecureConnWanted):
		return "tls:// and nats:// must match what the server speaks"
	case strings.Contains(err.Error(), "x509"), strings.Contains(err.Error(), "tls:"):
		return "give the server's authority with --tls-ca, and your certificate with --tls-cert and --tls-key"
	}
	return "start the broker, or name another with --server"
}

func (b *broker) server() {
	rtt, err := b.nc.RTT()
	if err != nil {
		b.line(bad, "broker", fmt.Sprintf("%s does not answer a ping: %v", b.url, err), "look at the server and at what is between")
		return
	}
	found := fmt.Sprintf("%s is %s, NATS %s, round trip %v", b.url, b.nc.ConnectedServerName(), b.nc.ConnectedServerVersion(), rtt.Round(10*time.Microsecond))
	if rtt > 100*time.Millisecond {
		b.line(doubt, "broker", found, "every step of a run waits for the broker: put workers near to it")
	} else {
		b.line(good, "broker", found, "")
	}
	if !atLeastVersion(b.nc.ConnectedServerVersion(), 2, 11) {
		b.line(bad, "version", "NATS "+b.nc.ConnectedServerVersion()+" has no messages that expire", "2.11 or newer is needed")
	} else {
		b.line(good, "version", "2.11 or newer", "")
	}
	if limit := b.nc.MaxPayload(); limit < 64<<10 {
		b.line(doubt, "max_payload", size(int(limit)), "much will travel as blobs: 1 MiB is the server's default")
	} else {
		b.line(good, "max_payload", size(int(limit))+"; what is larger travels as a blob", "")
	}
}

func atLeastVersion(v string, major, minor int) bool {
	var a, i int
	if n, _ := fmt.Sscanf(v, "%d.%d", &a, &i); n != 2 {
		return true // a version of somebody's own: no reason to refuse
	}
	return a > major || a == major && i >= minor
}

// jetStream says whether to go on.
func (b *broker) jetStream(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	info, err := b.js.AccountInfo(ctx)
	switch refused := b.refused(); {
	case refused != "":
		b.line(bad, "JetStream", refused, "the user needs $JS.API.INFO: see deploy/nats/authorization.conf")
		return false
	case errors.Is(err, context.DeadlineExceeded):
		b.line(bad, "JetStream", "does not answer", "a cluster without a majority has no leader: look at its nodes")
		return false
	case err != nil:
		b.line(bad, "JetStream", "not enabled for this account", "start nats-server with -js, or give the account jetstream")
		return false
	}
	used := fmt.Sprintf("%d streams, %s on disk", info.Streams, size(int(info.Store)))
	if limit := info.Limits.MaxStore; limit > 0 {
		used += " of " + size(int(limit))
		if info.Store > uint64(limit)/10*8 {
			b.line(bad, "JetStream", used, "raise the account's max_disk, or set retention.max_bytes")
			return true
		}
	}
	b.line(good, "JetStream", used, "")
	return true
}

func (b *broker) streams(ctx context.Context) {
	n := b.names
	var missing []string
	for _, name := range []string{n.InboxStream(), n.EventsStream(), n.BellStream(), n.DLQStream(), "KV_" + n.SessionsBucket(), "KV_" + n.FleetBucket(), "OBJ_" + n.BlobBucket()} {
		before := time.Now()
		s, err := b.js.Stream(ctx, name)
		after := time.Now()
		switch refused := b.refused(); {
		case refused != "":
			b.line(doubt, "stream", name+": "+refused, "the role may not look at it; a driver or worker may")
		case errors.Is(err, jetstream.ErrStreamNotFound):
			missing = append(missing, name)
		case err != nil:
			b.line(bad, "stream", name+": "+err.Error(), "a stream without a leader has lost the majority of its replicas")
		default:
			b.stream(s.CachedInfo())
			if name == n.EventsStream() {
				b.clock(before, after, s.CachedInfo().TimeStamp)
			}
		}
	}
	if len(missing) > 0 {
		b.missing = true
		b.line(bad, "streams", "missing: "+strings.Join(missing, ", "), "a worker creates them when it starts; is --prefix right?")
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	err := subjects.Compare(ctx, b.js, n, nil)
	_ = b.refused() // said above
	for _, e := range unjoin(err) {
		if differs, ok := errors.AsType[*subjects.ConfigError](e); ok {
			b.line(bad, "streams", differs.Error(), "`pi-worker run --force` changes it; look first who made it so")
		}
	}
}

func unjoin(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

func (b *broker) stream(info *jetstream.StreamInfo) {
	found := fmt.Sprintf("%s: %s, %s, %s", info.Config.Name, plural(int(info.State.Msgs), "message"), size(int(info.State.Bytes)), plural(info.Config.Replicas, "replica"))
	if c := info.Cluster; c != nil {
		for _, p := range c.Replicas {
			if p.Offline || !p.Current {
				b.line(bad, "stream", found+": replica "+p.Name+" is behind or away", "bring the node back: one more lost and nothing is taken any more")
				return
			}
		}
	}
	b.line(good, "stream", found, "")
	if info.Config.Name == b.names.EventsStream() && info.Config.MaxConsumers <= 0 {
		b.line(doubt, "stream", info.Config.Name+" leaves the number of its readers to the account or the server, whose default is 1,000; readers beyond it look once a second",
			"`pi-worker run --force` makes it 10,000, unless the account allows fewer")
	}
}

// clock compares the server's time with ours, as well as a round trip allows.
func (b *broker) clock(before, after, server time.Time) {
	if server.IsZero() {
		return // an old server does not say
	}
	var skew time.Duration
	switch {
	case server.Before(before):
		skew = before.Sub(server)
	case server.After(after):
		skew = server.Sub(after)
	}
	if skew > 2*time.Second {
		b.line(doubt, "clock", fmt.Sprintf("differs from the broker's by %v", skew.Round(time.Millisecond)), "synchronize both: ages in ps and lost workers are told by the clock")
		return
	}
	b.line(good, "clock", "within 2 s of the broker's", "")
}

func (b *broker) consumers(ctx context.Context) {
	if b.missing {
		return
	}
	for _, c := range []struct{ stream, name, what string }{
		{b.names.BellStream(), subjects.ConsumerWorkers, "sessions"}, {b.names.InboxStream(), subjects.ConsumerRinger, "inputs"},
	} {
		cons, err := b.js.Consumer(ctx, c.stream, c.name)
		switch refused := b.refused(); {
		case refused != "":
			b.line(doubt, "consumer", c.stream+"/"+c.name+": "+refused, "the role may not look at it; a driver or worker may")
		case err != nil:
			b.line(bad, "consumer", c.stream+"/"+c.name+": "+err.Error(), "a worker creates it when it starts")
		default:
			info := cons.CachedInfo()
			found := fmt.Sprintf("%s/%s: %d %s waiting, %d in progress", c.stream, c.name, info.NumPending, c.what, info.NumAckPending)
			if c.name == subjects.ConsumerWorkers && info.NumWaiting == 0 {
				b.line(doubt, "consumer", found+"; no worker asks for more", "start a worker, unless all are full")
			} else {
				b.line(good, "consumer", found, "")
			}
		}
	}
}

// permissions are tried: what a stream does not take, because the message
// demands another stream, was allowed nevertheless.
func (b *broker) permissions(ctx context.Context) {
	if b.missing {
		return
	}
	session := "doctor-" + fmt.Sprint(time.Now().UnixNano())
	roles := []struct {
		role     string
		subjects []string
	}{
		{"ask", []string{b.names.Input(session, subjects.KindPrompt), b.names.Input(session, subjects.KindSteer), b.names.Input(session, subjects.KindFollowUp)}},
		{"work", []string{b.names.Events(session), b.names.DLQ(session)}},
	}
	for _, r := range roles {
		var refused []string
		for _, subject := range r.subjects {
			msg := nats.NewMsg(subject)
			msg.Header.Set("Nats-Expected-Stream", "NONE_"+session)
			try, cancel := context.WithTimeout(ctx, checkTime)
			_, err := b.nc.RequestMsgWithContext(try, msg)
			cancel()
			if b.refused() != "" {
				refused = append(refused, subject)
			} else if err != nil {
				b.line(bad, "permission", subject+": "+err.Error(), "no stream listens there: is --prefix right?")
			}
		}
		switch {
		case len(refused) == 0:
			b.line(good, "permission", "may "+r.role, "")
		case r.role == "work":
			b.line(good, "permission", "may not work: as it should be for anybody but a worker", "")
		default:
			b.line(doubt, "permission", "may not "+r.role+": the broker refuses "+strings.Join(refused, ", "), "use the role driver or publisher of deploy/nats/authorization.conf")
		}
	}
}

// refused gives the server's last refusal, "" if there was none since the last
// call. The server has answered everything that was sent before.
func (b *broker) refused() (text string) {
	if err := b.nc.FlushTimeout(checkTime); err != nil {
		return ""
	}
	for {
		select {
		case text = <-b.refusals:
		case <-time.After(20 * time.Millisecond): // the handler runs beside us
			return text
		}
	}
}

// disk says when the server syncs; only its monitoring knows.
func (b *broker) disk(ctx context.Context, monitor string) {
	const durable = "with one replica, use sync_interval: always; or three replicas: see docs/security.md"
	if monitor == "" {
		b.line(doubt, "disk", "when the broker syncs to disk is told by its monitoring only", "give --monitor http://HOST:8222")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	var answer struct {
		Config struct {
			SyncAlways   bool          `json:"sync_always"`
			SyncInterval time.Duration `json:"sync_interval"`
			StoreDir     string        `json:"store_dir"`
		} `json:"config"`
		Disabled bool `json:"disabled"`
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(monitor, "/")+"/jsz", nil)
	if err != nil {
		b.line(bad, "disk", err.Error(), "--monitor is a URL such as http://127.0.0.1:8222")
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		defer resp.Body.Close()
		err = json.NewDecoder(resp.Body).Decode(&answer)
	}
	switch {
	case err != nil:
		b.line(bad, "disk", "no monitoring at "+monitor+": "+err.Error(), "start nats-server with -m 8222")
	case answer.Config.SyncAlways:
		b.line(good, "disk", "every message is synced before it is acknowledged", "")
	default:
		b.line(doubt, "disk", fmt.Sprintf("synced each %v: one server that loses power may lose that much", answer.Config.SyncInterval), durable)
	}
}
