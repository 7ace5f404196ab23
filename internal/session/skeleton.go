package session

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// Options configure a [Store]; nil means the defaults.
type Options struct {
	EphemeralTTL  time.Duration           // of records that hold only deltas; 0 means 1 h, negative keeps them
	AckWait       time.Duration           // of the bell's consumer; 0 means 5 s
	MaxInputBytes int                     // 0 means 32 MiB
	Ensure        *subjects.EnsureOptions // how Claims re-creates what was deleted
	Logger        *slog.Logger            // nil discards
}

// Store is the door to all sessions under one prefix.
type Store struct{}

// Open checks that JetStream answers; it creates nothing.
func Open(ctx context.Context, nc *nats.Conn, names subjects.Names, opts *Options) (*Store, error) {
	return &Store{}, nil
}

// Publish puts an input into the session's inbox and rings its bell.
func (s *Store) Publish(ctx context.Context, session string, kind subjects.Kind, in *Input) (Receipt, error) {
	panic("todo")
}

// Ring puts a bell for the session, best effort.
func (s *Store) Ring(ctx context.Context, session string) error { panic("todo") }

// NextInput gives the first input after the sequence, of the given kind ("" means any), or ErrNoInput.
func (s *Store) NextInput(ctx context.Context, session string, kind subjects.Kind, after uint64) (*Input, error) {
	panic("todo")
}

// DeleteInput forgets an input and its blobs. Deleting what is gone is no error.
func (s *Store) DeleteInput(ctx context.Context, in *Input) error { panic("todo") }

// WatchInputs calls f for each input that is published from now on, at once and without any promise, until stop is called.
func (s *Store) WatchInputs(kind subjects.Kind, f func(session string)) (stop func() error, err error) {
	panic("todo")
}

// Ringer rings for inputs that stay in the inbox, until ctx ends. Every worker runs one.
func (s *Store) Ringer(ctx context.Context) error { panic("todo") }

// ServeOwns answers other workers' question whether this worker owns a session, until stop is called.
func (s *Store) ServeOwns(worker string, owns func(session string) bool) (stop func() error, err error) {
	panic("todo")
}

// AskOwns asks a worker whether it owns the session; silence for a second is a no.
func (s *Store) AskOwns(ctx context.Context, worker, session string) (bool, error) { panic("todo") }

// Claims gives bells. A bell is pulled only when the loop asks for it, so the caller bounds its sessions by not asking. Ends when ctx ends.
func (s *Store) Claims(ctx context.Context, worker string) iter.Seq2[*Claim, error] { panic("todo") }

// Claim is the lease of one session; it beats by itself until Remove or Release.
type Claim struct{}

// Session is whose bell it is.
func (c *Claim) Session() string { panic("todo") }

// Context is a child of parent that ends with the cause ErrLeaseLost when the lease is lost.
func (c *Claim) Context(parent context.Context) (context.Context, context.CancelFunc) { panic("todo") }

// Lost is closed when the lease is lost.
func (c *Claim) Lost() <-chan struct{} { panic("todo") }

// Fresh says whether a beat was acknowledged within 3/4 of AckWait.
func (c *Claim) Fresh() bool { panic("todo") }

// Remove takes the bell away. ErrLeaseLost if it was not fresh.
func (c *Claim) Remove(ctx context.Context) error { panic("todo") }

// Release gives the bell back, to be claimed again after delay.
func (c *Claim) Release(ctx context.Context, delay time.Duration) error { panic("todo") }

// Fold reads the session's log once.
func (s *Store) Fold(ctx context.Context, session string) (*State, error) { panic("todo") }

// OpenLog appends session_claimed with the next epoch: the fence.
func (s *Store) OpenLog(ctx context.Context, session string, st *State, worker string) (*Log, error) {
	panic("todo")
}

// Log is a session's log, opened for writing.
type Log struct{}

// Append queues an event; it waits only while 4 MiB are buffered.
func (l *Log) Append(ctx context.Context, ev loop.Event, inputs ...InputRef) error { panic("todo") }

// Flush waits until everything appended is acknowledged.
func (l *Log) Flush(ctx context.Context) error { panic("todo") }

// Close flushes and ends the log.
func (l *Log) Close(ctx context.Context) error { panic("todo") }

// Done is closed when the log can no longer be written; Err says why.
func (l *Log) Done() <-chan struct{} { panic("todo") }

// Err is the sticky error, nil while all is well.
func (l *Log) Err() error { panic("todo") }

// Epoch is this ownership.
func (l *Log) Epoch() Epoch { panic("todo") }

// Spent says whether an input needs nothing any more: its sequence is at or below its kind's cursor, or its id was consumed before.
func (l *Log) Spent(in *Input) (InputOutcome, bool) { panic("todo") }

// Read gives the records up to the tail at its beginning.
func (s *Store) Read(ctx context.Context, session string, from From) iter.Seq2[*Record, error] {
	panic("todo")
}

// Tail gives records for ever: replay and live are the same stream.
func (s *Store) Tail(ctx context.Context, session string, from From) iter.Seq2[*Record, error] {
	panic("todo")
}

// DeadLetter puts an input, with the reason, into the dead letters.
func (s *Store) DeadLetter(ctx context.Context, in *Input, reason string, attempts int, lastError string) error {
	panic("todo")
}

// Summary is one line of ps: derived, disposable.
type Summary struct {
	Session string       `json:"session"`
	State   string       `json:"state"` // "running", "waiting", "idle"
	Worker  string       `json:"worker,omitempty"`
	Epoch   string       `json:"epoch,omitempty"`
	Agent   string       `json:"agent,omitempty"`
	Model   string       `json:"model,omitempty"`
	Turn    int          `json:"turn,omitempty"`
	Prompts int          `json:"prompts,omitempty"`
	Outcome loop.Outcome `json:"outcome,omitempty"` // of the last settled prompt
	Cost    float64      `json:"cost,omitempty"`    // US dollars
	Updated time.Time    `json:"updated"`
}

// Presence is what a worker says of itself.
type Presence struct {
	Worker  string    `json:"worker"`
	Version string    `json:"version,omitempty"`
	Host    string    `json:"host,omitempty"`
	Running int       `json:"running"`
	Slots   int       `json:"slots"`
	Started time.Time `json:"started"`
	Beat    time.Time `json:"beat"`
}

// PutSummary replaces the session's summary.
func (s *Store) PutSummary(ctx context.Context, sum *Summary) error { panic("todo") }

// Summaries lists them all.
func (s *Store) Summaries(ctx context.Context) iter.Seq2[*Summary, error] { panic("todo") }

// PutPresence replaces a worker's presence; DeletePresence takes it back.
func (s *Store) PutPresence(ctx context.Context, p *Presence) error { panic("todo") }

// DeletePresence takes a worker's presence back.
func (s *Store) DeletePresence(ctx context.Context, worker string) error { panic("todo") }

// Workers lists all presences.
func (s *Store) Workers(ctx context.Context) iter.Seq2[*Presence, error] { panic("todo") }
