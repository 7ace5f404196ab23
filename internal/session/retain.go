package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

const (
	// checkpointType is the event by which a log goes on without its head.
	checkpointType = "checkpoint"
	// maxRemembered is how many inputs a checkpoint has, the newest ones.
	maxRemembered = 10_000
	// roomEvery is how long a log relies on what it has seen of a stream that
	// is bounded by bytes.
	roomEvery = 10 * time.Minute
)

// checkpoint says again what the records before it say of inputs, and which
// snapshot of files is the last, for the day when retention has taken them.
type checkpoint struct {
	Type    string                   `json:"type"`
	Cursors map[subjects.Kind]uint64 `json:"cursors"`
	Inputs  []remembered             `json:"inputs,omitempty"` // in their order
	// Manifest is that of the last workspace_saved, "" none.
	Manifest string `json:"manifest,omitempty"`
}

// remembered is an input with an id, and what became of it.
type remembered struct {
	ID       string        `json:"id"`
	Kind     subjects.Kind `json:"kind"`
	Seq      uint64        `json:"seq"`
	Turn     int           `json:"turn,omitempty"`
	Returned bool          `json:"returned,omitempty"`
	Dead     bool          `json:"dead,omitempty"`
}

// checkpoint gives the event.
func (st *State) checkpoint() (loop.Event, error) {
	c := checkpoint{Type: checkpointType, Cursors: st.Cursors}
	if st.Saved != nil {
		c.Manifest = st.Saved.Manifest
	}
	for id, out := range st.IDs {
		c.Inputs = append(c.Inputs, remembered{
			ID: id, Kind: out.Ref.Kind, Seq: out.Ref.Seq, Turn: out.Turn, Returned: out.Ref.Returned, Dead: out.Dead,
		})
	}
	slices.SortFunc(c.Inputs, func(a, b remembered) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.ID, b.ID))
	})
	c.Inputs = c.Inputs[max(0, len(c.Inputs)-maxRemembered):]
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("session: encoding a checkpoint: %w", err)
	}
	return &loop.UnknownEvent{Type: checkpointType, Raw: raw}, nil
}

// recall takes what a checkpoint says; what the log itself says goes before it.
func (st *State) recall(raw []byte) error {
	var c checkpoint
	if err := json.Unmarshal(raw, &c); err != nil {
		return fmt.Errorf("reading a checkpoint: %w", err)
	}
	for kind, seq := range c.Cursors {
		if kind, err := subjects.ParseKind(string(kind)); err == nil {
			st.Cursors[kind] = max(st.Cursors[kind], seq)
		}
	}
	if st.Saved == nil && c.Manifest != "" {
		st.Saved = &loop.WorkspaceSaved{Manifest: c.Manifest}
	}
	for _, in := range c.Inputs {
		if _, known := st.IDs[in.ID]; known {
			continue
		}
		ref := InputRef{Kind: in.Kind, Seq: in.Seq, ID: in.ID, Returned: in.Returned}
		st.IDs[in.ID] = InputOutcome{Ref: ref, Turn: in.Turn, Dead: in.Dead}
	}
	return nil
}

// memory is what retention has to know of a log.
type memory struct {
	first, last uint64 // Pi-Seq of the durable records that are there, 0 none
	// ends are the records that end a prompt: the log may be cut behind each.
	ends []mark
	// oldest is the record that retention must not take before a checkpoint:
	// the last one, without one the first that consumed an input; 0 none.
	oldest mark
	// safe is the stream sequence of the last checkpoint, 0 none.
	safe uint64
	// summary is the stream sequence of the last summary of the context, 0
	// none. It stands for all before it, and is never cut.
	summary uint64
}

// says is what retention looks for in a durable record.
type says struct{ consumes, settles, checkpoint, summary bool }

func (s *says) event(ev loop.Event) {
	switch ev := ev.(type) {
	case *loop.AgentSettled:
		s.settles = true
	case *loop.CompactionEnd:
		s.summary = s.summary || ev.Result != nil
	case *loop.UnknownEvent:
		s.checkpoint = s.checkpoint || ev.Type == checkpointType
	}
}

// join adds what another record says.
func (s *says) join(more says) {
	s.consumes = s.consumes || more.consumes
	s.settles = s.settles || more.settles
	s.checkpoint = s.checkpoint || more.checkpoint
	s.summary = s.summary || more.summary
}

// mark is the place of a record.
type mark struct {
	stream, seq uint64
	time        time.Time
}

// durable notes a durable record.
func (m *memory) durable(at mark, rec says) {
	if m.first == 0 {
		m.first = at.seq
	}
	m.last = at.seq
	if rec.checkpoint || rec.consumes && m.oldest.stream == 0 {
		m.oldest = at
	}
	if rec.checkpoint {
		m.safe = at.stream
	}
	if rec.summary {
		m.summary = at.stream
	}
	if rec.settles {
		m.ends = append(m.ends, at)
	}
}

// cut is where the log ends that is over the limit: the last end of a prompt
// with so many records behind it. A quarter more may gather before it is due.
func (m *memory) cut(limit uint64) (mark, bool) {
	if limit == 0 || m.last-m.first < limit+limit/4 {
		return mark{}, false
	}
	for _, end := range slices.Backward(m.ends) {
		if m.last-end.seq >= limit && (m.summary == 0 || end.stream < m.summary) {
			return end, true
		}
	}
	return mark{}, false
}

// Seq is the Pi-Seq of the last durable record that was acknowledged.
func (l *Log) Seq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.memory.last
}

// Retain does between two runs what retention wants of a log. A log with more
// records than Options.SessionRecords loses its oldest prompts. And before they
// go, or the stream's own limits are half way to them, a checkpoint says what
// is remembered of their inputs. No run may be open.
func (l *Log) Retain(ctx context.Context) error {
	l.mu.Lock()
	m := l.memory
	// What was changed, moved or cancelled out of its turn is not in a checkpoint.
	busy := len(l.state.Edits)+len(l.state.Skipped)+len(l.state.Owed)+len(l.state.Order) > 0
	l.mu.Unlock()
	if busy {
		return nil
	}
	end, over := m.cut(l.store.opts.SessionRecords)
	if over && m.safe < end.stream || l.isFading(ctx, m.oldest) {
		if err := l.remember(ctx); err != nil {
			return err
		}
	}
	if !over {
		return nil
	}
	err := l.store.trim(ctx, l.session, end)
	if err != nil {
		l.store.log.Warn("trimming a log", "session", l.session, "error", err)
		return nil // the next one takes it along
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory.first = end.seq + 1
	l.memory.ends = slices.DeleteFunc(slices.Clone(l.memory.ends), func(m mark) bool { return m.stream <= end.stream })
	return nil
}

// remember appends a checkpoint.
func (l *Log) remember(ctx context.Context) error {
	l.mu.Lock()
	ev, err := l.state.checkpoint()
	l.mu.Unlock()
	if err == nil {
		err = l.AppendAll(ctx, []loop.Event{ev})
	}
	if err == nil {
		err = l.Flush(ctx)
	}
	return err
}

// isFading says that the stream's limits have come half way to a record. By
// bytes that is told by the sequences, which all sessions share.
func (l *Log) isFading(ctx context.Context, oldest mark) bool {
	limits := l.store.opts.Ensure
	if oldest.stream == 0 || limits == nil {
		return false
	}
	if limits.EventsMaxAge > 0 && time.Since(oldest.time) > limits.EventsMaxAge/2 {
		return true
	}
	if limits.EventsMaxBytes <= 0 || !l.mayLook() {
		return false
	}
	stream, err := l.store.stream(ctx, l.store.names.EventsStream())
	if err != nil {
		return false // the next owner asks again
	}
	state := stream.CachedInfo().State
	full := state.Bytes > uint64(limits.EventsMaxBytes)/2
	return full && oldest.stream < state.FirstSeq+(state.LastSeq-state.FirstSeq)/2
}

// mayLook lets the stream be asked once in a while.
func (l *Log) mayLook() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.looked) < roomEvery {
		return false
	}
	l.looked = time.Now()
	return true
}

// trim takes what a log has up to a record.
func (s *Store) trim(ctx context.Context, session string, end mark) error {
	stream, err := s.stream(ctx, s.names.EventsStream())
	if err != nil {
		return explain("trimming", err)
	}
	return explain("trimming", persist(ctx, func(ctx context.Context) error {
		return stream.Purge(ctx, jetstream.WithPurgeSubject(s.names.Events(session)), jetstream.WithPurgeSequence(end.stream+1))
	}))
}

// goOn gives a log that has lost all its records the numbers behind them, so
// that its readers see the hole. Only the summary knows them; without it the
// log begins anew.
func (s *Store) goOn(ctx context.Context, session string, st *State) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	sum, err := s.summary(ctx, session)
	if err != nil {
		if !errors.Is(err, jetstream.ErrKeyNotFound) {
			s.log.Debug("reading the summary of an empty log", "session", session, "error", err)
		}
		return
	}
	st.Former = sum
	if epoch, err := ParseEpoch(sum.Epoch); err == nil {
		st.Epoch, st.Seq = epoch, sum.Seq
	}
}
