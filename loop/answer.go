package loop

import (
	"context"
	"errors"
	"slices"
)

// answer asks the model and emits its answer, with as many attempts as the
// policy allows. not ok: the consumer has broken off.
func (r *run) answer(ctx context.Context) (*AssistantMessage, bool) {
	c := compactor{run: r}
	if !c.ahead(ctx) {
		return nil, false
	}
	for {
		req, err := r.request(ctx)
		if err != nil {
			msg := r.failure(ctx, err)
			return msg, r.deliver([]Message{msg})
		}
		msg, compacted, ok := r.attempts(ctx, req, &c)
		if !compacted || !ok {
			return msg, ok
		}
	}
}

// attempts makes one request until it succeeds or the policy gives up.
// compacted: it was too long, nothing of it is left, and the context is shorter
// now. not ok: the consumer has broken off.
func (r *run) attempts(ctx context.Context, req *Request, c *compactor) (_ *AssistantMessage, compacted, ok bool) {
	retry := retrier{policy: &r.cfg.Retry}
	for {
		a := attempt{run: r}
		msg := a.stream(ctx, req)
		if r.broken {
			return nil, false, false
		}
		if c.overflowed(ctx, msg) {
			if compacted, ok = c.instead(ctx, &a, msg); compacted || !ok {
				return nil, compacted, ok
			}
		}
		delay, again := retry.next(ctx, msg, a.started)
		if !again {
			return msg, false, r.finishAnswer(msg, &a, &retry)
		}
		if a.started && !r.emit(&MessageDiscarded{Attempt: retry.count, Reason: msg.ErrorMessage}) {
			return nil, false, false
		}
		if !r.emit(retry.start(msg, delay)) {
			return nil, false, false
		}
		if !sleep(ctx, delay) {
			msg := r.failure(ctx, errors.New("retry"))
			return msg, false, r.finishAnswer(msg, &attempt{run: r}, &retry)
		}
	}
}

// finishAnswer emits the end of the answer and of its retries.
func (r *run) finishAnswer(msg *AssistantMessage, a *attempt, retry *retrier) bool {
	failed := msg.StopReason == StopError || msg.StopReason == StopAborted
	if (retry.count > 0 || retry.wish > 0) && failed && !r.emit(retry.end(msg)) {
		return false
	}
	if !a.started && !r.emit(&MessageStart{Message: msg}) {
		return false
	}
	if !r.emit(&MessageEnd{Message: msg}) {
		return false
	}
	r.add(msg)
	if retry.count > 0 && !failed {
		return r.emit(retry.end(msg))
	}
	return true
}

// request builds the model's request from the context.
func (r *run) request(ctx context.Context) (*Request, error) {
	messages := slices.Clip(r.context)
	err := r.guard("preparing the request", func() (err error) {
		if f := r.cfg.TransformContext; f != nil {
			if messages, err = f(ctx, messages); err != nil {
				return err
			}
		}
		if f := r.cfg.ConvertToLLM; f != nil {
			messages, err = f(ctx, messages)
		} else {
			messages = modelMessages(messages)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	req := &Request{
		SystemPrompt: r.cfg.SystemPrompt,
		Messages:     messages,
		Tools:        r.tools.specs,
		Options:      r.cfg.Options,
	}
	return req, r.askForKey(ctx, req)
}

// askForKey sets the key that APIKey gives for this request.
func (r *run) askForKey(ctx context.Context, req *Request) error {
	if r.cfg.APIKey == nil {
		return nil
	}
	return r.guard("asking for the API key", func() error {
		key, err := r.cfg.APIKey(ctx, r.cfg.Model.Info().Provider)
		if key != "" {
			req.Options.APIKey = key
		}
		return err
	})
}

// modelMessages keeps the messages that every model understands.
func modelMessages(messages []Message) []Message {
	out := make([]Message, 0, len(messages))
	for _, m := range messages {
		if _, custom := m.(*CustomMessage); !custom {
			out = append(out, m)
		}
	}
	return out
}

// attempt is one request of the model.
type attempt struct {
	*run
	started bool // message_start was emitted
}

// stream emits the pieces of one attempt and gives its final message, which
// is not emitted yet. The result means nothing once the consumer has broken
// off.
func (a *attempt) stream(ctx context.Context, req *Request) *AssistantMessage {
	var final *AssistantMessage
	err := a.guard("the model", func() error {
		for u, err := range a.cfg.Model.Stream(ctx, req) {
			if err != nil {
				return err
			}
			if u.Type == UpdateDone || u.Type == UpdateError {
				final = u.Message
				return nil
			}
			if !a.piece(u) {
				return nil
			}
		}
		return nil
	})
	if err == nil && final == nil {
		err = errors.New("the model's stream ended without a message")
	}
	if err != nil {
		return a.failure(ctx, err)
	}
	return final
}

// piece emits one update; false: the consumer has broken off.
func (a *attempt) piece(u *Update) bool {
	if !a.started {
		a.started = true
		if !a.emit(&MessageStart{Message: openMessage(u.Message)}) {
			return false
		}
	}
	if u.Type == UpdateStart {
		return true
	}
	return a.emit(&MessageUpdate{Partial: u.Message, Update: *u})
}

// openMessage is the metadata of an answer that has just begun.
func openMessage(m *AssistantMessage) *AssistantMessage {
	if m == nil {
		return &AssistantMessage{}
	}
	return &AssistantMessage{
		API: m.API, Provider: m.Provider, Model: m.Model, Timestamp: m.Timestamp,
	}
}
