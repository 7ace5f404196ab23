package wire

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/worker"
)

// remoteSource is the Source of services' tools.
const remoteSource = "remote"

// absent is what a log is told of a server that is away. The error itself may
// hold what the server printed, and is for the worker's log.
const absent = "the MCP server is not there; it is tried again"

// watcher tells one run's log which tools of others come and go.
type watcher struct {
	outside config.Outside
	wake    chan struct{}

	mu      sync.Mutex // guards what is below
	pending []*loop.ToolsChanged
	away    map[string]bool // servers
}

// watch begins to gather what changes for the run; end ends that.
func (a *Agents) watch(outside config.Outside) (w *watcher, end func()) {
	w = &watcher{outside: outside, wake: make(chan struct{}, 1), away: map[string]bool{}}
	a.mu.Lock()
	a.watchers[w] = true
	a.mu.Unlock()
	if a.sources.mcp != nil {
		for name, err := range a.sources.mcp.Status() {
			if err != nil {
				w.server(name, err, nil)
			}
		}
	}
	return w, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watchers, w)
	}
}

// missing takes note of patterns that no tool matches at the beginning.
func (w *watcher) missing(patterns []string) {
	gone := slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return !slices.Contains(w.outside.Remote, p) })
	if len(gone) > 0 {
		w.add(&loop.ToolsChanged{Source: remoteSource, Removed: gone, Reason: "no service offers it"})
	}
}

// each calls f with every run's watcher.
func (a *Agents) each(f func(*watcher)) {
	a.mu.Lock()
	list := make([]*watcher, 0, len(a.watchers))
	for w := range a.watchers {
		list = append(list, w)
	}
	a.mu.Unlock()
	for _, w := range list {
		f(w)
	}
}

// remoteChanged is natstool's Changed.
func (a *Agents) remoteChanged(arrived, departed []string) {
	a.each(func(w *watcher) {
		ev := &loop.ToolsChanged{
			Source: remoteSource, Added: matching(w.outside.Remote, arrived), Removed: matching(w.outside.Remote, departed),
		}
		if len(ev.Added)+len(ev.Removed) > 0 {
			w.add(ev)
		}
	})
}

// serverChanged is mcptool's Changed.
func (a *Agents) serverChanged(name string, err error) {
	a.each(func(w *watcher) { w.server(name, err, a.sources.mcp.Names(name)) }) // a run watches, so Start is over
}

// server takes note of a server that came or went, once each time: one that
// cannot be started says so with every attempt.
func (w *watcher) server(name string, err error, tools []string) {
	if !slices.ContainsFunc(w.outside.MCP, func(pattern string) bool { return concerns(pattern, name) }) {
		return
	}
	w.mu.Lock()
	same := w.away[name] == (err != nil)
	w.away[name] = err != nil
	w.mu.Unlock()
	if same {
		return
	}
	ev := &loop.ToolsChanged{Source: "mcp:" + name}
	if names := matching(w.outside.MCP, tools); err != nil {
		ev.Removed, ev.Reason = names, absent
	} else {
		ev.Added, ev.Reason = names, "the MCP server is there"
	}
	w.add(ev)
}

// concerns says that a pattern may match tools of the server.
func concerns(pattern, server string) bool {
	literal, _, _ := strings.Cut(pattern, "*")
	if at := strings.IndexAny(literal, "?["); at >= 0 {
		literal = literal[:at]
	}
	return strings.HasPrefix(literal, server+"_") || strings.HasPrefix(server+"_", literal)
}

func matching(patterns, names []string) (out []string) {
	for _, name := range names {
		if slices.ContainsFunc(patterns, func(p string) bool { ok, err := path.Match(p, name); return ok && err == nil }) {
			out = append(out, name)
		}
	}
	return out
}

func (w *watcher) add(ev *loop.ToolsChanged) {
	w.mu.Lock()
	w.pending = append(w.pending, ev)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default: // it is about to look
	}
}

// tell writes what changes into the log until ctx ends.
func (w *watcher) tell(ctx context.Context, req worker.AgentRequest) {
	for {
		w.mu.Lock()
		pending := w.pending
		w.pending = nil
		w.mu.Unlock()
		for _, ev := range pending {
			if req.Append(ctx, ev) != nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
	}
}
