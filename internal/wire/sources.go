package wire

import (
	"context"
	"os"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/tools"
	"github.com/pi-worker/pi-worker/tools/mcptool"
	"github.com/pi-worker/pi-worker/tools/natstool"
	"github.com/pi-worker/pi-worker/worker"
)

// sources are the tools that others offer; both are nil where no profile wants
// them.
type sources struct {
	remote *natstool.Directory
	mcp    *mcptool.Set
}

// Start opens what the profiles' tools of others need, the directory of remote
// tools and the MCP servers, and what snapshots of workspaces need. Without it
// profiles have the built-in tools only.
// It fails on a configuration that cannot work, not on servers that are away.
func (a *Agents) Start(ctx context.Context, nc *nats.Conn) (err error) {
	if err := a.Check(); err != nil {
		return err
	}
	if a.store, err = session.Open(ctx, nc, Names(a.cfg), &session.Options{Logger: a.log}); err != nil {
		return err
	}
	if w := a.cfg.Worker.Workspace; w.Mode != "dir" {
		a.sweepTemp(w.Dir)
	}
	var wantRemote, wantMCP bool
	for _, p := range a.cfg.Agents {
		wantRemote = wantRemote || len(p.Outside.Remote) > 0
		wantMCP = wantMCP || len(p.Outside.MCP) > 0
	}
	if wantRemote {
		if a.sources.remote, err = natstool.Open(ctx, nc, &natstool.Options{Logger: a.log, Changed: a.remoteChanged}); err != nil {
			return err
		}
	}
	if wantMCP {
		a.sources.mcp, err = mcptool.Open(ctx, mcptool.Config{Servers: mcpServers(a.cfg.MCP), Logger: a.log, Changed: a.serverChanged})
	}
	return err
}

func mcpServers(section config.MCPServers) (out []mcptool.Server) {
	for name, s := range section {
		headers := map[string]string{}
		for k, v := range s.Headers {
			headers[k] = v.Reveal()
		}
		out = append(out, mcptool.Server{
			Name: name, Command: s.Command, Args: s.Args, Env: s.Env, Dir: s.Dir,
			URL: s.URL, Headers: headers, Timeout: s.Timeout,
		})
	}
	return out
}

func (s *sources) close() (errs []error) {
	if s.remote != nil {
		errs = append(errs, s.remote.Close())
	}
	if s.mcp != nil {
		errs = append(errs, s.mcp.Close())
	}
	return errs
}

// outside are the profile's tools of others, MCP servers' first. missing are
// the patterns without a tool, refused the names that an earlier tool has.
func (a *Agents) outside(p config.Profile, own []loop.Tool) (list []loop.Tool, missing, refused []string) {
	taken := map[string]bool{}
	for _, t := range own {
		taken[t.Spec().Name] = true
	}
	add := func(found []loop.Tool) {
		for _, t := range found {
			name := t.Spec().Name
			if taken[name] {
				refused = append(refused, name)
				continue
			}
			taken[name] = true
			list = append(list, t)
		}
	}
	if a.sources.mcp != nil {
		found, none := a.sources.mcp.Tools(p.Outside.MCP...)
		add(found)
		missing = append(missing, none...)
	} else {
		missing = append(missing, p.Outside.MCP...)
	}
	if a.sources.remote != nil {
		found, none := a.sources.remote.Tools(p.Outside.Remote...)
		add(found)
		missing = append(missing, none...)
	} else {
		missing = append(missing, p.Outside.Remote...)
	}
	return list, missing, refused
}

// toolset is what a run has of tools.
type toolset struct {
	list []loop.Tool
	// background tells the log what comes and goes; nil for tools that stay.
	background func(context.Context)
	close      func() error
}

// tools are all tools of a profile for one run.
func (a *Agents) tools(ctx context.Context, p config.Profile, req worker.AgentRequest) (*toolset, error) {
	list, closeTools, err := a.builtins(ctx, p, req)
	if err != nil {
		return nil, err
	}
	set := &toolset{close: closeTools}
	var w *watcher
	if len(p.Outside.MCP)+len(p.Outside.Remote) > 0 {
		var end func()
		w, end = a.watch(p.Outside)
		set.background = func(ctx context.Context) { w.tell(ctx, req) }
		set.close = func() error { end(); return closeTools() }
	}
	more, missing, refused := a.outside(p, list)
	if len(missing) > 0 {
		a.log.Warn("tools are not there", "agent", p.Name, "session", req.Session, "missing", missing)
		w.missing(missing)
	}
	if len(refused) > 0 {
		a.log.Warn("tools have names that others have already", "agent", p.Name, "refused", refused)
	}
	set.list = append(list, more...)
	return set, nil
}

// approvals are those of the profile.
func approvals(p config.Profile) (worker.Approvals, error) {
	if len(p.Approval.Ask) == 0 {
		return worker.Approvals{}, nil
	}
	calls, err := tools.ParseCalls(p.Approval.Ask...)
	if err != nil {
		return worker.Approvals{}, err
	}
	return worker.Approvals{
		Needed: calls.Match, Policy: worker.ApprovalPolicy(p.Approval.Policy), After: p.Approval.After,
	}, nil
}

// ToolInfo is one tool as a profile gives it to its model.
type ToolInfo struct {
	Spec   loop.ToolSpec
	Origin string // where it comes from
	// Asks says that some or all of its calls need an approval.
	Asks []string
}

// Tools lists what a profile gives its model now, "" being the default one,
// and the patterns that no tool matches.
func (a *Agents) Tools(agent string) (list []ToolInfo, missing []string, err error) {
	p, err := a.cfg.Profile(agent)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "pi-worker-tools-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // empty
	var own []loop.Tool
	if len(p.Tools) > 0 {
		ws, err := tools.Open(dir, nil)
		if err != nil {
			return nil, nil, err
		}
		defer func() { _ = ws.Close() }() // nothing was written
		if own, err = ws.Tools(p.Tools...); err != nil {
			return nil, nil, err
		}
	}
	more, missing, refused := a.outside(p, own)
	for _, t := range slices.Concat(own, more) {
		info := ToolInfo{Spec: t.Spec(), Origin: origin(t)}
		for _, pattern := range p.Approval.Ask {
			if names, err := tools.ParseCalls(nameOf(pattern)); err == nil && names.Match(loop.Call{Name: info.Spec.Name}) {
				info.Asks = append(info.Asks, pattern)
			}
		}
		list = append(list, info)
	}
	for _, name := range refused {
		missing = append(missing, name+" (another tool has the name)")
	}
	return list, missing, nil
}

// nameOf is the part of a pattern of calls that is about the tool.
func nameOf(pattern string) string {
	for i := range pattern {
		if pattern[i] == '(' {
			return pattern[:i]
		}
	}
	return pattern
}

func origin(t loop.Tool) string {
	for _, of := range []func(loop.Tool) string{natstool.Origin, mcptool.Origin} {
		if o := of(t); o != "" {
			return o
		}
	}
	return "built in"
}
