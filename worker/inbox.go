package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// inbox reads the inputs of one session behind its cursors.
type inbox struct {
	store   *session.Store
	session string

	mu      sync.Mutex // guards what is below; tools pass barriers side by side
	cursors map[subjects.Kind]uint64
	// skipped were cancelled and are perhaps not deleted yet.
	skipped map[uint64]bool
	edits   map[uint64]loop.Message // by the sequence of the waiting input
	// doomed are inputs whose record is appended and not yet acknowledged.
	doomed []*session.Input
}

func newInbox(store *session.Store, id string, st *session.State) *inbox {
	b := &inbox{
		store: store, session: id, cursors: map[subjects.Kind]uint64{},
		skipped: map[uint64]bool{}, edits: map[uint64]loop.Message{},
	}
	maps.Copy(b.cursors, st.Cursors)
	maps.Copy(b.edits, st.Edits)
	for seq := range st.Skipped {
		b.skipped[seq] = true
	}
	return b
}

// next gives the first input of the kind after a sequence as it is to be
// delivered: edited, and none that was cancelled.
func (b *inbox) next(ctx context.Context, k subjects.Kind, after uint64) (*session.Input, error) {
	for {
		in, err := b.store.NextInput(ctx, b.session, k, after)
		if err != nil {
			return nil, err
		}
		if b.prepare(in) {
			return in, nil
		}
		after = in.Ref.Seq
	}
}

func (b *inbox) prepare(in *session.Input) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.edits[in.Ref.Seq]; m != nil {
		in.Edit(m)
	}
	return !b.skipped[in.Ref.Seq]
}

func (b *inbox) edit(seq uint64, m loop.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.edits[seq] = m
}

// find gives the waiting input that a change of the queue names, or ErrNoInput.
func (b *inbox) find(ctx context.Context, q session.QueueOptions) (*session.Input, error) {
	for _, k := range subjects.Kinds {
		if !k.HasMessage() {
			continue
		}
		for after := b.cursor(k); ; {
			in, err := b.next(ctx, k, after)
			if errors.Is(err, session.ErrNoInput) {
				break
			}
			if err != nil {
				return nil, err
			}
			if in.Ref.Seq == q.Seq || q.Target != "" && in.ID == q.Target {
				return in, nil
			}
			after = in.Ref.Seq
		}
	}
	return nil, session.ErrNoInput
}

func (b *inbox) cursor(k subjects.Kind) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cursors[k]
}

// first gives the input of these kinds that was stored first, or ErrNoInput.
func (b *inbox) first(ctx context.Context, kinds ...subjects.Kind) (*session.Input, error) {
	if len(kinds) > 1 {
		in, err := b.any(ctx, kinds)
		if in != nil || err != nil {
			return in, err
		}
	}
	var best *session.Input
	for _, k := range kinds {
		in, err := b.next(ctx, k, b.cursor(k))
		if errors.Is(err, session.ErrNoInput) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if best == nil || in.Ref.Seq < best.Ref.Seq {
			best = in
		}
	}
	if best == nil {
		return nil, session.ErrNoInput
	}
	return best, nil
}

// any asks once for all kinds, which is enough when the inbox has nothing more
// or the first thing in it is one of them. nil without an error means that the
// kinds have to be asked for one by one.
func (b *inbox) any(ctx context.Context, kinds []subjects.Kind) (*session.Input, error) {
	after := b.cursor(kinds[0])
	for _, k := range kinds[1:] {
		after = min(after, b.cursor(k))
	}
	in, err := b.store.NextInput(ctx, b.session, "", after)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(kinds, in.Ref.Kind) || in.Ref.Seq <= b.cursor(in.Ref.Kind) || !b.prepare(in) {
		return nil, nil
	}
	return in, nil
}

// empty says whether every input is spent.
func (b *inbox) empty(ctx context.Context) (bool, error) {
	_, err := b.first(ctx, subjects.Kinds[:]...)
	if errors.Is(err, session.ErrNoInput) {
		return true, nil
	}
	return false, err
}

// sweep deletes inputs that the log has consumed and a former owner did not
// get to delete.
func (b *inbox) sweep(ctx context.Context) error {
	for _, k := range subjects.Kinds {
		for cursor := b.cursor(k); cursor > 0; {
			in, err := b.store.NextInput(ctx, b.session, k, 0)
			if errors.Is(err, session.ErrNoInput) || err == nil && in.Ref.Seq > cursor {
				break
			}
			if err != nil {
				return err
			}
			if err := b.store.DeleteInput(ctx, in); err != nil {
				return err
			}
		}
	}
	return b.sweepSkipped(ctx)
}

func (b *inbox) sweepSkipped(ctx context.Context) error {
	b.mu.Lock()
	skipped := slices.Sorted(maps.Keys(b.skipped))
	b.mu.Unlock()
	for _, seq := range skipped {
		in, err := b.store.NextInput(ctx, b.session, "", seq-1)
		if errors.Is(err, session.ErrNoInput) {
			return nil
		}
		if err == nil && in.Ref.Seq == seq {
			err = b.store.DeleteInput(ctx, in)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// spent moves the cursors behind the inputs, which are deleted after the next
// barrier.
func (b *inbox) spent(inputs ...*session.Input) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, in := range inputs {
		if in.Ref.Early {
			b.skipped[in.Ref.Seq] = true
		} else {
			b.cursors[in.Ref.Kind] = max(b.cursors[in.Ref.Kind], in.Ref.Seq)
		}
		b.doomed = append(b.doomed, in)
	}
}

func (b *inbox) take() []*session.Input {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.doomed
	b.doomed = nil
	return d
}

func (b *inbox) putBack(d []*session.Input) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doomed = append(d, b.doomed...)
}

// forget deletes inputs. One that stays is swept by the next owner.
func (b *inbox) forget(ctx context.Context, inputs []*session.Input, log *slog.Logger) {
	for _, in := range inputs {
		if err := b.store.DeleteInput(ctx, in); err != nil {
			log.Warn("deleting an input", "input", in.Ref.Seq, "error", err)
		}
	}
}

// returned says that an input is not delivered.
func returned(in *session.Input, reason string) *loop.InputReturned {
	return &loop.InputReturned{Kind: string(in.Ref.Kind), Seq: in.Ref.Seq, ID: in.ID, Reason: reason}
}

// payload is the input as JSON: as it came if it was JSON, otherwise the text
// as a string.
func payload(in *session.Input) json.RawMessage {
	if json.Valid(in.Raw) {
		return json.RawMessage(in.Raw)
	}
	text, err := json.Marshal(string(in.Raw))
	if err != nil {
		return nil
	}
	return text
}
