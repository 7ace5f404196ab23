package mcptool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// ErrServer says that a server's configuration cannot be used.
var ErrServer = errors.New("mcptool: unusable server")

// ErrCollision says that two tools have one name.
var ErrCollision = errors.New("mcptool: two tools have the same name")

// Server is one MCP server: a command, or a URL.
type Server struct {
	Name string // the prefix of its tools: a-z A-Z 0-9 -, and _ within

	Command string // with Args, speaks MCP on stdin and stdout
	Args    []string
	// Env is the command's environment: "NAME" passes the variable on,
	// "NAME=value" sets it. PATH, HOME, LANG, TMPDIR and USER are always
	// passed on, nothing else is.
	Env []string
	Dir string // working directory; "" means the worker's

	URL     string // of a streamable HTTP endpoint
	Headers map[string]string

	// Timeout bounds each call; 0 means 5 min.
	Timeout time.Duration
}

// Config is what [Open] needs.
type Config struct {
	Servers []Server
	// StartTimeout bounds each attempt to start a server and to list its
	// tools, and how long Open waits for all of them; 0 means 20 s.
	StartTimeout time.Duration
	// MinPause and MaxPause bound the pauses between attempts, each twice the
	// one before; 0 means 500 ms and 1 min.
	MinPause, MaxPause time.Duration
	// Changed is called, from any goroutine, when a server comes (err nil) or
	// goes; nil is not.
	Changed func(server string, err error)
	Logger  *slog.Logger // nil discards
}

// Set is the configured servers and their tools. It is safe for use by many
// goroutines.
type Set struct {
	servers []*server
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

var serverName = regexp.MustCompile(`^[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*$`)

func (s *Server) check() error {
	switch {
	case !serverName.MatchString(s.Name) || len(s.Name) > 32:
		return fmt.Errorf("%w: name %.40q must be 1 to 32 of A-Z a-z 0-9 - and single _", ErrServer, s.Name)
	case (s.Command == "") == (s.URL == ""):
		return fmt.Errorf("%w %s: either a command or a URL", ErrServer, s.Name)
	}
	return nil
}

// Open starts all servers and waits until each is there or has failed once.
// Servers that fail are tried again until Close. The errors are those of the
// configuration, [ErrServer], and [ErrCollision] for tools of one name.
func Open(ctx context.Context, cfg Config) (*Set, error) {
	cfg.StartTimeout = cmp.Or(cfg.StartTimeout, 20*time.Second)
	cfg.MinPause = cmp.Or(cfg.MinPause, 500*time.Millisecond)
	cfg.MaxPause = max(cmp.Or(cfg.MaxPause, time.Minute), cfg.MinPause)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	set := &Set{}
	var errs []error
	names := map[string]bool{}
	for _, s := range cfg.Servers {
		errs = append(errs, s.check())
		if names[s.Name] {
			errs = append(errs, fmt.Errorf("%w: two servers are called %s", ErrServer, s.Name))
		}
		names[s.Name] = true
		set.servers = append(set.servers, newServer(s, &cfg))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	slices.SortFunc(set.servers, func(a, b *server) int { return strings.Compare(a.cfg.Name, b.cfg.Name) })
	var running context.Context
	running, set.stop = context.WithCancel(context.WithoutCancel(ctx))
	for _, s := range set.servers {
		set.wg.Go(func() { s.run(running) })
	}
	for _, s := range set.servers {
		select {
		case <-s.tried:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), set.Close())
		}
	}
	if err := set.collisions(); err != nil {
		return nil, errors.Join(err, set.Close())
	}
	return set, nil
}

// Close ends all servers: their input is closed, and 5 s later they are
// killed.
func (s *Set) Close() error {
	s.stop()
	s.wg.Wait()
	return nil
}

// collisions says which tools of different servers have one name, as "a"_"b_c"
// and "a_b"_"c" have.
func (s *Set) collisions() error {
	_, clash := s.all()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(clash)) {
		errs = append(errs, fmt.Errorf("%w: %s of servers %s", ErrCollision, name, strings.Join(clash[name], " and ")))
	}
	return errors.Join(errs...)
}

// all gives the tools of all servers by name. Those that collide, because of a
// server that came late, are nobody's.
func (s *Set) all() (byName map[string]*tool, clash map[string][]string) {
	byName, clash = map[string]*tool{}, map[string][]string{}
	owner := map[string]string{}
	for _, srv := range s.servers {
		for _, t := range srv.list() {
			name := t.spec.Name
			if before, ok := owner[name]; ok {
				clash[name] = append(clash[name], before, srv.cfg.Name)
				delete(byName, name)
				continue
			}
			owner[name], byName[name] = srv.cfg.Name, t
		}
	}
	return byName, clash
}

// Tools gives the tools whose names match one of the patterns, in the order of
// their names; * and ? in a pattern stand for any letters and any one. missing
// are the patterns that no tool matches now.
func (s *Set) Tools(patterns ...string) (list []loop.Tool, missing []string) {
	byName, _ := s.all()
	hit := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		wanted := false
		for _, p := range patterns {
			if ok, err := path.Match(p, name); ok && err == nil {
				wanted, hit[p] = true, true
			}
		}
		if wanted {
			list = append(list, byName[name])
		}
	}
	for _, p := range patterns {
		if !hit[p] {
			missing = append(missing, p)
		}
	}
	return list, missing
}

// Names are the names of a server's tools, as they were listed last.
func (s *Set) Names(server string) (names []string) {
	for _, srv := range s.servers {
		if srv.cfg.Name != server {
			continue
		}
		for _, t := range srv.list() {
			names = append(names, t.spec.Name)
		}
	}
	return names
}

// Status says of each server why it is not there, nil if it is.
func (s *Set) Status() map[string]error {
	out := map[string]error{}
	for _, srv := range s.servers {
		_, out[srv.cfg.Name] = srv.current()
	}
	return out
}

// Origin says which server a tool is of, "" if it is none of a set's.
func Origin(t loop.Tool) string {
	if m, ok := t.(*tool); ok {
		return "MCP server " + m.server.cfg.Name
	}
	return ""
}
