package mcptool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pi-worker/pi-worker/loop"
)

// errStarting is the state of a server that was not tried yet.
var errStarting = errors.New("it is being started")

// server keeps one MCP server alive.
type server struct {
	cfg   Server
	set   *Config
	log   *slog.Logger
	tried chan struct{} // closed after the first attempt

	mu       sync.Mutex // guards what is below
	session  *mcp.ClientSession
	err      error // why session is nil
	next     time.Time
	tools    []*tool
	progress map[string]func(loop.ToolResult) // by token
}

func newServer(s Server, set *Config) *server {
	s.Timeout = cmp.Or(s.Timeout, 5*time.Minute)
	return &server{
		cfg: s, set: set, log: set.Logger.With("mcp", s.Name), err: errStarting,
		tried: make(chan struct{}), progress: map[string]func(loop.ToolResult){},
	}
}

// run connects, waits for the end of the connection, and begins again.
func (s *server) run(ctx context.Context) {
	first := sync.OnceFunc(func() { close(s.tried) })
	defer first()
	pause := s.set.MinPause
	for {
		session, changed, err := s.connect(ctx)
		if err == nil {
			first()
			began := time.Now()
			err = s.watch(ctx, session, changed)
			if time.Since(began) > s.set.MaxPause {
				pause = s.set.MinPause // it was fine for a while
			}
		}
		if ctx.Err() != nil {
			return
		}
		s.lost(err, pause)
		first()
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, s.set.MaxPause)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// connect starts the server and lists its tools.
func (s *server) connect(ctx context.Context) (*mcp.ClientSession, <-chan struct{}, error) {
	changed := make(chan struct{}, 1)
	client := mcp.NewClient(&mcp.Implementation{Name: "pi-worker", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{}, // none: there is no person here
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
		ProgressNotificationHandler: func(_ context.Context, n *mcp.ProgressNotificationClientRequest) { s.progressed(n.Params) },
	})
	transport, stderr := s.transport()
	starting, cancel := context.WithTimeout(ctx, s.set.StartTimeout)
	defer cancel()
	session, err := client.Connect(starting, transport, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("starting: %w%s", err, stderr.said())
	}
	if err := s.relist(starting, session); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("listing its tools: %w%s", err, stderr.said()), session.Close())
	}
	s.mu.Lock()
	s.session, s.err = session, nil
	s.mu.Unlock()
	s.log.Info("MCP server is there", "tools", len(s.list()))
	s.tell(nil)
	return session, changed, nil
}

// watch lists the tools again when the server says that they changed. It
// returns when the connection has ended, for whatever reason.
func (s *server) watch(ctx context.Context, session *mcp.ClientSession, changed <-chan struct{}) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	over, end := context.WithCancel(ctx)
	defer end()
	wg.Go(func() {
		<-over.Done()
		if err := session.Close(); err != nil {
			s.log.Debug("closing", "error", err)
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-over.Done():
				return
			case <-changed:
				s.listAgain(over, session)
			}
		}
	})
	err := session.Wait()
	if err == nil {
		err = errors.New("the connection was closed")
	}
	return err
}

func (s *server) listAgain(ctx context.Context, session *mcp.ClientSession) {
	ctx, cancel := context.WithTimeout(ctx, s.set.StartTimeout)
	defer cancel()
	if err := s.relist(ctx, session); err != nil && ctx.Err() == nil {
		s.log.Warn("listing the tools again", "error", err)
	}
}

func (s *server) lost(err error, pause time.Duration) {
	s.mu.Lock()
	s.session, s.err, s.next = nil, err, time.Now().Add(pause)
	s.mu.Unlock()
	s.log.Warn("MCP server is not there", "error", err, "again", pause)
	s.tell(err)
}

func (s *server) tell(err error) {
	if s.set.Changed != nil {
		s.set.Changed(s.cfg.Name, err)
	}
}

// current is the live session, or why there is none.
func (s *server) current() (*mcp.ClientSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil {
		return s.session, nil
	}
	if wait := time.Until(s.next); wait > 0 {
		return nil, fmt.Errorf("%w; next try in %s", s.err, wait.Round(time.Second))
	}
	return nil, s.err
}

// list are the tools as last listed, whether the server is there or not.
func (s *server) list() []*tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tools
}

// notInNames is what the model's API does not take in a tool's name.
var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// relist asks for the tools. Their order is that of their names, whatever the
// server's is.
func (s *server) relist(ctx context.Context, session *mcp.ClientSession) error {
	var list []*tool
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return err
		}
		made, err := s.tool(t)
		if err != nil {
			s.log.Warn("MCP tool refused", "tool", t.Name, "reason", err)
			continue
		}
		list = append(list, made)
	}
	slices.SortFunc(list, func(a, b *tool) int { return strings.Compare(a.spec.Name, b.spec.Name) })
	for i := 1; i < len(list); i++ {
		if list[i].spec.Name == list[i-1].spec.Name {
			return fmt.Errorf("%w: %q and %q are both %s", ErrCollision, list[i-1].name, list[i].name, list[i].spec.Name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools = list
	return nil
}

func (s *server) tool(t *mcp.Tool) (*tool, error) {
	name := s.cfg.Name + "_" + notInNames.ReplaceAllString(t.Name, "_")
	if len(name) > 64 {
		return nil, fmt.Errorf("%s has %d letters, 64 are allowed", name, len(name))
	}
	schema, err := json.Marshal(t.InputSchema)
	if err != nil || !bytes.HasPrefix(schema, []byte("{")) {
		return nil, fmt.Errorf("the schema %.40s is no object", schema)
	}
	spec := loop.ToolSpec{Name: name, Label: t.Title, Description: t.Description, Parameters: schema}
	if a := t.Annotations; a != nil {
		spec.Idempotent = a.ReadOnlyHint || a.IdempotentHint
		spec.Label = cmp.Or(spec.Label, a.Title)
	}
	return &tool{server: s, name: t.Name, spec: spec}, nil
}

// alwaysPassed are the variables of every command.
var alwaysPassed = []string{"PATH", "HOME", "LANG", "TMPDIR", "USER"}

func (s *server) transport() (mcp.Transport, *tailWriter) {
	stderr := &tailWriter{log: s.log}
	if s.cfg.URL != "" {
		return &mcp.StreamableClientTransport{
			Endpoint: s.cfg.URL, HTTPClient: &http.Client{Transport: &headers{s.cfg.Headers}},
		}, stderr
	}
	cmd := exec.Command(s.cfg.Command, s.cfg.Args...)
	cmd.Dir, cmd.Stderr = s.cfg.Dir, stderr
	cmd.Env = []string{}
	for _, v := range append(slices.Clone(alwaysPassed), s.cfg.Env...) {
		if strings.Contains(v, "=") {
			cmd.Env = append(cmd.Env, v)
		} else if value, ok := os.LookupEnv(v); ok {
			cmd.Env = append(cmd.Env, v+"="+value)
		}
	}
	// Somebody who inherited its stderr must not keep the server from ending.
	cmd.WaitDelay = time.Second
	return &mcp.CommandTransport{Command: cmd}, stderr
}

// headers adds the configured headers to each request.
type headers struct{ set map[string]string }

func (h *headers) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for k, v := range h.set {
		req.Header.Set(k, v)
	}
	return http.DefaultTransport.RoundTrip(req)
}

// tailWriter keeps the end of what a server says on stderr: the reason, when
// it does not start.
type tailWriter struct {
	log *slog.Logger

	mu   sync.Mutex
	tail []byte // guarded by mu
}

const tailSize = 1024

func (w *tailWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tail = append(w.tail, p[max(0, len(p)-tailSize):]...)
	w.tail = slices.Clone(w.tail[max(0, len(w.tail)-tailSize):])
	w.log.Debug("MCP server says", "stderr", string(p[:min(len(p), tailSize)]))
	return len(p), nil
}

func (w *tailWriter) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text := strings.TrimSpace(strings.ToValidUTF8(string(w.tail), "\uFFFD")); text != "" {
		return " (it said: " + text + ")"
	}
	return ""
}
