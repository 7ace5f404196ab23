package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/subjects"
)

const (
	// DefaultEphemeralTTL is how long records live that hold only deltas.
	DefaultEphemeralTTL = time.Hour
	// DefaultMaxInputBytes is the largest input, blob or not.
	DefaultMaxInputBytes = 32 << 20
	// reserve is what a payload leaves of the server's limit for headers.
	reserve = 8 << 10
	// requestTimeout bounds one question to the broker.
	requestTimeout = 2 * time.Second
	// askTime is how long a question is repeated that has no answer: the
	// broker's own time-outs, after which a frozen leader is replaced, are 4 to
	// 9 s, and come twice if the new one was told late.
	askTime = 30 * time.Second
	// nobodyTime is the same while the broker says that nobody takes the
	// question. Mostly the stream does not exist.
	nobodyTime = 10 * time.Second
	// The longest pause between two attempts.
	maxPause = time.Second
)

// Options configure a [Store]; nil means the defaults.
type Options struct {
	// EphemeralTTL is how long records live that hold only message_update and
	// tool_execution_update; 0 means DefaultEphemeralTTL, negative keeps
	// them. The broker counts whole seconds.
	EphemeralTTL time.Duration
	// MaxInputBytes refuses larger inputs; 0 means DefaultMaxInputBytes.
	MaxInputBytes int
	// SessionRecords is how many durable records Log.Retain leaves of a session;
	// 0 keeps them all.
	SessionRecords uint64
	// Ensure says how Claims and Ringer re-create what a stranger deleted, and
	// which limits Log.Retain has to expect; nil means the defaults.
	Ensure *subjects.EnsureOptions
	// Hooks are told what happens to the logs and leases.
	Hooks  Hooks
	Logger *slog.Logger // nil discards
}

// Store is the door to all sessions under one prefix. It is safe for
// concurrent use, and holds nothing that must be closed.
type Store struct {
	nc        *nats.Conn
	js        jetstream.JetStream
	names     subjects.Names
	opts      Options
	log       *slog.Logger
	api       string                             // prefix of the JetStream API, with its dot
	claiming  atomic.Pointer[error]              // why bells can't be pulled, nil if they can
	ringing   atomic.Pointer[error]              // the same of the ringer
	streams   atomic.Pointer[error]              // which streams were deleted, nil if none
	summaries atomic.Pointer[jetstream.KeyValue] // nil before the first use
}

// Open checks that JetStream answers; it creates nothing (see
// [subjects.Ensure]). The errors are those of [subjects.Check].
func Open(ctx context.Context, nc *nats.Conn, names subjects.Names, opts *Options) (*Store, error) {
	if _, err := subjects.ParsePrefix(names.Prefix); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("session: opening: %w", err)
	}
	s := &Store{nc: nc, js: js, names: names, api: "$JS.API."}
	if opts != nil {
		s.opts = *opts
	}
	s.opts.EphemeralTTL = cmp.Or(s.opts.EphemeralTTL, DefaultEphemeralTTL)
	s.opts.MaxInputBytes = cmp.Or(s.opts.MaxInputBytes, DefaultMaxInputBytes)
	s.log = s.opts.Logger
	if s.log == nil {
		s.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if err := subjects.Check(ctx, js); err != nil {
		return nil, err
	}
	return s, nil
}

// JetStream is the handle that the store uses, for [subjects.Ensure].
func (s *Store) JetStream() jetstream.JetStream { return s.js }

// Names are the names that the store uses.
func (s *Store) Names() subjects.Names { return s.names }

// Ready is nil while Claims and Ringer can pull and KeepStreams misses nothing;
// otherwise it says why not.
func (s *Store) Ready() error {
	if status := s.nc.Status(); status != nats.CONNECTED {
		return fmt.Errorf("%w: connection is %v", ErrNoServer, status)
	}
	for _, trouble := range []*atomic.Pointer[error]{&s.claiming, &s.ringing, &s.streams} {
		if err := trouble.Load(); err != nil {
			return *err
		}
	}
	return nil
}

// limit is the largest payload that travels by itself.
func (s *Store) limit() int { return max(int(s.nc.MaxPayload())-reserve, 1024) }

// request asks the broker once, for at most requestTimeout.
func (s *Store) request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > requestTimeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, requestTimeout)
		defer cancel()
	}
	return s.nc.RequestMsgWithContext(ctx, msg)
}

// ask is request for questions that may be asked again: it outlives a lost
// connection or leader of up to askTime.
func (s *Store) ask(ctx context.Context, msg *nats.Msg) (resp *nats.Msg, err error) {
	err = persist(ctx, func(ctx context.Context) (err error) {
		resp, err = s.nc.RequestMsgWithContext(ctx, msg)
		return err
	})
	return resp, err
}

// persist repeats a question for up to askTime. Each attempt has requestTimeout
// alone: what a frozen leader was asked is never answered, however long the
// caller could wait.
func persist(ctx context.Context, question func(context.Context) error) error {
	return persistFor(ctx, requestTimeout, askTime, question)
}

func persistFor(ctx context.Context, each, patience time.Duration, question func(context.Context) error) error {
	pause := 50 * time.Millisecond
	for begun := time.Now(); ; {
		try, cancel := context.WithTimeout(ctx, each)
		err := question(try)
		cancel()
		if err == nil || !isTransient(err) || ctx.Err() != nil {
			return err
		}
		waited := time.Since(begun)
		if waited > patience || waited > nobodyTime && errors.Is(err, nats.ErrNoResponders) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
		pause = min(2*pause, maxPause)
	}
}

// stream asks what a stream has.
func (s *Store) stream(ctx context.Context, name string) (stream jetstream.Stream, err error) {
	err = persist(ctx, func(ctx context.Context) (err error) {
		stream, err = s.js.Stream(ctx, name)
		return err
	})
	return stream, err
}

// isTransient names the errors of a broker that may be back in a moment.
func isTransient(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionReconnecting)
}

// explain puts the operation before an error and gives those a name that a
// caller may want to tell apart.
func explain(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrStreamNotFound),
		errors.Is(err, jetstream.ErrBucketNotFound):
		return fmt.Errorf("%s: %w", doing, ErrNoStream)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("session: %s: %w", doing, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout),
		errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrDisconnected):
		return fmt.Errorf("%s: %w (%w)", doing, ErrNoServer, err)
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return fmt.Errorf("session: %s: the server says: %s (%d): %w", doing, api.Description, api.ErrorCode, err)
	}
	return fmt.Errorf("session: %s: %w", doing, err)
}

// errNotFound says that the broker has no such message.
var errNotFound = errors.New("session: no such message")

// message is one stored message.
type message struct {
	subject string
	seq     uint64
	time    time.Time
	header  nats.Header
	data    []byte
}

// last reads a subject's last message from the stream's leader, which unlike
// a direct get can't be behind. errNotFound if there is none.
func (s *Store) last(ctx context.Context, stream, subject string) (*message, error) {
	req, err := json.Marshal(struct {
		Last string `json:"last_by_subj"`
	}{subject})
	if err != nil {
		return nil, err
	}
	resp, err := s.ask(ctx, &nats.Msg{Subject: s.api + "STREAM.MSG.GET." + stream, Data: req})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(resp.Data, &answer); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	switch m := answer.Message; {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, errNotFound
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return nil, jetstream.ErrStreamNotFound
	case answer.Error != nil:
		return nil, answer.Error
	case m == nil:
		return nil, errNotFound
	default:
		out := &message{subject: m.Subject, seq: m.Seq, time: m.Time, data: m.Data}
		if len(m.Header) > 0 {
			if out.header, err = nats.DecodeHeadersMsg(m.Header); err != nil {
				return nil, fmt.Errorf("reading headers: %w", err)
			}
		}
		return out, nil
	}
}

// next reads the first message from the sequence on whose subject matches, by
// direct get: any replica answers. errNotFound if there is none.
func (s *Store) next(ctx context.Context, stream, subject string, seq uint64) (*message, error) {
	return s.nextOf(ctx, stream, subject, seq, false)
}
