package natstool

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/pi-worker/pi-worker/loop"
)

const (
	// silence is how many heartbeats may be missing.
	silence = 3
	// probeEvery is how often a service that promises no heartbeat is asked
	// whether it is there.
	probeEvery = 5 * time.Second
	// probes without an answer make a service vanished.
	probes = 3
	// farewell is how long a cancelled call may still answer.
	farewell    = time.Second
	cancelEvery = 200 * time.Millisecond
)

// remote is a tool of a service.
type remote struct {
	d     *Directory
	offer *offer
}

func (r *remote) Spec() loop.ToolSpec { return r.offer.Spec }

// Execute calls the service. All its failures are error results with a
// [Failure]; only the end of ctx is an error.
func (r *remote) Execute(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
	timeout := cmp.Or(r.offer.Timeout, r.d.opts.Timeout)
	c := &exchange{remote: r, inbox: r.d.nc.NewInbox(), update: update, deadline: time.Now().Add(timeout)}
	c.cancel = c.inbox + ".cancel"
	sub, err := r.d.nc.SubscribeSync(c.inbox)
	if err != nil {
		return loop.ToolResult{}, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	c.sub = sub
	if err := r.d.nc.PublishMsg(c.request(call, timeout)); err != nil {
		if errors.Is(err, nats.ErrMaxPayload) {
			return r.offer.failed(FailureTooLarge, "", "Not run: the arguments of %s have %d bytes, at most %d fit in a message",
				call.Name, len(call.Args), r.d.nc.MaxPayload()), nil
		}
		return loop.ToolResult{}, err
	}
	return c.wait(ctx, call.Name)
}

// exchange is one call on its way.
type exchange struct {
	*remote
	sub           *nats.Subscription
	inbox, cancel string
	update        func(loop.ToolResult)
	deadline      time.Time
	unanswered    int // probes
}

func (c *exchange) request(call loop.Call, timeout time.Duration) *nats.Msg {
	m := nats.NewMsg(c.offer.Subject)
	m.Reply, m.Data = c.inbox, call.Args
	m.Header.Set(HeaderCall, oneLine(call.ID))
	m.Header.Set(HeaderTool, call.Name)
	m.Header.Set(HeaderTimeout, strconv.FormatInt(timeout.Milliseconds(), 10))
	m.Header.Set(HeaderCancel, c.cancel)
	if call.Key != "" {
		m.Header.Set(HeaderKey, call.Key)
	}
	return m
}

// oneLine keeps a model's text from ending a header.
func oneLine(s string) string {
	out := []byte(s)
	for i, b := range out {
		if b < ' ' {
			out[i] = ' '
		}
	}
	return string(out)
}

// wait takes answers until one is the result.
func (c *exchange) wait(ctx context.Context, name string) (loop.ToolResult, error) {
	heard := time.Now()
	for {
		patience := cmp.Or(silence*c.offer.Heartbeat, probeEvery)
		until := heard.Add(patience)
		if c.deadline.Before(until) {
			until = c.deadline
		}
		msg, err := next(ctx, c.sub, time.Until(until))
		switch {
		case err == nil:
			heard, c.unanswered = time.Now(), 0
			if res, done := c.answer(msg); done {
				return res, nil
			}
		case ctx.Err() != nil:
			c.dismiss()
			return loop.ToolResult{}, context.Cause(ctx)
		case errors.Is(err, nats.ErrNoResponders):
			c.d.lookSoon()
			return c.offer.failed(FailureNoService, "", "Not run: no service offers %s now", name), nil
		case !errors.Is(err, context.DeadlineExceeded):
			return loop.ToolResult{}, err
		case !time.Now().Before(c.deadline):
			c.dismiss()
			return c.offer.failed(FailureDeadline, "", "Tool %s gave no result in time and was told to stop: outcome unknown", name), nil
		case c.vanished(ctx):
			c.d.lookSoon()
			return c.offer.failed(FailureVanished, "", "The service of %s vanished during the call: outcome unknown", name), nil
		default:
			heard = time.Now()
		}
	}
}

// answer takes one answer; done says that it was the last.
func (c *exchange) answer(msg *nats.Msg) (res loop.ToolResult, done bool) {
	if msg.Header.Get(HeaderUpdate) != "" {
		if len(msg.Data) > 0 && c.update != nil {
			if part, err := parseResult(msg.Data); err == nil {
				c.update(part)
			}
		}
		return res, false
	}
	if text := msg.Header.Get(micro.ErrorHeader); text != "" {
		return c.offer.failed(FailureService, msg.Header.Get(micro.ErrorCodeHeader), "%s", text), true
	}
	res, err := parseResult(msg.Data)
	if err != nil {
		return c.offer.failed(FailureProtocol, "", "%v", err), true
	}
	return res, true
}

// vanished decides about a service that was silent for as long as it may be.
// One that promised heartbeats has broken its promise; of the others any
// instance that answers is taken for the one that has the call.
func (c *exchange) vanished(ctx context.Context) bool {
	if c.offer.Heartbeat > 0 {
		return true
	}
	subject, err := micro.ControlSubject(micro.PingVerb, c.offer.Service, "")
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = c.d.nc.RequestWithContext(ctx, subject, nil)
	if errors.Is(err, nats.ErrNoResponders) {
		return true
	}
	if err == nil || ctx.Err() != context.DeadlineExceeded {
		return false
	}
	c.unanswered++
	return c.unanswered >= probes
}

// dismiss tells the service that nobody waits any more, until it has answered
// or the farewell is over: the service may not be listening for it yet.
func (c *exchange) dismiss() {
	// The caller's context has ended, and this has to end soon.
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	for ctx.Err() == nil {
		if c.d.nc.Publish(c.cancel, nil) != nil {
			return
		}
		msg, err := next(ctx, c.sub, cancelEvery)
		if err == nil && msg.Header.Get(HeaderUpdate) == "" || err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return // answered, or nobody is there
		}
	}
}
