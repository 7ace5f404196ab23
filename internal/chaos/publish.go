package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/internal/chaos/check"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// publishers ask for things, and keep the book of it.
type publishers struct {
	o      *options
	client *client.Client
	store  *session.Store
	js     jetstream.JetStream
	hints  []chan time.Time // by session: when its run will soon end

	mu     sync.Mutex // guards inputs and their Seqs
	inputs []*check.Input
	full   int // refusals because a session was full
	again  int // sent again after an unknown outcome
}

func newPublishers(o *options, c *client.Client, s *session.Store) *publishers {
	p := &publishers{o: o, client: c, store: s, js: s.JetStream()}
	for range o.sessions {
		p.hints = append(p.hints, make(chan time.Time, 1))
	}
	return p
}

func sessionName(n int) string { return fmt.Sprint("s", n) }

// ending passes on when a session's run will end.
func (p *publishers) ending(id string, at time.Time) {
	var n int
	if _, err := fmt.Sscanf(id, "s%d", &n); err != nil || n < 0 || n >= len(p.hints) {
		return
	}
	select {
	case p.hints[n] <- at:
	default: // nobody has heard the last one yet
	}
}

// run publishes in all sessions until until ends, or the prompts are all sent.
// What is begun then is sent until ctx ends.
func (p *publishers) run(ctx, until context.Context) {
	var wg sync.WaitGroup
	for n := range p.o.sessions {
		rng := rand.New(rand.NewPCG(p.o.seed, uint64(n)))
		wg.Go(func() { p.session(ctx, until, n, rng) })
	}
	wg.Wait()
}

// session is one user.
func (p *publishers) session(ctx, until context.Context, n int, rng *rand.Rand) {
	others := slices.DeleteFunc(slices.Clone(p.o.inputs), func(k string) bool { return k == "prompt" })
	prompts, last := 0, "none"
	for i := 0; until.Err() == nil && (p.o.prompts == 0 || prompts < p.o.prompts); i++ {
		kind := "prompt"
		late := false
		if i > 0 && p.o.seconds > 0 {
			late = p.rest(until, n, rng)
		}
		if i > 0 && len(others) > 0 && (late || rng.Float64() < 0.35) {
			kind = others[rng.IntN(len(others))]
		}
		if kind == "prompt" {
			prompts++
		}
		in := &check.Input{
			Session: sessionName(n), Kind: kind, ID: fmt.Sprintf("%s-%d", kind, i),
			Text: fmt.Sprintf("%s %s %d", sessionName(n), kind, i),
		}
		if p.o.seconds > 0 && rng.IntN(40) == 0 { // one that the broker does not take as it is
			in.Text += strings.Repeat(" and so on", maxPayload/9)
		}
		opts := session.InputOptions{}
		if rng.IntN(3) == 0 {
			opts.Agent = "other"
		}
		how := how{
			options: opts,
			queue:   []string{session.QueueKeep, session.QueueDrop, session.QueueReturn}[rng.IntN(3)],
			change:  session.QueueOptions{Op: kind, Target: last},
		}
		if kind == "cancel" || kind == "edit" {
			in.Kind = string(subjects.KindQueue)
		} else if kind != "abort" && rng.IntN(2) == 0 {
			last = in.ID // the one that will be cancelled or edited
		}
		p.add(in)
		p.send(ctx, in, how)
		if p.o.seconds > 0 && rng.IntN(20) == 0 {
			p.send(ctx, in, how) // once more, as after a lost answer
		}
	}
}

// rest waits between two inputs; late says that a run ends right now.
func (p *publishers) rest(until context.Context, n int, rng *rand.Rand) (late bool) {
	d := time.Duration(rng.ExpFloat64() * float64(1500*time.Millisecond))
	jitter := time.Duration(rng.IntN(20)-10) * time.Millisecond
	listen := rng.IntN(3) == 0
	if !listen {
		pause(until, d)
		return false
	}
	select {
	case at := <-p.hints[n]:
		pause(until, time.Until(at)+jitter)
		return true
	case <-time.After(d):
	case <-until.Done():
	}
	return false
}

func (p *publishers) add(in *check.Input) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inputs = append(p.inputs, in)
}

// acked notes the broker's word.
func (p *publishers) acked(in *check.Input, seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(in.Seqs, seq) {
		in.Seqs = append(in.Seqs, seq)
	}
}

// how is what an input says besides its text.
type how struct {
	options session.InputOptions
	queue   string // of an abort
	change  session.QueueOptions
}

// send publishes until the broker has said that it has it.
func (p *publishers) send(ctx context.Context, in *check.Input, h how) {
	for ctx.Err() == nil {
		seq, err := p.publish(ctx, in, h)
		if err == nil {
			p.acked(in, seq)
			return
		}
		p.mu.Lock()
		if errors.Is(err, client.ErrFull) {
			p.full++
		} else {
			p.again++
		}
		p.mu.Unlock()
		pause(ctx, 300*time.Millisecond)
	}
}

func (p *publishers) publish(ctx context.Context, in *check.Input, h how) (uint64, error) {
	if in.Kind == "abort" {
		got, err := p.store.Publish(ctx, in.Session, subjects.KindAbort, &session.Input{
			ID: in.ID, Abort: session.AbortOptions{Queue: h.queue},
		})
		return got.Seq, err
	}
	if in.Kind == string(subjects.KindQueue) {
		change := &session.Input{ID: in.ID, Queue: h.change}
		if h.change.Op == session.OpEdit {
			change.Message = loop.NewUserText(in.Text)
		}
		got, err := p.store.Publish(ctx, in.Session, subjects.KindQueue, change)
		return got.Seq, err
	}
	send := p.client.Prompt
	switch in.Kind {
	case "steer":
		send = p.client.Steer
	case "followup":
		send = p.client.FollowUp
	}
	got, err := send(ctx, in.Session, loop.NewUserText(in.Text), &client.InputOptions{ID: in.ID, Agent: h.options.Agent})
	if err != nil {
		return 0, err
	}
	return got.Seq, nil
}

// stranger publishes any bytes to the inbox, with a message id so that an
// unknown outcome can be tried again.
func (p *publishers) stranger(ctx context.Context, in *check.Input, body []byte) {
	p.add(in)
	msg := nats.NewMsg(subjects.Names{}.Input(in.Session, subjects.Kind(in.Kind)))
	msg.Data = body
	for ; ctx.Err() == nil; pause(ctx, 300*time.Millisecond) {
		ack, err := p.js.PublishMsg(ctx, msg, jetstream.WithMsgID(in.Session+"/"+in.ID))
		if err == nil {
			p.acked(in, ack.Sequence)
			return
		}
	}
}

func (p *publishers) all() []*check.Input {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inputs
}
