package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
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
	// doomed are inputs whose record is appended and not yet acknowledged.
	doomed []*session.Input
}

func newInbox(store *session.Store, id string, st *session.State) *inbox {
	cursors := maps.Clone(st.Cursors)
	if cursors == nil {
		cursors = map[subjects.Kind]uint64{}
	}
	return &inbox{store: store, session: id, cursors: cursors}
}

func (b *inbox) cursor(k subjects.Kind) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cursors[k]
}

// first gives the input of these kinds that was stored first, or ErrNoInput.
func (b *inbox) first(ctx context.Context, kinds ...subjects.Kind) (*session.Input, error) {
	var best *session.Input
	for _, k := range kinds {
		in, err := b.store.NextInput(ctx, b.session, k, b.cursor(k))
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
	return nil
}

// spent moves the cursors behind the inputs, which are deleted after the next
// barrier.
func (b *inbox) spent(inputs ...*session.Input) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, in := range inputs {
		b.cursors[in.Ref.Kind] = max(b.cursors[in.Ref.Kind], in.Ref.Seq)
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
