package subjects

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// Compare looks whether the streams and consumers that exist are as [Ensure]
// would make them, and changes nothing: each field that differs is a
// [ConfigError], joined with the others. What does not exist does not differ.
// opts may be nil.
func Compare(ctx context.Context, js jetstream.JetStream, names Names, opts *EnsureOptions) error {
	if opts == nil {
		opts = &EnsureOptions{}
	}
	return compareAll(ctx, js, names, streamConfigs(names, opts), opts)
}
