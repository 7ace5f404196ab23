package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
)

// boardEvery is how often changed summaries are published.
const boardEvery = 500 * time.Millisecond

// board publishes summaries for ps. Runs write into it and never wait: only
// the last summary of a session counts.
type board struct {
	store *session.Store
	log   *slog.Logger

	mu    sync.Mutex // guards dirty
	dirty map[string]session.Summary
}

func newBoard(store *session.Store, log *slog.Logger) *board {
	return &board{store: store, log: log, dirty: map[string]session.Summary{}}
}

func (b *board) put(s session.Summary) {
	s.Updated = time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dirty[s.Session] = s
}

func (b *board) run(ctx context.Context) {
	t := time.NewTicker(boardEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			b.flush(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// flush publishes what changed. A summary that cannot be published is dropped:
// it is derived, and the next change brings a newer one.
func (b *board) flush(ctx context.Context) {
	for {
		s, ok := b.take()
		if !ok {
			return
		}
		if err := b.store.PutSummary(ctx, &s); err != nil {
			if ctx.Err() == nil {
				b.log.Debug("publishing summary", "session", s.Session, "error", err)
			}
			return
		}
	}
}

func (b *board) take() (s session.Summary, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, s := range b.dirty {
		delete(b.dirty, id)
		return s, true
	}
	return s, false
}

// drop forgets a summary that is not published yet.
func (b *board) drop(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.dirty, id)
}

// last publishes a session's summary at once: what comes later is another
// owner's, and must not be overwritten.
func (b *board) last(ctx context.Context, s session.Summary) {
	b.drop(s.Session)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s.Updated = time.Now()
	if err := b.store.PutSummary(ctx, &s); err != nil {
		b.log.Debug("publishing summary", "session", s.Session, "error", err)
	}
}

// recall fills the summary with what is true before this ownership has run
// anything: the log says it, and the former owner's summary says the rest. That
// one is derived, so nothing depends on whether it can be read.
func (o *owner) recall(ctx context.Context, st *session.State) {
	former := st.Former // read with an empty log
	if former == nil && st.TailSeq != 0 {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var err error
		if former, err = o.w.store.Summary(ctx, o.session); err != nil {
			o.log.Debug("reading the former summary", "error", err)
		}
	}
	if former == nil {
		former = &session.Summary{}
	}
	o.summary.Agent, o.summary.Model, o.summary.Prompts = former.Agent, former.Model, max(former.Prompts, st.Prompts)
	o.summary.Parent = former.Parent
	o.summary.Outcome, o.summary.Tokens, o.summary.Cost = former.Outcome, former.Tokens, former.Cost
	if total := st.Transcript.Usage(); total.TotalTokens > 0 {
		o.summary.Tokens, o.summary.Cost = total.TotalTokens, total.Cost.Total
	}
	if st.LastOutcome != "" {
		o.summary.Outcome = st.LastOutcome
	}
}
