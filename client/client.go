// Package client is what other services import to put agents to work: it
// prompts, steers and stops them, and follows what they do. It talks to NATS
// alone; where the workers run, and how many there are, does not matter.
//
//	nc, err := nats.Connect("nats://127.0.0.1:4222")
//	…
//	c, err := client.New(ctx, nc, nil)
//	…
//	receipt, err := c.Prompt(ctx, "", loop.NewUserText("name three rivers"), nil)
//	…
//	result, err := c.Wait(ctx, receipt)
//	fmt.Println(result.Outcome, result.Text)
//
// # Sessions and inputs
//
// A session is a conversation with a name of 1 to 64 letters, digits, _ and -;
// Prompt makes one up when it gets none. Whatever is said to a session is an
// input: a prompt starts a run, a steer is put in after the current turn of the
// run, a follow-up when the run would end, an abort ends it. Prompts wait for
// each other. A steer or follow-up that finds no run becomes the next prompt.
//
// Publishing an input returns a [Receipt] as soon as the broker has it. From
// then on nothing is lost: with no worker alive, the input waits for one. A
// Receipt can be stored as JSON, and another process can wait by it.
//
// Give an input an id of your own ([InputOptions].ID) to make sending it again
// harmless: the same id twice in a session has one effect.
//
// # Events
//
// [Client.Tail] reads a session's log from any point, and goes on with what
// happens now: replay and live are the same stream, so a reader that comes back
// with the position after its last [Event] misses nothing and sees nothing
// twice. Events are pi's own, with partial messages and all copies, though the
// log stores each thing once; [TailOptions].Wire gives the stored form.
//
// [Client.Follow] is the part of the log that belongs to one prompt, up to and
// with its agent_settled. [Client.Wait] gives only how it ended.
//
// A stream that ends without being asked to is [ErrLost], never success.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/subjects"
)

// Errors that callers can tell apart with [errors.Is].
var (
	// ErrSession: not a session id; nothing was sent.
	ErrSession = subjects.ErrSession
	// ErrPrefix: Options.Prefix can't begin a subject.
	ErrPrefix = subjects.ErrPrefix
	// ErrEmptyPrompt: the message has no content; nothing was sent.
	ErrEmptyPrompt = session.ErrEmptyInput
	// ErrTooLarge: the input is over the limit; the message has both numbers.
	ErrTooLarge = session.ErrTooLarge
	// ErrFull: the session has as many inputs of this kind waiting as it may.
	ErrFull = session.ErrInboxFull
	// ErrUnknownSession: nothing was ever said to this session.
	ErrUnknownSession = session.ErrUnknownSession
	// ErrNoServer: NATS does not answer. What was published may or may not have
	// arrived; with an id of your own it can be sent again.
	ErrNoServer = session.ErrNoServer
	// ErrNoJetStream: NATS answers, but this account has no JetStream.
	ErrNoJetStream = subjects.ErrNoJetStream
	// ErrLost: the stream of events ended before what was waited for.
	ErrLost = errors.New("client: stream of events lost")
	// ErrNoStreams: JetStream answers, but has no streams under this prefix.
	// A worker creates them when it starts.
	ErrNoStreams = session.ErrNoStream
)

// Options configure a [Client]; nil means the defaults.
type Options struct {
	Prefix        string       // of all subjects; "" means "agent"
	MaxInputBytes int          // 0 means 32 MiB
	Logger        *slog.Logger // nil discards
}

// Client speaks to the sessions under one prefix. It is safe for use by many
// goroutines.
type Client struct {
	nc    *nats.Conn
	js    jetstream.JetStream
	names subjects.Names
	store *session.Store
	log   *slog.Logger
}

// New makes a Client over a connection, which stays the caller's to close.
// Errors: [ErrPrefix], [ErrNoServer], [ErrNoJetStream].
func New(ctx context.Context, nc *nats.Conn, opts *Options) (*Client, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	prefix, err := subjects.ParsePrefix(o.Prefix)
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	names := subjects.Names{Prefix: prefix}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("client: opening JetStream: %w", err)
	}
	store, err := session.Open(ctx, nc, names, &session.Options{MaxInputBytes: o.MaxInputBytes, Logger: o.Logger})
	if errors.Is(err, subjects.ErrUnreachable) {
		err = fmt.Errorf("%w: %w", ErrNoServer, err)
	}
	if err != nil {
		return nil, fmt.Errorf("client: opening the sessions: %w", err)
	}
	return &Client{nc: nc, js: js, names: names, store: store, log: o.Logger}, nil
}
