package client_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a server with streams, a client, and a pretended worker: what a
// worker writes into the log, without a model.
type bundle struct {
	*natstest.Env
	c      *client.Client
	worker *pretender
}

func newBundle(t testing.TB) *bundle {
	t.Helper()
	env := natstest.Start(t, nil)
	if err := subjects.Ensure(t.Context(), env.JS, subjects.Names{}, nil); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(t.Context(), env.NC, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &bundle{Env: env, c: c, worker: newPretender(t.Context(), t.Fatal, env.NC)}
}

// pretender answers inputs as a worker would. It is no worker: it neither
// claims nor beats.
type pretender struct {
	ctx   context.Context
	fatal func(...any)
	store *session.Store
}

func newPretender(ctx context.Context, fatal func(...any), nc *nats.Conn) *pretender {
	store, err := session.Open(ctx, nc, subjects.Names{}, nil)
	if err != nil {
		fatal(err)
	}
	return &pretender{ctx: ctx, fatal: fatal, store: store}
}

// openLog takes the session over.
func (p *pretender) openLog(id string) *session.Log {
	state, err := p.store.Fold(p.ctx, id)
	if err != nil {
		p.fatal(err)
	}
	log, err := p.store.OpenLog(p.ctx, id, state, "pretender")
	if err != nil {
		p.fatal(err)
	}
	return log
}

// input waits for the session's next input.
func (p *pretender) input(id string) *session.Input {
	in, err := p.store.NextInput(p.ctx, id, "", 0)
	if err != nil {
		p.fatal(err)
	}
	return in
}

// answer runs a whole prompt: the input's message, a streamed answer, the end.
func (p *pretender) answer(log *session.Log, in *session.Input, text string, outcome loop.Outcome) {
	p.begin(log, in)
	p.stream(log, text, true)
	p.append(log, &loop.TurnEnd{}, &loop.AgentEnd{}, &loop.AgentSettled{
		Outcome: outcome, Attempts: 1, PromptSeq: in.Ref.Seq, PromptID: in.ID,
		Usage: loop.Usage{Input: 3, Output: 2, TotalTokens: 5},
	})
	p.flush(log)
}

// begin starts a run with the input.
func (p *pretender) begin(log *session.Log, in *session.Input) {
	err := log.AppendAll(p.ctx, []loop.Event{
		&loop.AgentStart{}, &loop.TurnStart{},
		&loop.MessageStart{Message: in.Message}, &loop.MessageEnd{Message: in.Message},
	}, in.Ref)
	if err != nil {
		p.fatal(err)
	}
	p.flush(log)
	if err := p.store.DeleteInput(p.ctx, in); err != nil {
		p.fatal(err)
	}
}

// stream writes an answer, a rune at a time, and flushes each so that it has a
// record of its own; whole ends it.
func (p *pretender) stream(log *session.Log, text string, whole bool) {
	head := &loop.AssistantMessage{API: "openai-completions", Provider: "test", Model: "m", StopReason: loop.StopStop, Timestamp: 1}
	p.append(log, &loop.MessageStart{Message: head}, update(loop.Update{Type: loop.UpdateStart}), update(loop.Update{Type: loop.UpdateTextStart}))
	for _, r := range text {
		p.append(log, update(loop.Update{Type: loop.UpdateTextDelta, Delta: string(r)}))
		p.flush(log)
	}
	if whole {
		end := *head
		end.Content = []loop.Block{&loop.Text{Text: text}}
		p.append(log, update(loop.Update{Type: loop.UpdateTextEnd, Content: text}), &loop.MessageEnd{Message: &end})
	}
}

func update(u loop.Update) *loop.MessageUpdate { return &loop.MessageUpdate{Update: u} }

func (p *pretender) append(log *session.Log, events ...loop.Event) {
	for _, ev := range events {
		if err := log.Append(p.ctx, ev); err != nil {
			p.fatal(err)
		}
	}
}

func (p *pretender) flush(log *session.Log) {
	if err := log.Flush(p.ctx); err != nil {
		p.fatal(err)
	}
}

func (p *pretender) close(log *session.Log) {
	if err := log.Close(p.ctx); err != nil {
		p.fatal(err)
	}
}

// prompt publishes a prompt and fails the test if it can't.
func (b *bundle) prompt(t *testing.T, id, text string) *client.Receipt {
	t.Helper()
	r, err := b.c.Prompt(t.Context(), id, loop.NewUserText(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// inboxSize is the number of inputs in the inbox.
func (b *bundle) inboxSize(t *testing.T) uint64 {
	t.Helper()
	stream, err := b.JS.Stream(t.Context(), subjects.Names{}.InboxStream())
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

// within bounds a step of a test that would otherwise hang when it fails.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}
