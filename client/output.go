package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
)

// Errors of [Client.Output].
var (
	// ErrNoCall: no finished call of the session has this id.
	ErrNoCall = errors.New("client: no such tool call")
	// ErrNoOutput: nothing of the call was stored beside its result, or it is
	// deleted: a session keeps its newest outputs.
	ErrNoOutput = errors.New("client: no stored output")
)

// Output opens the whole output of a tool call whose result has only a part of
// it, to be read within ctx; the caller closes it. Where a model has given one id
// to several calls, it is the last one's. Errors: [ErrSession],
// [ErrUnknownSession], [ErrNoCall], [ErrNoOutput].
func (c *Client) Output(ctx context.Context, id, call string) (io.ReadCloser, error) {
	transcript, err := c.Transcript(ctx, id)
	if err != nil {
		return nil, err
	}
	objects, err := c.store.Objects(id, session.HeadingOutput)
	if err != nil {
		return nil, err
	}
	var details struct {
		Output struct {
			Blob string `json:"blob"`
		} `json:"output"`
	}
	found := false
	for _, m := range transcript.Messages() {
		if result, ok := m.(*loop.ToolResultMessage); ok && result.ToolCallID == call {
			found, details.Output.Blob = true, ""
			_ = json.Unmarshal(result.Details, &details) // another tool's may be anything
		}
	}
	if !found {
		return nil, fmt.Errorf("%w: %s", ErrNoCall, call)
	}
	name := objects.ShortName(details.Output.Blob)
	if name == "" {
		return nil, fmt.Errorf("%w: the result of %s is all that there is", ErrNoOutput, call)
	}
	in, err := objects.Get(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("%w: %s is deleted", ErrNoOutput, details.Output.Blob)
	}
	return in, err
}
