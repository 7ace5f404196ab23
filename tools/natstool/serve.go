package natstool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/pi-worker/pi-worker/loop"
)

// Config describes a service that offers tools.
type Config struct {
	Name        string // of the service: A-Z a-z 0-9 _ -
	Version     string // semantic; of two versions of a service the higher counts
	Description string
	// Subjects is the first part of the tools' subjects, before the tool's
	// name; "" means "tools".
	Subjects string
	// Queue is the group over which calls are spread; "" means "q".
	Queue string
	// Timeout bounds each call; 0 leaves it to the caller.
	Timeout time.Duration
	// Heartbeat is how often a running call says that it is alive; 0 means
	// 5 s. A caller that hears nothing for three of them gives the call up.
	Heartbeat time.Duration
	// Calls run at once, others are refused; 0 means 1000.
	Calls  int
	Logger *slog.Logger // nil discards
}

// Service is a running service.
type Service struct {
	cfg   Config
	nc    *nats.Conn
	micro micro.Service
	log   *slog.Logger
	slots chan struct{}
	ctx   context.Context // ends the calls
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// Serve offers tools until Stop is called. The connection stays the caller's.
func Serve(nc *nats.Conn, cfg Config, tools ...loop.Tool) (*Service, error) {
	cfg.Subjects = cmp.Or(cfg.Subjects, "tools")
	cfg.Queue = cmp.Or(cfg.Queue, micro.DefaultQueueGroup)
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 5*time.Second)
	cfg.Version = cmp.Or(cfg.Version, "0.0.1")
	cfg.Calls = cmp.Or(cfg.Calls, 1000)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if len(tools) == 0 {
		return nil, errors.New("natstool: a service needs a tool")
	}
	svc, err := micro.AddService(nc, micro.Config{Name: cfg.Name, Version: cfg.Version, Description: cfg.Description})
	if err != nil {
		return nil, fmt.Errorf("natstool: adding service %s: %w", cfg.Name, err)
	}
	s := &Service{cfg: cfg, nc: nc, micro: svc, log: cfg.Logger, slots: make(chan struct{}, cfg.Calls)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for _, t := range tools {
		if err := s.add(t); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
	}
	// Who is told that the service is there may call it.
	if err := nc.FlushTimeout(5 * time.Second); err != nil {
		return nil, errors.Join(fmt.Errorf("natstool: offering %s: %w", cfg.Name, err), s.Stop())
	}
	return s, nil
}

func (s *Service) add(t loop.Tool) error {
	spec := t.Spec()
	meta := metadata(&spec, s.cfg.Timeout, s.cfg.Heartbeat)
	subject := s.cfg.Subjects + "." + spec.Name
	if _, err := parseOffer(s.cfg.Name, s.cfg.Version, subject, meta); err != nil {
		return fmt.Errorf("natstool: %w", err)
	}
	err := s.micro.AddEndpoint(spec.Name, micro.HandlerFunc(func(req micro.Request) { s.accept(t, req) }),
		micro.WithEndpointSubject(subject), micro.WithEndpointQueueGroup(s.cfg.Queue), micro.WithEndpointMetadata(meta))
	if err != nil {
		return fmt.Errorf("natstool: offering %s: %w", spec.Name, err)
	}
	return nil
}

// Stop withdraws the offers, cancels the calls that run, and waits for them.
func (s *Service) Stop() error {
	err := s.micro.Stop()
	s.stop()
	s.wg.Wait()
	// What the last calls answered.
	if ferr := s.nc.FlushTimeout(5 * time.Second); ferr != nil && !errors.Is(ferr, nats.ErrConnectionClosed) {
		err = errors.Join(err, ferr)
	}
	if err != nil {
		return fmt.Errorf("natstool: stopping service %s: %w", s.cfg.Name, err)
	}
	return nil
}

// accept runs a call in a goroutine of its own, so that a long one does not
// hold up the others.
func (s *Service) accept(t loop.Tool, req micro.Request) {
	select {
	case s.slots <- struct{}{}:
	default:
		s.respond(req.Error("429", "too many calls at once", nil))
		return
	}
	s.wg.Go(func() {
		defer func() { <-s.slots }()
		s.call(t, req)
	})
}

func (s *Service) respond(err error) {
	if err != nil {
		s.log.Warn("answering a call", "error", err)
	}
}

func (s *Service) call(t loop.Tool, req micro.Request) {
	h := nats.Header(req.Headers())
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	if d := timeoutOf(h); d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	if subject := h.Get(HeaderCancel); subject != "" {
		sub, err := s.nc.Subscribe(subject, func(*nats.Msg) { cancel() })
		if err != nil {
			s.log.Warn("listening for cancellation", "error", err)
		} else {
			defer func() { s.respond(sub.Unsubscribe()) }()
		}
	}
	up := &updates{s: s, reply: req.Reply()}
	var wg sync.WaitGroup
	beating, endBeat := context.WithCancel(ctx)
	wg.Go(func() { up.beat(beating, s.cfg.Heartbeat) })
	res, err := execute(ctx, t, loop.Call{
		ID: h.Get(HeaderCall), Key: h.Get(HeaderKey), Name: t.Spec().Name, Args: json.RawMessage(req.Data()),
	}, up.send)
	endBeat()
	wg.Wait()
	up.close()
	if err != nil {
		res = loop.TextResult(err.Error())
		res.IsError = true
	}
	s.answer(req, res)
}

// answer sends the result. One that is too large becomes an error: silence
// would cost the caller its deadline.
func (s *Service) answer(req micro.Request, res loop.ToolResult) {
	data, err := json.Marshal(res)
	if err == nil {
		err = req.Respond(data)
	}
	if err != nil {
		s.respond(req.Error("500", fmt.Sprintf("sending the result of %d bytes: %v", len(data), err), nil))
	}
}

// execute turns a panic into an error.
func execute(ctx context.Context, t loop.Tool, call loop.Call, update func(loop.ToolResult)) (res loop.ToolResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("tool %s panicked: %v", call.Name, p)
		}
	}()
	if len(call.Args) == 0 {
		call.Args = json.RawMessage("{}")
	}
	if !json.Valid(call.Args) {
		return res, errors.New("the arguments are no JSON")
	}
	return t.Execute(loop.WithCallKey(ctx, call.Key), call, update)
}

// updates publishes a call's progress to its reply subject.
type updates struct {
	s     *Service
	reply string

	mu     sync.Mutex // guards what is below
	n      int
	closed bool
}

func (u *updates) send(res loop.ToolResult) {
	data, err := json.Marshal(res)
	if err != nil {
		u.s.log.Warn("encoding an update", "error", err)
		return
	}
	u.publish(data)
}

func (u *updates) publish(data []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return
	}
	u.n++
	m := nats.NewMsg(u.reply)
	m.Header.Set(HeaderUpdate, strconv.Itoa(u.n))
	m.Data = data
	u.s.respond(u.s.nc.PublishMsg(m))
}

// close drops what comes later.
func (u *updates) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
}

// beat says at once that the call is here, and then that it is alive.
func (u *updates) beat(ctx context.Context, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		u.publish(nil)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
