package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// InputOutcome is what became of an input that the log knows.
type InputOutcome struct {
	Ref    InputRef // with Returned set if it was given back
	Record uint64   // stream sequence of the record that consumed it, 0 if by this ownership
	// Turn of its run that the input was delivered in, from 1; 0 if it was not
	// delivered.
	Turn int
	// Dead says that it was given up: it, or the run that it began, is in the
	// dead letters.
	Dead bool
}

// State is what a fold of the log gives: all that a new owner needs.
type State struct {
	Transcript *loop.Transcript
	// Cursors are the last consumed inbox sequences of each kind.
	Cursors map[subjects.Kind]uint64
	// IDs are all inputs with an id that the log has consumed.
	IDs map[string]InputOutcome
	// Skipped are inputs beyond their kind's cursor that were consumed out of
	// their turn: cancelled, or moved to the front.
	Skipped map[uint64]subjects.Kind
	// Edits are the messages that took the place of those of waiting inputs.
	Edits map[uint64]loop.Message
	// Order is that of the prompts that wait, by their sequences, if one was
	// moved; later ones come behind. nil is the order of the stream.
	Order []uint64
	// Owed are cancelled prompts without agent_settled, which must not come
	// while a run is open.
	Owed    []InputRef
	Epoch   Epoch  // the last one; zero for a session without log
	Worker  string // of the last session_claimed
	TailSeq uint64 // stream sequence of the last record
	Seq     uint64 // Pi-Seq of the last durable record
	Sub     uint64 // Pi-Sub of the last record
	Settled uint64 // stream sequence of the last record with agent_settled
	// LastOutcome is the last agent_settled's, "" without one.
	LastOutcome loop.Outcome
	// Attempts counts the claims of the open run since its last completed
	// turn, from the one that began it; 0 without an open run. The claim that
	// is made now is not in it.
	Attempts int
	// Claims counts all claims of the open run, from 1; 0 without one.
	Claims int
	// Prompt is the input that began the open run, nil without one.
	Prompt *InputRef
	Time   time.Time // of the last record
	// Former is the summary of a session without records, nil if it has none.
	// OpenLog and BeginLog read it.
	Former *Summary
	// Released says that the last owner gave the session back in good order
	// while a run was open.
	Released bool
	// Prompts counts the agent_settled that the log still has.
	Prompts int
	// TraceParent is the W3C trace context of the open run, "" unknown.
	TraceParent string
	// Saved is the last snapshot of the session's files, nil without one.
	Saved *loop.WorkspaceSaved
	// ClaimsSince are the epochs since then: their owners may
	// have stored files that no record names. At most 64.
	ClaimsSince []string

	turn int // of the open or last run, from 1
	// took is how long the open run went on up to Time, without what it waited
	// for a person; asking says that it waits for one.
	took   time.Duration
	asking bool
	memory memory
}

func newState() *State {
	return &State{
		Transcript: &loop.Transcript{},
		Cursors:    make(map[subjects.Kind]uint64, len(subjects.Kinds)),
		IDs:        make(map[string]InputOutcome),
		Skipped:    make(map[uint64]subjects.Kind),
		Edits:      make(map[uint64]loop.Message),
	}
}

// Took is how long the open run has gone on at a time, from its first record and
// by the broker's clock, whoever its owners were. What it waited for a person
// does not count. 0 without an open run.
func (st *State) Took(now time.Time) time.Duration {
	if st.Claims == 0 || st.asking {
		return st.took
	}
	return st.took + max(0, now.Sub(st.Time))
}

// Spent says whether nothing is left to do for an input but to delete it.
func (st *State) Spent(in *Input) (InputOutcome, bool) {
	if in.ID != "" {
		if out, ok := st.IDs[in.ID]; ok && (in.Redrive == 0 || !out.Dead) {
			return out, true
		}
	}
	if _, skipped := st.Skipped[in.Ref.Seq]; skipped || in.Ref.Seq <= st.Cursors[in.Ref.Kind] {
		return InputOutcome{Ref: in.Ref}, true
	}
	return InputOutcome{}, false
}

// take notes what a record says of inputs: the cursors move, and each id keeps
// its first outcome, unless that was given up and is tried again.
func (st *State) take(record uint64, evs []loop.Event, refs ...InputRef) {
	for _, ev := range evs {
		switch ev := ev.(type) {
		case *loop.AgentStart:
			st.turn = 0
		case *loop.TurnStart:
			st.turn++
		case *loop.WorkspaceSaved:
			st.Saved, st.ClaimsSince = ev, nil
		case *loop.InputReturned:
			st.edit(ev) // before what it is about goes, perhaps in the same record
		}
	}
	for _, ref := range refs {
		st.consume(ref)
		before, known := st.IDs[ref.ID]
		if ref.ID == "" || known && (!before.Dead || ref.Returned) {
			continue
		}
		out := InputOutcome{Ref: ref, Record: record}
		if !ref.Returned && ref.Kind.HasMessage() {
			out.Turn = st.turn
		}
		st.IDs[ref.ID] = out
	}
	for _, ev := range evs {
		switch ev := ev.(type) {
		case *loop.InputReturned:
			if ev.Reason == "dead_letter" {
				st.dead(ev.ID)
			}
		case *loop.AgentSettled:
			st.Owed = slices.DeleteFunc(st.Owed, func(r InputRef) bool { return r.Seq == ev.PromptSeq })
			if ev.Outcome == loop.OutcomeDeadLetter {
				st.dead(ev.PromptID)
			}
		}
	}
}

// consume moves the cursor of the input's kind, or notes that the input went
// out of its turn.
func (st *State) consume(ref InputRef) {
	delete(st.Edits, ref.Seq)
	st.Order = slices.DeleteFunc(st.Order, func(seq uint64) bool { return seq == ref.Seq })
	if !ref.Early {
		st.Cursors[ref.Kind] = max(st.Cursors[ref.Kind], ref.Seq)
		maps.DeleteFunc(st.Skipped, func(seq uint64, kind subjects.Kind) bool {
			return kind == ref.Kind && seq <= st.Cursors[kind]
		})
		return
	}
	st.Skipped[ref.Seq] = ref.Kind
	if ref.Kind == subjects.KindPrompt && ref.Returned {
		st.Owed = append(st.Owed, ref)
	}
}

// edit takes note of a change of the queue that put a message in the place of
// another, or prompts into another order.
func (st *State) edit(ev *loop.InputReturned) {
	if ev.Kind != string(subjects.KindQueue) || ev.Reason != "done" {
		return
	}
	var in Input
	if in.parse(subjects.KindQueue, ev.Input) != nil {
		return
	}
	switch in.Queue.Op {
	case OpEdit:
		st.Edits[in.Queue.Seq] = in.Message
	case OpMove:
		st.Order = in.Queue.order
	}
}

// Arrange puts things that wait, in the order of the stream, into the order
// that their prompts were given: what is no prompt keeps its place, and prompts
// that the order does not know come behind the others.
func Arrange[T any](things []T, order []uint64, prompt func(T) (seq uint64, ok bool)) {
	if len(order) == 0 {
		return
	}
	rank := func(seq uint64) int {
		if i := slices.Index(order, seq); i >= 0 {
			return i
		}
		return len(order)
	}
	var places []int
	var prompts []T
	for i, t := range things {
		if _, ok := prompt(t); ok {
			places, prompts = append(places, i), append(prompts, t)
		}
	}
	slices.SortStableFunc(prompts, func(a, b T) int {
		sa, _ := prompt(a)
		sb, _ := prompt(b)
		return cmp.Or(cmp.Compare(rank(sa), rank(sb)), cmp.Compare(sa, sb))
	})
	for i, place := range places {
		things[place] = prompts[i]
	}
}

// Outcome is what became of an input that is named by its id or, with "", by
// its sequence.
func (st *State) Outcome(id string, seq uint64) (InputOutcome, bool) {
	if id != "" {
		out, ok := st.IDs[id]
		return out, ok
	}
	for _, out := range st.IDs {
		if out.Ref.Seq == seq {
			return out, true
		}
	}
	return InputOutcome{}, false
}

// dead marks an id's input as given up.
func (st *State) dead(id string) {
	if out, ok := st.IDs[id]; ok {
		out.Dead = true
		st.IDs[id] = out
	}
}

// Fold reads the session's log once. A session without a log gives an empty
// state and no error. ErrBroken names the record that breaks a rule.
func (s *Store) Fold(ctx context.Context, session string) (*State, error) {
	if _, err := subjects.ParseSession(session); err != nil {
		return nil, err
	}
	st, err := s.fold(ctx, session)
	if errors.Is(err, ErrBroken) {
		// Retention may have taken the log's head while it was read.
		st, err = s.fold(ctx, session)
	}
	return st, err
}

func (s *Store) fold(ctx context.Context, session string) (*State, error) {
	f := folder{state: newState()}
	for rec, err := range s.raw(ctx, session) {
		if err != nil {
			return nil, err
		}
		if err := f.apply(rec); err != nil {
			return nil, err
		}
	}
	return f.state, nil
}

// maxClaimsSince bounds State.ClaimsSince.
const maxClaimsSince = 64

// folder applies records to a state.
type folder struct {
	state *State
	open  bool // a prompt's run has begun and is not settled
	// asking are the calls of the open run that wait for a person. Owners that
	// come and go meanwhile are no sign of a poisonous prompt.
	asking map[string]bool
}

func (f *folder) apply(rec *Record) error {
	st := f.state
	if rec.Seq == 0 { // a stranger's
		st.TailSeq = rec.StreamSeq
		return nil
	}
	if err := f.check(rec); err != nil {
		return err
	}
	before := st.TraceParent
	if f.open && !st.asking {
		st.took += rec.Time.Sub(st.Time)
	}
	st.TailSeq, st.Seq, st.Sub, st.Epoch, st.Time = rec.StreamSeq, rec.Seq, rec.Sub, rec.Epoch, rec.Time
	for _, ev := range rec.Events {
		f.event(rec, ev)
		if err := st.Transcript.Apply(ev); err != nil {
			return fmt.Errorf("%w: session %s, stream sequence %d: %w", ErrBroken, rec.Session, rec.StreamSeq, err)
		}
	}
	st.asking = len(f.asking) > 0
	if st.TraceParent = ""; f.open {
		st.TraceParent = cmp.Or(rec.TraceParent, before)
	}
	st.take(rec.StreamSeq, rec.Events, rec.Inputs...)
	return f.remember(rec)
}

// remember notes what retention has to know of a record, and takes what a
// checkpoint says.
func (f *folder) remember(rec *Record) error {
	if rec.Sub > 0 {
		return nil
	}
	found := says{consumes: len(rec.Inputs) > 0}
	for _, ev := range rec.Events {
		found.event(ev)
		other, ok := ev.(*loop.UnknownEvent)
		if !ok || other.Type != checkpointType {
			continue
		}
		if err := f.state.recall(other.Raw); err != nil {
			return fmt.Errorf("%w: session %s, stream sequence %d: %w", ErrBroken, rec.Session, rec.StreamSeq, err)
		}
	}
	f.state.memory.durable(mark{stream: rec.StreamSeq, seq: rec.Seq, time: rec.Time}, found)
	return nil
}

// check holds the record against the rules of the log: dense numbers, epochs
// in order, a new epoch only by session_claimed.
func (f *folder) check(rec *Record) error {
	st := f.state
	broken := func(rule string) error {
		return fmt.Errorf("%w: session %s, stream sequence %d: record %d.%d of epoch %s follows %d.%d of %s: %s", ErrBroken,
			rec.Session, rec.StreamSeq, rec.Seq, rec.Sub, rec.Epoch, st.Seq, st.Sub, st.Epoch, rule)
	}
	first := st.Seq == 0 // retention may have taken what was before
	switch {
	case first:
	case rec.Sub == 0 && rec.Seq != st.Seq+1, rec.Sub > 0 && rec.Seq != st.Seq:
		return broken("numbers are not dense")
	case rec.Epoch.N < st.Epoch.N, rec.Epoch.N == st.Epoch.N && rec.Epoch != st.Epoch:
		return broken("epochs are not in order")
	}
	if rec.Epoch != st.Epoch && rec.Sub == 0 && !first {
		if len(rec.Events) == 0 || rec.Events[0].EventType() != "session_claimed" {
			return broken("an epoch begins without session_claimed")
		}
	}
	return nil
}

func (f *folder) event(rec *Record, ev loop.Event) {
	st := f.state
	switch ev := ev.(type) {
	case *loop.SessionClaimed:
		st.Worker, st.Released = ev.Worker, false
		if len(st.ClaimsSince) < maxClaimsSince {
			st.ClaimsSince = append(st.ClaimsSince, ev.Epoch)
		}
		if f.open {
			if len(f.asking) == 0 {
				st.Attempts++
			}
			st.Claims++
		}
	case *loop.RunReleased:
		st.Released = true
	case *loop.AgentStart:
		// The first start after a settled prompt; a run that a retry
		// starts again has the same prompt.
		if !f.open {
			f.open, st.Attempts, st.Claims, st.took = true, 1, 1, 0
		}
	case *loop.ApprovalRequested:
		if f.asking == nil {
			f.asking = map[string]bool{}
		}
		f.asking[ev.Key] = true
	case *loop.ApprovalAnswered:
		delete(f.asking, ev.Key)
	case *loop.TurnEnd:
		if f.open {
			st.Attempts = 0
		}
	case *loop.AgentSettled:
		f.open, st.Attempts, st.Claims, st.Prompt, st.took = false, 0, 0, nil, 0
		f.asking = nil
		st.Settled, st.LastOutcome = rec.StreamSeq, ev.Outcome
		st.Prompts++
	}
	if f.open && st.Prompt == nil {
		st.Prompt = delivered(rec.Inputs)
	}
}

// delivered is the first of the inputs that becomes a message, nil if none
// does.
func delivered(refs []InputRef) *InputRef {
	for _, ref := range refs {
		if !ref.Returned && ref.Kind.HasMessage() {
			return &ref
		}
	}
	return nil
}
