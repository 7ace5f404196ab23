package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

const (
	// maxBuffer is how many bytes a log holds that are not acknowledged,
	// before Append waits.
	maxBuffer = 4 << 20
	// maxInputs bounds the inputs of one record, which travel in headers:
	// each has at most an id and options.
	maxInputs = 2
	// maxSpare is the largest buffer that is kept for the next record.
	maxSpare = 64 << 10
)

// segment is a record in the making: lines that leave together.
type segment struct {
	buf       []byte
	events    int
	ephemeral bool
	says      says
	inputs    []InputRef
	large     []large // lines that travel beside the record, in order
	pack      pack    // its last line, if that takes further deltas
}

// large is a line in a segment's buffer for which the record has a reference.
type large struct {
	start, end int
	eventType  string
}

// maxRef bounds a reference to a payload, in bytes: names are of our making.
const maxRef = 384

// size is that of the record's payload.
func (seg *segment) size() int {
	n := len(seg.buf) + seg.pack.reserve()
	for _, line := range seg.large {
		n -= line.end - line.start - maxRef
	}
	return n
}

// Log is a session's log, opened for writing by one owner: self-clocked group
// commit behind the fence. At most one append is in flight; what is appended
// meanwhile leaves as the next record. All methods are safe for concurrent
// use; the events' order is the order of the calls to Append.
type Log struct {
	store   *Store
	session string
	subject string
	epoch   Epoch
	limit   int // bytes of a record's payload

	ctx    context.Context // ends the attempts of the writer
	cancel context.CancelFunc
	wg     sync.WaitGroup
	done   chan struct{} // closed with err

	mu          sync.Mutex
	queue       []*segment
	spare       *segment // of the last commit, to be filled again
	scratch     []byte   // of fits
	bytes       int      // in queue and in flight
	appended    uint64   // events
	acked       uint64   // events
	writing     bool     // the writer runs
	closed      bool
	err         error         // sticky
	changed     chan struct{} // closed at progress if someone waits
	traceParent string
	state       *State // its cursors and ids; the writer has its tail
	memory      memory
	tail        tail      // only the writer touches it while writing
	looked      time.Time // when Retain last asked for the stream's room
}

// tail is what the log knows of its subject's last record.
type tail struct {
	stream   uint64 // its stream sequence, 0 none
	seq, sub uint64
	epoch    Epoch  // of the last durable record
	settled  uint64 // stream sequence of the last record with agent_settled
}

// OpenLog appends session_claimed under the next epoch, and behind it in the
// same record what else is to be said of the claim. That is the fence:
// from here the former owner's next append fails with ErrFenced. State must
// be a fresh Fold of the session; the log keeps it and takes it over. It is
// ErrFenced if someone else wrote since. ctx bounds the opening only.
func (s *Store) OpenLog(ctx context.Context, session string, st *State, worker string, also ...loop.Event) (*Log, error) {
	l, err := s.BeginLog(ctx, session, st, worker)
	if err != nil {
		return nil, err
	}
	if len(also) > 0 {
		err = l.AppendAll(ctx, also)
	}
	if err == nil {
		err = l.Flush(ctx)
	}
	if err != nil {
		l.fail(err)
		l.cancel()
		l.wg.Wait()
		return nil, fmt.Errorf("claiming session %s: %w", session, err)
	}
	return l, nil
}

// BeginLog is OpenLog without a record of its own: session_claimed leaves with
// what is appended next, or by Flush. Until then there is no fence, and nothing
// may be done that only the owner may do; the first Flush says whether it is
// this one.
func (s *Store) BeginLog(ctx context.Context, session string, st *State, worker string) (*Log, error) {
	if _, err := subjects.ParseSession(session); err != nil {
		return nil, err
	}
	if st.TailSeq == 0 {
		s.goOn(ctx, session, st)
	}
	nonce := nuid.Next()
	l := &Log{
		store: s, session: session, subject: s.names.Events(session),
		epoch: Epoch{N: st.Epoch.N + 1, Nonce: nonce[len(nonce)-12:]},
		limit: s.limit(), done: make(chan struct{}), state: st, memory: st.memory,
		tail: tail{stream: st.TailSeq, seq: st.Seq, sub: st.Sub, epoch: st.Epoch, settled: st.Settled},
	}
	// The log outlives the call that opens it, and ends by Close.
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.put(&loop.SessionClaimed{Worker: worker, Epoch: l.epoch.String()}, nil, l.limit, false)
	return l, nil
}

// Epoch is this ownership.
func (l *Log) Epoch() Epoch { return l.epoch }

// Done is closed when the log can no longer be written; Err says why.
func (l *Log) Done() <-chan struct{} { return l.done }

// Err is ErrFenced, ErrClosed or what else ended the log; nil while all is
// well.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Buffered is how many bytes wait for the broker's acknowledgement.
func (l *Log) Buffered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// SetTraceParent gives the W3C trace context of the records that follow; ""
// is none.
func (l *Log) SetTraceParent(tp string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.traceParent = tp
}

// Append queues an event, and with it the inputs that it consumes. It waits
// only while 4 MiB are not acknowledged. A nil error promises nothing about
// the broker: that is what Flush is for.
func (l *Log) Append(ctx context.Context, ev loop.Event, inputs ...InputRef) error {
	return l.AppendAll(ctx, []loop.Event{ev}, inputs...)
}

// AppendAll is Append for events that belong together: they are one record,
// and lines of it travel beside it if they are over the broker's limit
// together. Updates are the exception, they have records of their own. The
// inputs are consumed by the record of the last event. An agent_settled should
// be the last one: readers begin a run behind its record.
func (l *Log) AppendAll(ctx context.Context, evs []loop.Event, inputs ...InputRef) error {
	l.mu.Lock()
	if l.err == nil && l.bytes >= maxBuffer {
		l.store.opts.Hooks.bufferFull()
	}
	for l.err == nil && l.bytes >= maxBuffer {
		if err := l.wait(ctx); err != nil {
			l.mu.Unlock()
			return err
		}
	}
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if l.closed {
		return ErrClosed
	}
	if slices.ContainsFunc(evs, isReturned) {
		inputs = slices.Clone(inputs)
		for i := range inputs {
			inputs[i].Returned = true
		}
	}
	limit := l.limit
	if len(evs) > 1 && !l.fits(evs, inputs) {
		l.push(false)
		limit = l.lineLimit(evs)
	}
	for i, ev := range evs {
		if i == len(evs)-1 {
			l.put(ev, inputs, limit, i > 0)
		} else {
			l.put(ev, nil, limit, i > 0)
		}
	}
	l.state.take(0, evs, inputs...)
	l.start()
	return nil
}

// start has the queue written. Called with mu held.
func (l *Log) start() {
	if !l.writing && len(l.queue) > 0 {
		l.writing = true
		l.wg.Go(l.write) // ends when the queue is empty; Close waits for it
	}
}

// fits says whether events that belong together can join the last record that
// waits, without one of them going into the next. Called with mu held.
func (l *Log) fits(evs []loop.Event, inputs []InputRef) bool {
	if len(l.queue) == 0 {
		return false
	}
	seg := l.queue[len(l.queue)-1]
	if seg.ephemeral || len(seg.large) > 0 || seg.says.settles || len(seg.inputs)+len(inputs) > maxInputs {
		return false
	}
	return len(seg.buf)+l.sizeOf(evs) <= l.limit
}

// lineLimit is how long a line may be so that the events are one record.
// Called with mu held.
func (l *Log) lineLimit(evs []loop.Event) int {
	if l.sizeOf(evs) <= l.limit {
		return l.limit
	}
	return max(maxRef, l.limit/len(evs)-1)
}

// sizeOf is the size of the events' lines. Called with mu held.
func (l *Log) sizeOf(evs []loop.Event) (size int) {
	for _, ev := range evs {
		l.scratch = loop.AppendWire(l.scratch[:0], ev)
		size += 1 + len(l.scratch)
	}
	if cap(l.scratch) > maxSpare {
		l.scratch = nil
	}
	return size
}

func isReturned(ev loop.Event) bool {
	_, ok := ev.(*loop.InputReturned)
	return ok
}

// put adds the event to the last segment, or to a new one, unless it belongs
// together with the event before it. A line over the limit travels beside its
// record. An agent_settled is the last event of its record: readers begin a run
// behind that record. Called with mu held.
func (l *Log) put(ev loop.Event, inputs []InputRef, limit int, together bool) {
	eph := len(inputs) == 0 && isEphemeral(ev)
	var seg *segment
	if n := len(l.queue); n > 0 {
		seg = l.queue[n-1]
	}
	if seg == nil || seg.ephemeral != eph || !together && (len(seg.large) > 0 || seg.says.settles ||
		len(seg.inputs)+len(inputs) > maxInputs && len(seg.inputs) > 0) {
		seg = l.push(eph)
	}
	before := len(seg.buf)
	if before > 0 {
		seg.buf = append(seg.buf, '\n')
	}
	start := len(seg.buf)
	seg.buf = loop.AppendWire(seg.buf, ev)
	isLarge := len(seg.buf)-start > limit
	if before > 0 && !together && (isLarge || seg.size() > l.limit) {
		next := l.push(eph)
		next.buf = append(next.buf, seg.buf[start:]...)
		seg.buf = seg.buf[:before]
		seg, start, before = next, 0, 0
	}
	length := len(seg.buf) - start
	seg.join(ev, start)
	l.bytes += len(seg.buf) - before
	if isLarge {
		seg.large = append(seg.large, large{len(seg.buf) - length, len(seg.buf), ev.EventType()})
	}
	seg.says.event(ev)
	seg.inputs = append(seg.inputs, inputs...)
	seg.events++
	l.appended++
}

func (l *Log) push(ephemeral bool) *segment {
	seg := l.spare
	l.spare = nil
	if seg == nil {
		seg = &segment{}
	}
	*seg = segment{buf: seg.buf[:0], ephemeral: ephemeral, inputs: seg.inputs[:0], large: seg.large[:0], pack: pack{sizes: seg.pack.sizes[:0]}}
	l.queue = append(l.queue, seg)
	return seg
}

// isEphemeral names the events whose records expire: what their message_end
// or tool_execution_end says again.
func isEphemeral(ev loop.Event) bool {
	switch ev.(type) {
	case *loop.MessageUpdate, *loop.ToolExecutionUpdate:
		return true
	}
	return false
}

// wait lets mu go until something was acknowledged, the log ended or ctx did.
func (l *Log) wait(ctx context.Context) error {
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	changed := l.changed
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wake ends the waits. Called with mu held.
func (l *Log) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Flush waits until everything appended before it is acknowledged: the
// barrier before any effect outside. It returns the log's sticky error.
func (l *Log) Flush(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && ctx.Err() == nil { // otherwise the log is being abandoned
		l.start()
	}
	for target := l.appended; l.acked < target; {
		if l.err != nil {
			return l.err
		}
		if err := l.wait(ctx); err != nil {
			return err
		}
	}
	return l.err
}

// Close flushes and ends the log. When ctx ends first, what is not
// acknowledged is given up; a context that has ended already makes Close
// abandon the log at once. The error is the flush's.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	err := l.Flush(ctx)
	l.fail(ErrClosed)
	l.cancel()
	l.wg.Wait()
	if errors.Is(err, ErrClosed) {
		return nil // closed before
	}
	return err
}

// fail makes err sticky; the first one stays.
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = err
	l.wake()
	close(l.done)
}

// Spent says whether nothing is left to do for an input but to delete it: its
// sequence is at or below its kind's cursor, or its id was consumed before.
func (l *Log) Spent(in *Input) (InputOutcome, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Spent(in)
}

// Outcome is what became of an input that is named by its id or, with "", by
// its sequence; false if the log does not know it.
func (l *Log) Outcome(id string, seq uint64) (InputOutcome, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Outcome(id, seq)
}

// Owed are the cancelled prompts that have no agent_settled yet.
func (l *Log) Owed() []InputRef {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.state.Owed)
}
