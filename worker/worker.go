package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/subjects"
)

// Causes of the end of an owner's context, besides session.ErrLeaseLost and
// session.ErrFenced.
var (
	errHandOver = errors.New("worker: shutting down, the session is handed over")
	errKilled   = errors.New("worker: killed")
	errHeld     = errors.New("worker: the former owner still has the session")
)

// flushTime bounds what an owner still does after its context ended.
const flushTime = 5 * time.Second

// Worker claims sessions and runs their prompts; see the package comment.
type Worker struct {
	cfg     Config
	store   *session.Store
	log     *slog.Logger
	board   *board
	started time.Time
	// killed, in tests only, makes owners leave as SIGKILL would.
	killed context.Context
	kill   context.CancelCauseFunc

	mu     sync.Mutex // guards what is below
	owners map[string]*owner
	// followers are the owners whose run has one of that session above it.
	followers map[string]map[*owner]bool
}

// New checks cfg and that JetStream answers. The streams must exist
// ([subjects.Ensure]).
func New(ctx context.Context, cfg Config) (*Worker, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	store, err := session.Open(ctx, cfg.NATS, cfg.Names, cfg.storeOptions())
	if err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, store: store, started: time.Now(),
		owners: map[string]*owner{}, followers: map[string]map[*owner]bool{},
		log: cfg.Logger.With("worker", cfg.ID),
	}
	w.board = newBoard(store, w.log)
	w.killed, w.kill = context.WithCancelCause(context.Background())
	return w, nil
}

// Ready is nil while the worker can claim sessions, and otherwise says why not.
func (w *Worker) Ready() error { return w.store.Ready() }

// ID is the worker's name in the log.
func (w *Worker) ID() string { return w.cfg.ID }

// Sessions says how many sessions the worker owns now.
func (w *Worker) Sessions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.owners)
}

// Depth is what waits for workers and what is worked on, in the whole fleet.
type Depth = session.Depth

// Depth asks the broker.
func (w *Worker) Depth(ctx context.Context) (*Depth, error) { return w.store.Depth(ctx) }

// Slots says how many sessions may be at work at once.
func (w *Worker) Slots() int { return w.cfg.Sessions }

// Buffered is how many bytes of all logs wait for the broker's
// acknowledgement.
func (w *Worker) Buffered() (bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.owners {
		if log := o.written.Load(); log != nil {
			bytes += log.Buffered()
		}
	}
	return bytes
}

// Run claims and runs until ctx ends, then hands over what is left: it returns
// nil once no session is owned any more. It returns an error, after handing
// over, if the connection was closed. It may be called once.
func (w *Worker) Run(ctx context.Context) error {
	// ctx ends claiming only. Work ends by itself, or with a cause: the end of
	// the grace period.
	work, stopWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWork(nil)
	stop := context.AfterFunc(w.killed, func() { stopWork(errKilled) })
	defer stop()

	quiet, err := w.listen()
	if err != nil {
		return err
	}
	defer quiet()

	background, endBackground := context.WithCancel(work)
	var side, sessions sync.WaitGroup
	side.Go(func() { w.ring(background) })
	side.Go(func() { w.beat(background) })
	side.Go(func() { w.sharePauses(background) })
	side.Go(func() { w.board.run(background) })
	side.Go(func() { w.sweep(background) })
	side.Go(func() { w.store.KeepStreams(background) })

	stopping, stopSessions := context.WithCancel(ctx)
	defer stopSessions()
	err = w.claim(stopping, work, &sessions)
	stopSessions()

	grace := time.AfterFunc(w.cfg.Grace, func() { stopWork(errHandOver) })
	sessions.Wait()
	grace.Stop()
	endBackground()
	side.Wait()
	w.leaveBoard()
	return err
}

// listen answers other workers and hears aborts, until quiet is called.
func (w *Worker) listen() (quiet func(), err error) {
	stopOwns, err := w.store.ServeOwns(w.cfg.ID, w.owns)
	if err != nil {
		return nil, err
	}
	stops := []func() error{stopOwns}
	for _, kind := range []subjects.Kind{subjects.KindAbort, subjects.KindQueue, subjects.KindApprove} {
		stop, err := w.store.WatchInputs(kind, w.wake)
		if err != nil {
			return nil, errors.Join(err, stopAll(stops))
		}
		stops = append(stops, stop)
	}
	return func() {
		if err := stopAll(stops); err != nil {
			w.log.Warn("closing subscriptions", "error", err)
		}
	}, nil
}

func stopAll(stops []func() error) error {
	var errs []error
	for _, stop := range stops {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

// claim takes one bell after the other while there are free slots. It returns
// nil when ctx ends, or what only a person can help; sessions may then still
// run.
func (w *Worker) claim(ctx, work context.Context, sessions *sync.WaitGroup) error {
	slots := newSlots(w.cfg.Sessions)
	for c, err := range w.store.Claims(ctx, func() bool { return slots.free(ctx) }) {
		if err != nil {
			return err
		}
		mine := slots.try()
		if mine == nil {
			// A session that had given its slot back goes on with the one that
			// this bell was pulled for.
			w.handBack(c)
			continue
		}
		sessions.Go(func() {
			defer mine.free()
			w.own(work, ctx.Done(), c, mine)
		})
	}
	return nil
}

// handBack gives up a claim that never began.
func (w *Worker) handBack(c *session.Claim) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := c.Release(ctx, 0); err != nil {
		w.log.Warn("releasing the bell", "session", c.Session(), "error", err)
	}
}

// own has one session until there is nothing to do or the claim ends.
func (w *Worker) own(work context.Context, stopping <-chan struct{}, c *session.Claim, s *slot) {
	o := newOwner(w, c, stopping)
	o.slot = s
	before := w.enter(o)
	defer w.exit(o)
	if before != nil {
		// This worker lost the session and got it again: two owners in one
		// process would be told apart by nobody.
		<-before.done
	}
	ctx, cancel := c.Context(work)
	defer cancel()
	w.cfg.Hooks.claimed()
	err := o.serve(ctx)
	call(w.cfg.Hooks.ClaimEnded, whyEnded(err, o.events != nil))
	if w.cfg.Left != nil {
		// Before the bell is given back: this worker may be the next owner.
		w.cfg.Left(o.session)
	}
	o.leave(err)
}

func (w *Worker) enter(o *owner) (before *owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.owners[o.session]
	w.owners[o.session] = o
	return before
}

func (w *Worker) exit(o *owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owners[o.session] == o {
		delete(w.owners, o.session)
	}
	close(o.done)
}

func (w *Worker) owner(id string) *owner {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.owners[id]
}

// owns is the answer to a worker that is about to take a session over: only an
// owner whose lease is alive may say yes.
func (w *Worker) owns(id string) bool {
	o := w.owner(id)
	return o != nil && o.claim.Fresh()
}

// wake makes a session's owner look for an abort at once, and the owners of
// runs below that session.
func (w *Worker) wake(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.owners[id]; o != nil {
		o.wake()
	}
	for o := range w.followers[id] {
		o.wake()
	}
}

func (o *owner) wake() {
	select {
	case o.aborts <- struct{}{}:
	default: // it is about to look anyway
	}
}

// follow makes wake wake the owner for these sessions as well.
func (w *Worker) follow(o *owner, sessions []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range sessions {
		if w.followers[id] == nil {
			w.followers[id] = map[*owner]bool{}
		}
		w.followers[id][o] = true
	}
}

func (w *Worker) unfollow(o *owner, sessions []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range sessions {
		if delete(w.followers[id], o); len(w.followers[id]) == 0 {
			delete(w.followers, id)
		}
	}
}

// ring keeps the ringer alive: without it an input whose bell was lost would
// wait for the next one.
func (w *Worker) ring(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.store.Ringer(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("ringer", "error", err)
		}
		sleep(ctx, time.Second)
	}
}

// presenceEvery is how often a worker says that it is there.
const presenceEvery = 5 * time.Second

func (w *Worker) beat(ctx context.Context) {
	host, _ := os.Hostname()
	for ctx.Err() == nil {
		p := &session.Presence{
			Worker: w.cfg.ID, Version: w.cfg.Version, Host: host,
			Running: w.Sessions(), Slots: w.cfg.Sessions, Started: w.started, Beat: time.Now(),
		}
		if err := w.store.PutPresence(ctx, p); err != nil && ctx.Err() == nil {
			w.log.Warn("publishing presence", "error", err)
		}
		sleep(ctx, presenceEvery)
	}
}

// leaveBoard publishes the last summaries and takes the presence back.
func (w *Worker) leaveBoard() {
	if w.killed.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w.board.flush(ctx)
	if err := w.store.DeletePresence(ctx, w.cfg.ID); err != nil {
		w.log.Warn("taking presence back", "error", err)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
