package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

const (
	// settledBack is how many settled prompts are looked through, from the
	// log's end, for the one that is asked for.
	settledBack = 64
	// startAhead is how many records a run may have before the one with its
	// prompt: those of owners that died before they wrote it.
	startAhead = 64
)

// Parent names the run that a prompt was sent from: a session, and the
// sequence of the prompt that began the run there.
type Parent struct {
	Session string `json:"session"`
	Run     uint64 `json:"run"`
}

// String is "session/run".
func (p Parent) String() string { return p.Session + "/" + strconv.FormatUint(p.Run, 10) }

// ParseParent reads what [Parent.String] wrote, and the key of a tool call,
// which begins with it.
func ParseParent(s string) (Parent, error) {
	id, rest, _ := strings.Cut(s, "/")
	num, _, _ := strings.Cut(rest, "/")
	run, err := strconv.ParseUint(num, 10, 64)
	if err != nil {
		return Parent{}, fmt.Errorf("session: no run: %.80q, must be SESSION/SEQUENCE", s)
	}
	p := Parent{Session: id, Run: run}
	return p, p.check()
}

// UnmarshalJSON takes the object, or what ParseParent takes as a string.
func (p *Parent) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var text string
		err := json.Unmarshal(b, &text)
		if err == nil {
			*p, err = ParseParent(text)
		}
		return err
	}
	type object Parent // without this method
	return json.Unmarshal(b, (*object)(p))
}

func (p *Parent) check() error {
	if _, err := subjects.ParseSession(p.Session); err != nil {
		return fmt.Errorf("option parent: %w", err)
	}
	if p.Run == 0 {
		return fmt.Errorf(`option parent has no "run": the sequence of the prompt that began it`)
	}
	return nil
}

// RunInfo is what can be known of a run without its owner.
type RunInfo struct {
	// Begun says that the log has its prompt; otherwise the inbox may have it.
	Begun bool
	// Outcome is "" while the run is not settled.
	Outcome loop.Outcome
	// Parent of the run's prompt, nil for none and where it can't be known.
	Parent *Parent
	// Seen is for SettledRun: how far the log was looked through.
	Seen uint64
}

// FindRun looks a run up in its session's log, from the end: the cost does not
// depend on the log's length. A run that nothing is known of gives the zero
// RunInfo and no error.
func (s *Store) FindRun(ctx context.Context, p Parent) (info RunInfo, err error) {
	if err := p.check(); err != nil {
		return info, err
	}
	// Twice: the prompt may go from the inbox to the log meanwhile.
	for range 2 {
		before, err := s.settledRun(ctx, p, 0, &info)
		if errors.Is(err, ErrUnknownSession) {
			err, before = nil, 0
		}
		if err == nil {
			info.Begun, err = s.findStart(ctx, p, before+1, &info.Parent)
		}
		if err != nil || info.Begun {
			return info, err
		}
		in, err := s.NextInput(ctx, p.Session, "", p.Run-1)
		if err == nil && in.Ref.Seq == p.Run {
			info.Parent = in.Options.Parent
			return info, nil
		}
		if err != nil && !errors.Is(err, ErrNoInput) {
			return info, err
		}
	}
	return info, nil
}

// SettledRun is the run's outcome, "" while it is not settled. Of the settled
// prompts only those behind the record seen are looked at; the new seen is for
// the next call. ErrUnknownSession if the session has no log.
func (s *Store) SettledRun(ctx context.Context, p Parent, seen uint64) (loop.Outcome, uint64, error) {
	info := RunInfo{Seen: seen}
	_, err := s.settledRun(ctx, p, seen, &info)
	return info.Outcome, info.Seen, err
}

// settledRun goes back over the settled prompts. before is the record behind
// which the run begins.
func (s *Store) settledRun(ctx context.Context, p Parent, seen uint64, info *RunInfo) (before uint64, err error) {
	m, err := s.lastRecord(ctx, p.Session)
	if err != nil {
		return 0, err
	}
	for hops := range settledBack {
		rec, err := readHead(p.Session, m.seq, m.time, m.header)
		if err == nil && rec.Sub == 0 {
			if err = s.readLines(ctx, rec, m.data); err == nil {
				err = rec.parseLines()
			}
		}
		if err != nil {
			return 0, err
		}
		settles := slices.ContainsFunc(rec.Events, isSettled)
		if hops == 0 {
			before = rec.Settled
			if settles {
				before = rec.StreamSeq
			}
			info.Seen = max(info.Seen, before)
		}
		for _, ev := range rec.Events {
			if end, ok := ev.(*loop.AgentSettled); ok && end.PromptSeq == p.Run {
				info.Outcome = end.Outcome
				return rec.Settled, nil
			}
		}
		if rec.Settled <= seen {
			break
		}
		m, err = s.next(ctx, s.names.EventsStream(), s.names.Events(p.Session), rec.Settled)
		if errors.Is(err, errNotFound) || err == nil && m.seq != rec.Settled {
			break // retention took it
		}
		if err != nil {
			return 0, explain("reading the log", err)
		}
	}
	return before, nil
}

func isSettled(ev loop.Event) bool {
	_, ok := ev.(*loop.AgentSettled)
	return ok
}

// lastRecord is the log's last record that a worker wrote.
func (s *Store) lastRecord(ctx context.Context, session string) (*message, error) {
	m, err := s.last(ctx, s.names.EventsStream(), s.names.Events(session))
	if errors.Is(err, errNotFound) {
		return nil, fmt.Errorf("%w: %s has no log", ErrUnknownSession, session)
	}
	if err != nil {
		return nil, explain("reading the log's end", err)
	}
	if !isForeign(m.header) {
		return m, nil
	}
	// A stranger's message ends the log: what is before it is found from the
	// beginning.
	var last *message
	for m, err := range s.messages(ctx, session, place{next: 1}, tailMark{stream: m.seq, time: m.time}) {
		if err != nil {
			return nil, err
		}
		if !isForeign(m.header) {
			last = m
		}
	}
	if last == nil {
		return nil, fmt.Errorf("%w: %s has no log", ErrUnknownSession, session)
	}
	return last, nil
}

// findStart looks for the record that has the run's prompt.
func (s *Store) findStart(ctx context.Context, p Parent, from uint64, parent **Parent) (found bool, err error) {
	for range startAhead {
		m, err := s.next(ctx, s.names.EventsStream(), s.names.Events(p.Session), from)
		if errors.Is(err, errNotFound) {
			return false, nil
		}
		if err != nil {
			return false, explain("reading the log", err)
		}
		from = m.seq + 1
		if isForeign(m.header) {
			continue
		}
		rec, err := readHead(p.Session, m.seq, m.time, m.header)
		if err != nil {
			return false, err
		}
		for _, ref := range rec.Inputs {
			if ref.Seq == p.Run && !ref.Returned {
				if ref.Options != nil {
					*parent = ref.Options.Parent
				}
				return true, nil
			}
		}
	}
	return false, nil
}

// OpenRun is the sequence of the prompt whose run is open in the session, 0 if
// none is.
func (s *Store) OpenRun(ctx context.Context, session string) (run uint64, err error) {
	for rec, err := range s.Read(ctx, session, From{LastSettled: true}) {
		if err != nil {
			return 0, err
		}
		for _, ev := range rec.Events {
			if isSettled(ev) {
				run = 0
			}
		}
		if ref := delivered(rec.Inputs); ref != nil && run == 0 {
			run = ref.Seq
		}
	}
	return run, nil
}
