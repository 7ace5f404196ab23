package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/subjects"
)

// keyTree begins the keys of AGENT_FLEET that say what a tree of runs uses:
// tree.<session>.<run> of the root, then .<session>.<run> of the member.
const keyTree = "tree."

// TreeMember is what a run says of itself to the tree that it is in. It can be
// derived from the run's log, and its owner writes it again when it is gone.
type TreeMember struct {
	// Above are the runs above it, the parent first.
	Above []Parent `json:"above,omitempty"`
	// What it has used by itself.
	Tokens int64   `json:"tokens"`
	Cost   float64 `json:"cost"` // US dollars
	// What it and all below it may use; 0 no limit.
	MaxTokens int64   `json:"maxTokens,omitempty"`
	MaxCost   float64 `json:"maxCost,omitempty"`
}

func treeKey(p Parent) string { return strings.ReplaceAll(p.String(), "/", ".") }

// PutTreeMember replaces what a run says of itself.
func (s *Store) PutTreeMember(ctx context.Context, root, run Parent, m *TreeMember) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("session: encoding a tree's member: %w", err)
	}
	return s.putFleet(ctx, keyTree+treeKey(root)+"."+treeKey(run), b)
}

func (s *Store) putFleet(ctx context.Context, key string, value []byte) error {
	resp, err := s.request(ctx, &nats.Msg{Subject: s.fleetSubject(key), Data: value})
	if err != nil {
		return explain("writing "+key, err)
	}
	var ack struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(resp.Data, &ack); err != nil {
		return explain("writing "+key, err)
	}
	if ack.Error != nil {
		return explain("writing "+key, ack.Error)
	}
	return nil
}

// fleetSubject is where the bucket keeps a key.
func (s *Store) fleetSubject(key string) string { return "$KV." + s.names.FleetBucket() + "." + key }

// Tree gives what the members of a root's tree have said, by run.
func (s *Store) Tree(ctx context.Context, root Parent) (map[Parent]*TreeMember, error) {
	before := s.fleetSubject(keyTree + treeKey(root) + ".")
	msgs, err := s.lastOfEach(ctx, "KV_"+s.names.FleetBucket(), before+">")
	if err != nil {
		return nil, explain("reading the tree of "+root.String(), err)
	}
	all := make(map[Parent]*TreeMember, len(msgs))
	for _, m := range msgs {
		run, err := ParseParent(strings.ReplaceAll(strings.TrimPrefix(m.subject, before), ".", "/"))
		member := &TreeMember{}
		if err != nil || json.Unmarshal(m.data, member) != nil {
			continue // deleted, or not ours
		}
		all[run] = member
	}
	return all, nil
}

// errTooMany: the server gives the last messages of at most 1,024 subjects.
var errTooMany = errors.New("session: too many subjects for one request")

// lastOfEach gives the last message of each subject that matches, by one
// request: any replica answers.
func (s *Store) lastOfEach(ctx context.Context, stream, filter string) ([]*message, error) {
	req, err := json.Marshal(struct {
		Last []string `json:"multi_last"`
	}{[]string{filter}})
	if err != nil {
		return nil, err
	}
	// Without its end, the answer would be waited for for ever.
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	inbox := s.nc.NewInbox()
	sub, err := s.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe()
	if err := s.nc.PublishRequest(s.api+"DIRECT.GET."+stream, inbox, req); err != nil {
		return nil, err
	}
	var msgs []*message
	for {
		raw, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		switch raw.Header.Get(headerStatus) {
		case "":
			m, err := parseDirect(raw)
			if err != nil {
				return nil, err
			}
			msgs = append(msgs, m)
		case "204", "404": // the end; nothing there
			return msgs, nil
		case "413":
			return nil, errTooMany
		case "503":
			return nil, nats.ErrNoResponders
		default:
			_, err := parseDirect(raw)
			return nil, err
		}
	}
}

// keyPause begins the keys of AGENT_FLEET that say how long a key of a model's
// endpoint rests; then comes the digest that names it.
const keyPause = "pause."

type pauseJSON struct {
	Millis int64 `json:"ms"` // from when it was stored
}

// PutPause tells all workers that a key rests from now on. id is one token.
func (s *Store) PutPause(ctx context.Context, id string, wait time.Duration) error {
	if _, err := subjects.ParseSession(id); err != nil {
		return err
	}
	b, err := json.Marshal(pauseJSON{wait.Milliseconds()})
	if err != nil {
		return err
	}
	return s.putFleet(ctx, keyPause+id, b)
}

// WatchPauses calls f with each pause that is told from now on, until stop is
// called. f must not block. What was missed, and was told before, is in Pauses.
func (s *Store) WatchPauses(f func(id string, wait time.Duration)) (stop func() error, err error) {
	sub, err := s.nc.Subscribe(s.fleetSubject(keyPause+"*"), func(m *nats.Msg) {
		s.pause(m.Subject, m.Data, 0, f)
	})
	if err != nil {
		return nil, explain("watching pauses", err)
	}
	return sub.Unsubscribe, nil
}

// Pauses calls f with each key that rests now.
func (s *Store) Pauses(ctx context.Context, f func(id string, wait time.Duration)) error {
	msgs, err := s.lastOfEach(ctx, "KV_"+s.names.FleetBucket(), s.fleetSubject(keyPause+"*"))
	if err != nil {
		return explain("reading pauses", err)
	}
	for _, m := range msgs {
		s.pause(m.subject, m.data, time.Since(m.time), f)
	}
	return nil
}

// longestPause bounds what anybody who may write to the bucket can ask for.
const longestPause = 24 * time.Hour

func (s *Store) pause(subject string, data []byte, age time.Duration, f func(id string, wait time.Duration)) {
	var p pauseJSON
	if json.Unmarshal(data, &p) != nil {
		return
	}
	wait := min(time.Duration(p.Millis)*time.Millisecond, longestPause) - max(age, 0)
	if wait > 0 {
		f(strings.TrimPrefix(subject, s.fleetSubject(keyPause)), wait)
	}
}
