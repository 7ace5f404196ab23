package client

import (
	"context"
	"fmt"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// Transcript is the session's conversation so far: finished messages in order,
// and the open run, if there is one. Errors: [ErrSession], [ErrUnknownSession],
// [ErrNoStreams].
func (c *Client) Transcript(ctx context.Context, id string) (*loop.Transcript, error) {
	if err := c.mustKnow(ctx, id); err != nil {
		return nil, err
	}
	state, err := c.store.Fold(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	}
	return state.Transcript, nil
}

// States of a session.
const (
	StateRunning = "running" // a worker is on it
	// StateApproval: a worker is on it, and a call waits for a person.
	StateApproval = "approval"
	StateWaiting  = "waiting" // inputs wait, or the run does
	StateIdle     = "idle"
	StateLost     = "lost" // its worker has not been heard of for StaleAfter
)

// StaleAfter is how long a worker may be silent before the sessions that it
// says to run are shown as lost.
const StaleAfter = 30 * time.Second

// SessionInfo is what is known of a session without reading its log. It is
// derived from the log and may be a moment behind.
type SessionInfo struct {
	Session string       `json:"session"`
	State   string       `json:"state"`
	Worker  string       `json:"worker,omitempty"`
	Agent   string       `json:"agent,omitempty"`
	Model   string       `json:"model,omitempty"`
	Parent  string       `json:"parent,omitempty"`  // "session/run" above the open or last run
	Turn    int          `json:"turn,omitempty"`    // of the open run, from 1
	Tool    string       `json:"tool,omitempty"`    // that runs now
	Prompts int          `json:"prompts,omitempty"` // settled in all
	Outcome loop.Outcome `json:"outcome,omitempty"` // of the last settled prompt
	Tokens  int64        `json:"tokens,omitempty"`  // of all prompts
	Cost    float64      `json:"cost,omitempty"`    // of all prompts, US dollars
	Started time.Time    `json:"started,omitzero"`  // of the open run
	Updated time.Time    `json:"updated,omitzero"`  // when it last made progress, zero if no worker has had it
}

// Sessions lists the sessions that workers have told of, and those that wait
// for their first worker, in no order. Errors: [ErrNoStreams].
func (c *Client) Sessions(ctx context.Context) ([]*SessionInfo, error) {
	beats := map[string]time.Time{}
	for w, err := range c.store.Workers(ctx) {
		if err != nil {
			return nil, fmt.Errorf("listing workers: %w", err)
		}
		beats[w.Worker] = w.Beat
	}
	asked := c.asked(ctx)
	var all []*SessionInfo
	for s, err := range c.store.Summaries(ctx) {
		if err != nil {
			return nil, fmt.Errorf("listing sessions: %w", err)
		}
		info := infoOf(s, beats, time.Now())
		if info.State == StateIdle && asked[s.Session] {
			info.State = StateWaiting
		}
		delete(asked, s.Session)
		all = append(all, info)
	}
	for id := range asked {
		all = append(all, &SessionInfo{Session: id, State: StateWaiting})
	}
	return all, nil
}

// asked gives the sessions with inputs in the inbox, and none if that is not
// for this client to know: the rest of the list does not depend on it.
func (c *Client) asked(ctx context.Context) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	asked, err := c.store.Asked(ctx)
	if err != nil {
		return nil
	}
	return asked
}

func infoOf(s *session.Summary, beats map[string]time.Time, now time.Time) *SessionInfo {
	info := &SessionInfo{
		Session: s.Session, State: s.State, Worker: s.Worker, Agent: s.Agent, Model: s.Model, Parent: s.Parent,
		Turn: s.Turn, Tool: s.Tool, Prompts: s.Prompts, Outcome: s.Outcome, Tokens: s.Tokens, Cost: s.Cost,
		Started: s.Started, Updated: s.Updated,
	}
	beat, alive := beats[s.Worker]
	if (info.State == StateRunning || info.State == StateApproval) && (!alive || now.Sub(beat) > StaleAfter) {
		info.State = StateLost
	}
	return info
}

// ParseSession returns id if it is a session id, and [ErrSession] otherwise.
func ParseSession(id string) (string, error) { return subjects.ParseSession(id) }
