package looptest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxRequestBody bounds what the server reads of one request, in bytes.
const maxRequestBody = 128 << 20

// Answer is what a [Script] says to one request: [Reply], [*Response] or
// [AnswerFunc].
type Answer interface {
	// response gives the raw response; nil means that there is none.
	response(*Request) *Response
}

// AnswerFunc looks at the request to choose its answer. Returning nil refuses
// the request with status 599.
type AnswerFunc func(*Request) Answer

func (f AnswerFunc) response(r *Request) *Response {
	if a := f(r); a != nil {
		return a.response(r)
	}
	return nil
}

// Script is a model server on loopback that speaks Chat Completions
// (POST …/chat/completions) and Responses (POST …/responses). Request number
// k gets the k-th queued answer; when the queue is used up, Otherwise decides;
// without it the server refuses with status 599. All methods are safe for use
// by several goroutines.
type Script struct {
	server *http.Server
	base   string
	client *http.Client
	ln     net.Listener
	wg     sync.WaitGroup
	stop   context.CancelFunc

	mu        sync.Mutex
	queue     []Answer
	otherwise AnswerFunc
	onRequest func(*Request)
	requests  []*Request
	count     int // of all requests, kept or not
}

// NewScript starts a server on a free port of 127.0.0.1. It panics if there is
// none, as httptest does.
func NewScript(answers ...Answer) *Script {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic("looptest: listening: " + err.Error())
	}
	s := newScript(ln, answers)
	s.client = &http.Client{Transport: &http.Transport{}}
	s.base = "http://" + ln.Addr().String()
	return s
}

// NewMemoryScript starts a server that only [Script.Client] reaches, over
// pipes: it works in a synctest bubble, where time passes while the server or
// the client waits.
func NewMemoryScript(answers ...Answer) *Script {
	ln := newPipeListener()
	s := newScript(ln, answers)
	s.client = &http.Client{Transport: &http.Transport{DialContext: ln.dial}}
	s.base = "http://script.invalid"
	return s
}

func newScript(ln net.Listener, answers []Answer) *Script {
	ctx, stop := context.WithCancel(context.Background())
	s := &Script{ln: ln, queue: answers, stop: stop}
	s.server = &http.Server{
		Handler:     http.HandlerFunc(s.serve),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	s.wg.Go(func() { s.server.Serve(ln) })
	return s
}

// BaseURL is what an OpenAI client takes as its base URL; it ends in /v1.
func (s *Script) BaseURL() string { return s.base + "/v1" }

// Addr is the server's host and port.
func (s *Script) Addr() string { return strings.TrimPrefix(s.base, "http://") }

// Client reaches this server; the only way to one of [NewMemoryScript].
func (s *Script) Client() *http.Client { return s.client }

// Close stops the server, cutting what is still being answered, and waits for
// it.
func (s *Script) Close() error {
	s.stop()
	err := s.server.Close()
	s.client.CloseIdleConnections()
	s.wg.Wait()
	return err
}

// Add queues further answers.
func (s *Script) Add(answers ...Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, answers...)
}

// Otherwise sets who answers when the queue is used up.
func (s *Script) Otherwise(f AnswerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.otherwise = f
}

// OnRequest sets a function that is called when a request has been read,
// before it is answered.
func (s *Script) OnRequest(f func(*Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRequest = f
}

// Requests lists what was asked so far.
func (s *Script) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Request(nil), s.requests...)
}

// Forget drops what Requests lists, for runs that are too long to keep it all.
// Numbers go on.
func (s *Script) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// Pending is the number of queued answers that nobody has asked for.
func (s *Script) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

func (s *Script) serve(w http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(io.LimitReader(hr.Body, maxRequestBody))
	if err != nil {
		return // the client went away
	}
	req := &Request{
		Method: hr.Method, Path: hr.URL.RequestURI(), Header: hr.Header.Clone(),
		Body: json.RawMessage(body), Time: time.Now(), ctx: hr.Context(),
	}
	answer, observe := s.take(req)
	if observe != nil {
		observe(req)
	}
	var resp *Response
	if answer != nil {
		resp = answer.response(req)
	}
	if resp == nil {
		http.Error(w, "looptest: no answer is left for this request", 599)
		return
	}
	resp.send(w, hr)
}

// take numbers the request and takes its answer off the queue.
func (s *Script) take(req *Request) (Answer, func(*Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, req)
	s.count++
	req.Number = s.count
	if len(s.queue) == 0 {
		if s.otherwise == nil {
			return nil, s.onRequest
		}
		return s.otherwise, s.onRequest
	}
	a := s.queue[0]
	s.queue = s.queue[1:]
	return a, s.onRequest
}

// pipeListener hands out one end of a pipe for each dial.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, errors.New("looptest: script closed")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "script", Net: "pipe"} }
