package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// viewAge is how long a look at the inbox is good for at most.
const viewAge = 100 * time.Millisecond

// inbox reads the inputs of one session behind its cursors.
//
// It remembers what it has seen in the inbox, so that a look costs one message
// to the broker, whatever kinds it is for, and none if nothing from outside has
// reached the worker since the look before: whoever had an input acknowledged
// and could know that the run has got further than that look must have heard of
// it from the model, a tool or a record. Each of the first two calls stale, and
// what is sent after a run's last record is found when the bell is removed, or
// before the next one that waits begins.
type inbox struct {
	store   *session.Store
	session string

	looking sync.Mutex // one look at a time; held before mu

	mu      sync.Mutex // guards what is below; tools pass barriers side by side
	cursors map[subjects.Kind]uint64
	// skipped were cancelled and are perhaps not deleted yet.
	skipped map[uint64]bool
	edits   map[uint64]loop.Message // by the sequence of the waiting input
	order   []uint64                // of the waiting prompts, if one was moved
	// doomed are inputs whose record is appended and not yet acknowledged.
	doomed []*session.Input

	// waiting is what was seen and is not spent, in the order of the stream but
	// for prompts that were moved.
	waiting []*session.Waiting
	seen    uint64    // the last input that was seen
	news    uint64    // counts the reasons to look again
	looked  uint64    // news of the last look, 0 before the first one
	at      time.Time // when that began
}

func newInbox(store *session.Store, id string, st *session.State) *inbox {
	b := &inbox{
		store: store, session: id, cursors: map[subjects.Kind]uint64{},
		skipped: map[uint64]bool{}, edits: map[uint64]loop.Message{}, news: 1,
	}
	maps.Copy(b.cursors, st.Cursors)
	maps.Copy(b.edits, st.Edits)
	b.order = slices.Clone(st.Order)
	for seq := range st.Skipped {
		b.skipped[seq] = true
	}
	return b
}

// stale says that something from outside has come: the next look is a real
// one.
func (b *inbox) stale() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.news++
}

// ended is called behind a run's last record. What waits is begun next, and an
// abort that has come since the last look is for the run that is over: the next
// look is a real one. Without anything that waits the bell's removal looks.
func (b *inbox) ended() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 {
		b.news++
	}
}

// look sees what has come since the last look, if it may be something.
func (b *inbox) look(ctx context.Context) error {
	b.looking.Lock()
	defer b.looking.Unlock()
	b.mu.Lock()
	news, begun := b.news, time.Now()
	fresh := b.looked == news && begun.Sub(b.at) < viewAge
	after := b.seen
	b.mu.Unlock()
	if fresh {
		return nil
	}
	for more := true; more; {
		var w *session.Waiting
		var err error
		w, more, err = b.store.Look(ctx, b.session, after)
		if errors.Is(err, session.ErrNoInput) {
			break
		}
		if err != nil {
			return err
		}
		after = w.Seq
		b.see(w)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looked, b.at = news, begun
	return nil
}

func (b *inbox) see(w *session.Waiting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, w)
	b.seen = w.Seq
	b.arrange()
}

// arrange puts the prompts into their order. Called with mu held.
func (b *inbox) arrange() {
	session.Arrange(b.waiting, b.order, func(w *session.Waiting) (uint64, bool) {
		return w.Seq, w.Kind == subjects.KindPrompt
	})
}

// prompts gives those that wait, in their order.
func (b *inbox) prompts() []uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var seqs []uint64
	for _, w := range b.waiting {
		if w.Kind == subjects.KindPrompt && w.Seq > b.cursors[w.Kind] && !b.skipped[w.Seq] {
			seqs = append(seqs, w.Seq)
		}
	}
	return seqs
}

// reorder gives the prompts that wait another order.
func (b *inbox) reorder(order []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.order = order
	b.arrange()
}

// drop forgets what is not in the inbox any more.
func (b *inbox) drop(gone func(*session.Waiting) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, gone)
}

// pick gives the first input that was seen and is wanted, nil without one.
func (b *inbox) pick(wanted func(*session.Waiting) bool) *session.Waiting {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.waiting {
		if !b.skipped[w.Seq] && wanted(w) {
			return w
		}
	}
	return nil
}

// get looks, and reads the first input that is wanted as it is to be
// delivered: edited, and none that was cancelled. ErrNoInput without one.
func (b *inbox) get(ctx context.Context, wanted func(*session.Waiting) bool) (*session.Input, error) {
	if err := b.look(ctx); err != nil {
		return nil, err
	}
	for {
		w := b.pick(wanted)
		if w == nil {
			return nil, session.ErrNoInput
		}
		in, err := b.store.ReadInput(ctx, w)
		if err == nil {
			b.prepare(in)
			return in, nil
		}
		if !errors.Is(err, session.ErrNoInput) {
			return nil, err
		}
		b.drop(func(other *session.Waiting) bool { return other == w })
	}
}

func (b *inbox) prepare(in *session.Input) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.edits[in.Ref.Seq]; m != nil {
		in.Edit(m)
	}
	// A prompt that was moved goes before older ones.
	in.Ref.Early = in.Ref.Kind == subjects.KindPrompt && slices.ContainsFunc(b.waiting, func(w *session.Waiting) bool {
		return w.Kind == in.Ref.Kind && w.Seq < in.Ref.Seq && w.Seq > b.cursors[w.Kind] && !b.skipped[w.Seq]
	})
}

// next gives the first input of the kind after a sequence, or ErrNoInput.
func (b *inbox) next(ctx context.Context, k subjects.Kind, after uint64) (*session.Input, error) {
	return b.get(ctx, func(w *session.Waiting) bool { return w.Kind == k && w.Seq > after })
}

func (b *inbox) edit(seq uint64, m loop.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.edits[seq] = m
}

// find gives the waiting input with a message that has an id or, with "", a
// sequence. ErrNoInput without one.
func (b *inbox) find(ctx context.Context, id string, seq uint64) (*session.Input, error) {
	tried := map[uint64]bool{}
	for {
		in, err := b.get(ctx, func(w *session.Waiting) bool {
			return w.Kind.HasMessage() && w.Seq > b.cursors[w.Kind] && !tried[w.Seq]
		})
		if err != nil || in.Ref.Seq == seq || id != "" && in.ID == id {
			return in, err
		}
		tried[in.Ref.Seq] = true
	}
}

func (b *inbox) cursor(k subjects.Kind) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cursors[k]
}

// first gives the input of these kinds whose turn it is, or ErrNoInput.
func (b *inbox) first(ctx context.Context, kinds ...subjects.Kind) (*session.Input, error) {
	return b.get(ctx, func(w *session.Waiting) bool {
		return slices.Contains(kinds, w.Kind) && w.Seq > b.cursors[w.Kind]
	})
}

// before is first, of what was stored before a sequence.
func (b *inbox) before(ctx context.Context, seq uint64, kinds ...subjects.Kind) (*session.Input, error) {
	return b.get(ctx, func(w *session.Waiting) bool {
		return slices.Contains(kinds, w.Kind) && w.Seq > b.cursors[w.Kind] && w.Seq < seq
	})
}

// empty says whether every input is spent.
func (b *inbox) empty(ctx context.Context) (bool, error) {
	if err := b.look(ctx); err != nil {
		return false, err
	}
	return b.pick(func(w *session.Waiting) bool { return w.Seq > b.cursors[w.Kind] }) == nil, nil
}

// sweep deletes inputs that the log has consumed and a former owner did not
// get to delete.
func (b *inbox) sweep(ctx context.Context) error {
	if err := b.look(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	var spent []*session.Waiting
	for _, w := range b.waiting {
		if w.Seq <= b.cursors[w.Kind] || b.skipped[w.Seq] {
			spent = append(spent, w)
		}
	}
	b.mu.Unlock()
	for _, w := range spent {
		if err := b.store.DeleteWaiting(ctx, w); err != nil {
			return err
		}
	}
	b.drop(func(w *session.Waiting) bool { return slices.Contains(spent, w) })
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
	b.waiting = slices.DeleteFunc(b.waiting, func(w *session.Waiting) bool {
		return w.Seq <= b.cursors[w.Kind] || b.skipped[w.Seq]
	})
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
