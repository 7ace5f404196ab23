package session_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

var errCrash = errors.New("crash")

// crasher is a worker as small as can be, which dies at any step.
type crasher struct {
	t     *testing.T
	store *session.Store
	rnd   *rand.Rand
	odds  int // one in so many steps is a crash
}

// step is where a worker may die.
func (c *crasher) step() error {
	if c.odds > 0 && c.rnd.IntN(c.odds) == 0 {
		c.store.JetStream().Conn().Close()
		return errCrash
	}
	return nil
}

func (c *crasher) serve(ctx context.Context, claim *session.Claim, id string) (err error) {
	defer func() {
		// A dead process does neither; its connection is closed by now.
		if err != nil {
			err = errors.Join(err, claim.Release(ctx, 0))
			return
		}
		err = claim.Remove(ctx)
	}()
	st, err := c.store.Fold(ctx, claim.Session())
	if err != nil {
		return err
	}
	l, err := c.store.OpenLog(ctx, claim.Session(), st, id)
	if err != nil {
		return err
	}
	defer func() {
		ended, cancel := context.WithCancel(ctx)
		if err != nil {
			cancel()
		}
		err = errors.Join(err, l.Close(ended))
		cancel()
	}()
	for after := uint64(0); ; {
		if err := c.step(); err != nil {
			return err
		}
		in, err := c.store.NextInput(ctx, claim.Session(), "", after)
		if errors.Is(err, session.ErrNoInput) {
			return nil
		}
		if err != nil {
			return err
		}
		after = in.Ref.Seq
		if err := c.consume(ctx, l, in); err != nil {
			return err
		}
	}
}

func (c *crasher) consume(ctx context.Context, l *session.Log, in *session.Input) error {
	if _, spent := l.Spent(in); !spent {
		if err := l.Append(ctx, &loop.AgentStart{}, in.Ref); err != nil {
			return err
		}
		for range 3 {
			if err := errors.Join(c.step(), l.Append(ctx, delta("x"))); err != nil {
				return err
			}
		}
		if err := errors.Join(l.Append(ctx, &loop.AgentSettled{PromptSeq: in.Ref.Seq}), l.Flush(ctx)); err != nil {
			return err
		}
	}
	if err := c.step(); err != nil {
		return err
	}
	return c.store.DeleteInput(ctx, in)
}

// Workers die at every step, others go on, and in the end each input was
// consumed once, in order, under epochs that never go back.
func TestEachInputIsConsumedOnceWhateverDies(t *testing.T) {
	const sessions, prompts, workers = 8, 6, 3
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
				b := newBench(t, e, nil)
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for i := range workers {
					wg.Go(func() { crashingWorker(ctx, t, e, rand.New(rand.NewPCG(seed, uint64(i))), i) })
				}
				want := make(map[string][]uint64)
				for range prompts {
					for i := range sessions {
						id := fmt.Sprint("s", i)
						want[id] = append(want[id], b.publish(id, subjects.KindPrompt, "do it").Seq)
						time.Sleep(100 * time.Millisecond)
					}
				}
				for id := range want {
					for {
						if _, err := b.store.NextInput(t.Context(), id, "", 0); errors.Is(err, session.ErrNoInput) {
							break
						}
						time.Sleep(time.Second)
					}
				}
				stop()
				wg.Wait()
				epochs := uint64(0)
				for id, seqs := range want {
					epochs += b.fold(id).Epoch.N // checks numbers and epochs
					var got []uint64
					for _, rec := range b.records(id, session.From{}) {
						for _, ref := range rec.Inputs {
							got = append(got, ref.Seq)
						}
					}
					if fmt.Sprint(got) != fmt.Sprint(seqs) {
						t.Errorf("session %s consumed %v, want %v", id, got, seqs)
					}
				}
				if epochs <= sessions {
					t.Error("nothing died: the test shows nothing")
				}
				e.NC.Close()
			})
		})
	}
}

// crashingWorker is started again whenever it has died.
func crashingWorker(ctx context.Context, t *testing.T, e *natstest.Env, rnd *rand.Rand, i int) {
	for ctx.Err() == nil {
		nc, err := nats.Connect("", nats.InProcessServer(e.Server))
		if err != nil {
			t.Error(err)
			return
		}
		store, err := session.Open(ctx, nc, subjects.Names{}, nil)
		if err != nil {
			nc.Close()
			continue
		}
		c := &crasher{t: t, store: store, rnd: rnd, odds: 40}
		life, done := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := store.Ringer(life); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
				t.Error(err)
			}
		})
		for claim, err := range store.Claims(ctx, nil) {
			if err != nil {
				break // the connection is closed: this life is over
			}
			if err := c.serve(context.WithoutCancel(ctx), claim, fmt.Sprint("w", i)); errors.Is(err, errCrash) {
				break
			}
		}
		done()
		nc.Close()
		wg.Wait()
	}
}
