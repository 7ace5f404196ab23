package client

import "context"

// Remove deletes all of one session for good: its inputs, log, dead letters,
// summary and payloads. A worker that is at it stops. What was never there is no
// error. Errors: [ErrSession], [ErrNoStreams], [ErrNoServer].
func (c *Client) Remove(ctx context.Context, id string) error { return c.store.Remove(ctx, id) }
