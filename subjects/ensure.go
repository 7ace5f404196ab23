package subjects

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrConfig is wrapped by [ConfigError].
var ErrConfig = errors.New("subjects: exists with another configuration")

// EnsureOptions configure [Ensure]; the zero value and nil are fit for one
// node.
type EnsureOptions struct {
	Replicas        int           // of every stream; 0 means 1
	AckWait         time.Duration // of the bell, which is the lease; 0 means 5 s
	InboxPerSubject int64         // inputs of one kind that a session may have waiting; 0 means 64
	Duplicates      time.Duration // duplicate window of the inbox; 0 means 10 min
	EventsMaxAge    time.Duration // of records; 0 keeps them
	EventsMaxBytes  int64         // of AGENT_EVENTS; 0 means no limit
	DLQMaxAge       time.Duration // of dead letters; 0 keeps them
	// Force changes what exists to the wanted configuration.
	Force bool
}

// Ensure creates what does not exist and refuses what exists with another
// configuration.
func Ensure(ctx context.Context, js jetstream.JetStream, names Names, opts *EnsureOptions) error {
	return errors.ErrUnsupported
}
