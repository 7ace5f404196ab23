package subjects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Errors of [Ensure] and [Check].
var (
	// ErrConfig is what a [ConfigError] is.
	ErrConfig = errors.New("subjects: exists with another configuration")
	// ErrNoJetStream says that the server, or the account, has no JetStream.
	ErrNoJetStream = errors.New("subjects: NATS answers, but JetStream is not enabled for this account")
	// ErrUnreachable says that nobody answered.
	ErrUnreachable = errors.New("subjects: NATS does not answer")
)

// ConfigError names what differs between what exists and what is wanted.
type ConfigError struct {
	Name  string // of the stream, or stream/consumer
	Field string // as the server names it in JSON
	Want  string
	Found string
}

// Error is one sentence.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("%s exists with %s %s, wanted %s; nothing was changed", e.Name, e.Field, e.Found, e.Want)
}

// Is makes errors.Is(err, ErrConfig) true.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// Defaults of [EnsureOptions].
const (
	DefaultAckWait         = 5 * time.Second
	DefaultInboxPerSubject = 64
	DefaultDuplicates      = 10 * time.Minute
)

// maxReaders is how many consumers the stream of logs may have, where neither
// a person nor the account says otherwise: each live tail has one, and so has
// a worker that reads a long log. Left open, the server's own default counts,
// which is 1,000. The limit keeps readers that are never closed from taking
// all of the broker's memory.
const maxReaders = 10_000

// ringerBackOff is how long an input may lie in the inbox before the ringer
// rings for it again. The last one is for ever, and is the longest that an
// input can be stranded.
var ringerBackOff = []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second}

// EnsureOptions configure [Ensure]. A field that is zero is given its default
// when something is created, and is left alone in what exists.
type EnsureOptions struct {
	Replicas        int           // of every stream; 0 means 1
	AckWait         time.Duration // of the bell, which is the lease; 0 means DefaultAckWait
	InboxPerSubject int64         // inputs of one kind that may wait in a session; 0 means DefaultInboxPerSubject
	Duplicates      time.Duration // duplicate window of the inbox; 0 means DefaultDuplicates
	EventsMaxAge    time.Duration // of records; 0 keeps them
	EventsMaxBytes  int64         // of all records together; 0 means no limit
	DLQMaxAge       time.Duration // of dead letters; 0 keeps them
	// Force changes what exists to what is wanted. Without it Ensure changes
	// nothing that exists.
	Force bool
}

// Check asks whether JetStream can be used: nil, [ErrNoJetStream],
// [ErrUnreachable], or what the server said.
func Check(ctx context.Context, js jetstream.JetStream) error {
	_, err := js.AccountInfo(ctx)
	return explain("asking for JetStream", err)
}

// explain makes one clear sentence of the errors that a newcomer meets first.
func explain(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
		errors.Is(err, nats.ErrNoResponders):
		return ErrNoJetStream
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout),
		errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrDisconnected),
		errors.Is(err, nats.ErrConnectionReconnecting):
		return fmt.Errorf("%w (%s: %w)", ErrUnreachable, doing, err)
	}
	return fmt.Errorf("subjects: %s: %w", doing, err)
}

// Ensure creates the streams, buckets and consumers that do not exist, and
// compares those that do. What exists with another configuration is a
// [ConfigError] for each field that differs, joined; nothing that exists is
// changed then, unless opts.Force is set. Many workers may call it at once.
func Ensure(ctx context.Context, js jetstream.JetStream, names Names, opts *EnsureOptions) error {
	if _, err := ParsePrefix(names.Prefix); err != nil {
		return err
	}
	if opts == nil {
		opts = &EnsureOptions{}
	}
	if err := Check(ctx, js); err != nil {
		return err
	}
	// All is compared before anything is changed, so that a refusal leaves
	// no half of a change behind.
	streams := streamConfigs(names, opts)
	if !opts.Force {
		if err := compareAll(ctx, js, names, streams, opts); err != nil {
			return err
		}
	}
	for _, want := range streams {
		if err := ensureStream(ctx, js, names, want, opts); err != nil {
			return err
		}
	}
	for _, c := range consumerConfigs(names, opts) {
		if err := ensureConsumer(ctx, js, c, opts); err != nil {
			return err
		}
	}
	return ensureBuckets(ctx, js, names, opts)
}

func streamConfigs(n Names, o *EnsureOptions) []jetstream.StreamConfig {
	replicas := cmp.Or(o.Replicas, 1)
	inputs := make([]string, 0, len(Kinds))
	for _, k := range Kinds {
		inputs = append(inputs, n.AllInputs(k))
	}
	return []jetstream.StreamConfig{{
		Name: n.InboxStream(), Description: "pi-worker: what was asked of the sessions",
		Subjects: inputs, Replicas: replicas,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
		MaxMsgsPerSubject: cmp.Or(o.InboxPerSubject, DefaultInboxPerSubject),
		Duplicates:        cmp.Or(o.Duplicates, DefaultDuplicates), AllowDirect: true,
	}, {
		Name: n.BellStream(), Description: "pi-worker: sessions to look at, one bell each",
		Subjects: []string{n.Bell("*")}, Replicas: replicas,
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
		MaxMsgsPerSubject: 1, AllowDirect: true,
	}, {
		Name: n.EventsStream(), Description: "pi-worker: the sessions' logs",
		Subjects: []string{n.AllEvents()}, Replicas: replicas,
		MaxMsgsPerSubject: -1, AllowDirect: true, AllowMsgTTL: true, MaxConsumers: maxReaders,
		MaxAge: o.EventsMaxAge, MaxBytes: cmp.Or(o.EventsMaxBytes, -1),
	}, {
		Name: n.DLQStream(), Description: "pi-worker: dead letters",
		Subjects: []string{n.DLQ("*")}, Replicas: replicas,
		MaxMsgsPerSubject: -1, AllowDirect: true, MaxAge: o.DLQMaxAge,
	}}
}

// consumer is a durable consumer and its stream.
type consumer struct {
	stream string
	config jetstream.ConsumerConfig
}

func consumerConfigs(n Names, o *EnsureOptions) []consumer {
	return []consumer{{n.BellStream(), jetstream.ConsumerConfig{
		Durable: ConsumerWorkers, Description: "pi-worker: an un-acked bell is the lease of its session",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: cmp.Or(o.AckWait, DefaultAckWait),
		MaxDeliver: -1, MaxAckPending: -1, MaxWaiting: 4096,
	}}, {n.InboxStream(), jetstream.ConsumerConfig{
		Durable: ConsumerRinger, Description: "pi-worker: rings for what lies in the inbox",
		AckPolicy: jetstream.AckExplicitPolicy, BackOff: ringerBackOff,
		MaxDeliver: -1, MaxAckPending: -1, MaxWaiting: 4096,
	}}}
}

// EnsureConsumers creates the consumers only; what exists is left alone.
func EnsureConsumers(ctx context.Context, js jetstream.JetStream, names Names, opts *EnsureOptions) error {
	if opts == nil {
		opts = &EnsureOptions{}
	}
	for _, c := range consumerConfigs(names, opts) {
		if _, err := js.Consumer(ctx, c.stream, c.config.Durable); err == nil {
			continue
		}
		if _, err := js.CreateOrUpdateConsumer(ctx, c.stream, c.config); err != nil {
			return explain("creating consumer "+c.stream+"/"+c.config.Durable, err)
		}
	}
	return nil
}

func compareAll(ctx context.Context, js jetstream.JetStream, names Names, streams []jetstream.StreamConfig, opts *EnsureOptions) error {
	var errs []error
	for _, want := range streams {
		found, err := js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return explain("reading stream "+want.Name, err)
		}
		errs = append(errs, diffStream(want, found.CachedInfo().Config, opts)...)
	}
	for _, c := range consumerConfigs(names, opts) {
		found, err := js.Consumer(ctx, c.stream, c.config.Durable)
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return explain("reading consumer "+c.stream+"/"+c.config.Durable, err)
		}
		errs = append(errs, diffConsumer(c, found.CachedInfo().Config, opts)...)
	}
	return errors.Join(errs...)
}

// diff gathers the fields of one thing that differ.
type diff struct {
	name string
	errs []error
}

func (d *diff) add(field string, want, found any) {
	w, f := fmt.Sprint(want), fmt.Sprint(found)
	if w != f {
		d.errs = append(d.errs, &ConfigError{Name: d.name, Field: field, Want: w, Found: f})
	}
}

func diffStream(want, found jetstream.StreamConfig, o *EnsureOptions) []error {
	d := &diff{name: "stream " + want.Name}
	slices.Sort(want.Subjects)
	found.Subjects = slices.Sorted(slices.Values(found.Subjects))
	d.add("subjects", want.Subjects, found.Subjects)
	d.add("retention", want.Retention, found.Retention)
	d.add("storage", want.Storage, found.Storage)
	d.add("discard", want.Discard, found.Discard)
	d.add("discard_new_per_subject", want.DiscardNewPerSubject, found.DiscardNewPerSubject)
	d.add("allow_direct", want.AllowDirect, found.AllowDirect)
	d.add("allow_msg_ttl", want.AllowMsgTTL || found.AllowMsgTTL, found.AllowMsgTTL)
	if want.MaxMsgsPerSubject != DefaultInboxPerSubject || o.InboxPerSubject != 0 {
		d.add("max_msgs_per_subject", want.MaxMsgsPerSubject, found.MaxMsgsPerSubject)
	}
	if o.Replicas != 0 {
		d.add("num_replicas", want.Replicas, found.Replicas)
	}
	if o.Duplicates != 0 && want.Duplicates != 0 {
		d.add("duplicate_window", want.Duplicates, found.Duplicates)
	}
	if want.MaxAge != 0 {
		d.add("max_age", want.MaxAge, found.MaxAge)
	}
	if want.MaxBytes > 0 {
		d.add("max_bytes", want.MaxBytes, found.MaxBytes)
	}
	if o.Force && raisesReaders(want, found) {
		d.add("max_consumers", want.MaxConsumers, found.MaxConsumers)
	}
	return d.errs
}

// raisesReaders is true for a stream that leaves its consumers to the server's
// default. That is no reason to refuse it, and a limit that somebody set stays.
func raisesReaders(want, found jetstream.StreamConfig) bool {
	return want.MaxConsumers > 0 && found.MaxConsumers <= 0
}

func diffConsumer(want consumer, found jetstream.ConsumerConfig, o *EnsureOptions) []error {
	d := &diff{name: "consumer " + want.stream + "/" + want.config.Durable}
	d.add("ack_policy", want.config.AckPolicy, found.AckPolicy)
	d.add("max_deliver", want.config.MaxDeliver, found.MaxDeliver)
	d.add("max_ack_pending", want.config.MaxAckPending, found.MaxAckPending)
	d.add("inactive_threshold", want.config.InactiveThreshold, found.InactiveThreshold)
	d.add("filter_subject", want.config.FilterSubject, found.FilterSubject)
	if want.config.Durable == ConsumerRinger {
		d.add("backoff", want.config.BackOff, found.BackOff)
	} else if o.AckWait != 0 {
		d.add("ack_wait", want.config.AckWait, found.AckWait)
	}
	return d.errs
}

func ensureStream(ctx context.Context, js jetstream.JetStream, names Names, want jetstream.StreamConfig, o *EnsureOptions) error {
	found, err := js.Stream(ctx, want.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		if want.FirstSeq, err = firstSeq(ctx, js, names, want.Name); err != nil {
			return explain("creating stream "+want.Name, err)
		}
		err = withinAccount(want, func(c jetstream.StreamConfig) error { _, err := js.CreateStream(ctx, c); return err })
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return ensureStream(ctx, js, names, want, o) // another worker was faster: compare with its
		}
		return explain("creating stream "+want.Name, err)
	case err != nil:
		return explain("reading stream "+want.Name, err)
	}
	have := found.CachedInfo().Config
	errs := diffStream(want, have, o)
	if len(errs) == 0 {
		return nil
	}
	if !o.Force {
		return errors.Join(errs...)
	}
	err = withinAccount(merge(want, have, o), func(c jetstream.StreamConfig) error { _, err := js.UpdateStream(ctx, c); return err })
	return explain("changing stream "+want.Name, err)
}

// withinAccount leaves the number of consumers open where the account allows
// fewer than the stream would: the account's limit counts then.
func withinAccount(cfg jetstream.StreamConfig, put func(jetstream.StreamConfig) error) error {
	err := put(cfg)
	if cfg.MaxConsumers > 0 && errors.Is(err, jetstream.ErrMaximumConsumersLimit) {
		cfg.MaxConsumers = -1
		return put(cfg)
	}
	return err
}

// firstSeq is where the sequences of a new stream begin: far behind those that it
// had if it was deleted, which the other one of inbox and logs tells. The logs'
// cursors name inputs by their sequences, and the fence names records.
func firstSeq(ctx context.Context, js jetstream.JetStream, n Names, name string) (uint64, error) {
	other, ok := map[string]string{n.InboxStream(): n.EventsStream(), n.EventsStream(): n.InboxStream()}[name]
	if !ok {
		return 0, nil // the server's: 1
	}
	s, err := js.Stream(ctx, other)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return 0, nil
	case err != nil:
		return 0, err // to begin at 1 for that would swallow all that comes
	case s.CachedInfo().State.LastSeq == 0:
		return 0, nil
	}
	return uint64(time.Now().UnixMilli()), nil // no stream had a thousand messages a second since 1970
}

// merge keeps in a forced change what the options leave open.
func merge(want, have jetstream.StreamConfig, o *EnsureOptions) jetstream.StreamConfig {
	out := have
	out.Subjects, out.Retention, out.Storage = want.Subjects, want.Retention, want.Storage
	out.Discard, out.DiscardNewPerSubject = want.Discard, want.DiscardNewPerSubject
	out.AllowDirect, out.AllowMsgTTL = want.AllowDirect, want.AllowMsgTTL || have.AllowMsgTTL
	if want.MaxMsgsPerSubject != DefaultInboxPerSubject || o.InboxPerSubject != 0 || have.MaxMsgsPerSubject <= 0 {
		out.MaxMsgsPerSubject = want.MaxMsgsPerSubject
	}
	if o.Replicas != 0 {
		out.Replicas = want.Replicas
	}
	if o.Duplicates != 0 && want.Duplicates != 0 {
		out.Duplicates = want.Duplicates
	}
	if want.MaxAge != 0 {
		out.MaxAge = want.MaxAge
	}
	if want.MaxBytes > 0 {
		out.MaxBytes = want.MaxBytes
	}
	if raisesReaders(want, have) {
		out.MaxConsumers = want.MaxConsumers
	}
	return out
}

func ensureConsumer(ctx context.Context, js jetstream.JetStream, c consumer, o *EnsureOptions) error {
	name := c.stream + "/" + c.config.Durable
	found, err := js.Consumer(ctx, c.stream, c.config.Durable)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		_, err = js.CreateOrUpdateConsumer(ctx, c.stream, c.config)
		return explain("creating consumer "+name, err)
	case err != nil:
		return explain("reading consumer "+name, err)
	}
	errs := diffConsumer(c, found.CachedInfo().Config, o)
	if len(errs) == 0 {
		return nil
	}
	if !o.Force {
		return errors.Join(errs...)
	}
	if o.AckWait == 0 && c.config.Durable == ConsumerWorkers {
		c.config.AckWait = found.CachedInfo().Config.AckWait
	}
	_, err = js.UpdateConsumer(ctx, c.stream, c.config)
	return explain("changing consumer "+name, err)
}

// blobTTL lets blobs go when the last record that can refer to them has gone.
func blobTTL(o *EnsureOptions) time.Duration {
	if o.EventsMaxAge == 0 || o.DLQMaxAge == 0 {
		return 0
	}
	return max(o.EventsMaxAge, o.DLQMaxAge)
}

func ensureBuckets(ctx context.Context, js jetstream.JetStream, n Names, o *EnsureOptions) error {
	replicas := cmp.Or(o.Replicas, 1)
	if _, err := js.ObjectStore(ctx, n.BlobBucket()); errors.Is(err, jetstream.ErrBucketNotFound) {
		_, err = js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: n.BlobBucket(), Description: "pi-worker: payloads over the limit", Replicas: replicas,
			TTL: blobTTL(o),
		})
		if err != nil && !errors.Is(err, jetstream.ErrBucketExists) {
			return explain("creating object store "+n.BlobBucket(), err)
		}
	} else if err != nil {
		return explain("reading object store "+n.BlobBucket(), err)
	}
	for _, want := range []jetstream.KeyValueConfig{
		{Bucket: n.SessionsBucket(), Description: "pi-worker: summaries, derived"},
		{Bucket: n.FleetBucket(), Description: "pi-worker: what workers tell each other, derived", TTL: fleetTTL},
	} {
		want.History, want.Replicas = 1, replicas
		if _, err := js.KeyValue(ctx, want.Bucket); errors.Is(err, jetstream.ErrBucketNotFound) {
			_, err = js.CreateKeyValue(ctx, want)
			if err != nil && !errors.Is(err, jetstream.ErrBucketExists) {
				return explain("creating bucket "+want.Bucket, err)
			}
		} else if err != nil {
			return explain("reading bucket "+want.Bucket, err)
		}
	}
	return nil
}

// fleetTTL is how long a tree's use outlives its last run; a run that goes on
// writes its own again.
const fleetTTL = 7 * 24 * time.Hour
