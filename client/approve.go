package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nuid"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// KindApprove is the kind of answers, see [Client.Approve].
const KindApprove = subjects.KindApprove

// ErrNoRequest: no tool call of this name waits for an approval.
var ErrNoRequest = errors.New("client: no such call waits for an approval")

// AlreadyAnsweredError says that somebody, or the clock, was faster.
type AlreadyAnsweredError struct{ Answer *loop.ApprovalAnswered }

// Error says how, and by whom.
func (e *AlreadyAnsweredError) Error() string {
	if e.Answer.By == "" {
		return fmt.Sprintf("client: the request is already answered: %s", e.Answer.Answer)
	}
	return fmt.Sprintf("client: the request is already answered: %s by %s", e.Answer.Answer, e.Answer.By)
}

// PendingApproval is a tool call that waits for a person.
type PendingApproval struct {
	Key      string          `json:"key"`  // names it, in the session
	Call     string          `json:"call"` // the model's id of the call, which may come again in later turns
	Tool     string          `json:"tool"`
	Args     json.RawMessage `json:"args,omitempty"`
	Policy   string          `json:"policy,omitempty"`
	Deadline int64           `json:"deadline,omitempty"` // Unix milliseconds, 0 none
}

// Approvals lists the calls of the session that wait for a person, in the order
// of the calls. Errors: [ErrSession], [ErrUnknownSession], [ErrNoStreams].
func (c *Client) Approvals(ctx context.Context, id string) ([]*PendingApproval, error) {
	st, err := c.approvals(ctx, id)
	if err != nil {
		return nil, err
	}
	var out []*PendingApproval
	for _, a := range st.all {
		if r := a.Request; a.Answer == nil {
			out = append(out, &PendingApproval{
				Key: r.Key, Call: r.ToolCallID, Tool: r.ToolName, Args: r.Args, Policy: r.Policy, Deadline: r.Deadline,
			})
		}
	}
	return out, nil
}

// approvalState is what the log says now of the open turn's requests.
type approvalState struct {
	all  []*loop.Approval
	tail uint64 // stream sequence of the log's last record
}

func (c *Client) approvals(ctx context.Context, id string) (approvalState, error) {
	var out approvalState
	if err := c.mustKnow(ctx, id); err != nil {
		return out, err
	}
	st, err := c.store.Fold(ctx, id)
	if err != nil {
		return out, fmt.Errorf("reading session %s: %w", id, err)
	}
	out.tail = st.TailSeq
	if open := st.Transcript.Open(); open != nil {
		for _, i := range slices.Sorted(maps.Keys(open.Approvals)) {
			out.all = append(out.all, open.Approvals[i])
		}
	}
	return out, nil
}

// Decision answers a request for approval.
type Decision struct {
	Approve bool   // false refuses
	By      string // who answers; at most 256 bytes
	Reason  string // the model reads it when the call is refused; at most 4 KiB
}

// Approve answers the request of a tool call, named by its key or by the call's
// id. It waits for the session's worker: nil means that this answer counts. The
// answer is stored even if no worker is there, and counts when one comes, so
// that an error of ctx does not take it back. Errors: [ErrNoRequest],
// [*AlreadyAnsweredError], [ErrUnknownSession], [ErrLost], or ctx's.
func (c *Client) Approve(ctx context.Context, id, call string, d Decision) error {
	st, err := c.approvals(ctx, id)
	if err != nil {
		return err
	}
	var found *loop.Approval
	for _, a := range st.all {
		if a.Request.Key == call || a.Request.ToolCallID == call && (found == nil || found.Answer != nil) {
			found = a
		}
	}
	switch {
	case found == nil:
		return fmt.Errorf("%w: session %s, call %s", ErrNoRequest, id, call)
	case found.Answer != nil:
		return &AlreadyAnsweredError{found.Answer}
	}
	// By its key: the id may belong to another call by the time it is read.
	key := found.Request.Key
	r, err := c.send(ctx, id, KindApprove, &session.Input{
		ID: nuid.Next(), Approve: session.ApproveOptions{Call: key, Approve: d.Approve, By: d.By, Reason: d.Reason},
	})
	if err != nil {
		return err
	}
	return c.awaitAnswer(ctx, r, key, st.tail)
}

// awaitAnswer reads on until the answer is consumed.
func (c *Client) awaitAnswer(ctx context.Context, r *Receipt, key string, after uint64) error {
	ctx, stop := c.whileThere(ctx, r.Session)
	defer stop()
	var first *loop.ApprovalAnswered
	for rec, err := range c.store.Tail(ctx, r.Session, session.From{Seq: after + 1}) {
		if err != nil {
			return fmt.Errorf("awaiting the answer to %s: %w", key, c.tailError(ctx, err))
		}
		for _, ev := range rec.Events {
			if a, ok := ev.(*loop.ApprovalAnswered); ok && a.Key == key && first == nil {
				first = a
			}
		}
		for _, ref := range rec.Inputs {
			switch {
			case ref.Kind != KindApprove || ref.Seq != r.Seq:
			case first == nil: // the worker knows no such request any more
				return fmt.Errorf("%w: session %s, call %s", ErrNoRequest, r.Session, key)
			case isReturned(rec, r.Seq):
				return &AlreadyAnsweredError{first}
			default:
				return nil
			}
		}
	}
	return ErrLost
}

func isReturned(rec *session.Record, seq uint64) bool {
	return slices.ContainsFunc(rec.Events, func(ev loop.Event) bool {
		r, ok := ev.(*loop.InputReturned)
		return ok && r.Seq == seq
	})
}
