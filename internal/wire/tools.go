package wire

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/tools"
	"github.com/pi-worker/pi-worker/worker"
)

// builtins are the profile's tools in the session's workspace, until the run is
// over. A workspace that does not last is made by the first call: most of what
// a prompt without one costs would be its folder.
func (a *Agents) builtins(ctx context.Context, p config.Profile, req worker.AgentRequest) (list []loop.Tool, closeTools func() error, err error) {
	if len(p.Tools) == 0 {
		return nil, func() error { return nil }, nil
	}
	var kept *files
	options, err := a.options(ctx, p, req)
	if err != nil {
		return nil, nil, err
	}
	var ws *tools.Workspace
	switch a.cfg.Worker.Workspace.Mode {
	case "snapshot":
		if kept, err = a.snapshots(req); err == nil {
			ws, err = tools.Open(kept.dir, options(kept.dir))
		}
	case "dir":
		ws, err = a.open(req.Session, options)
	default:
		ws = tools.Later(func() (*tools.Workspace, error) {
			ws, err := a.open(req.Session, options)
			if err != nil {
				a.log.Warn("making a workspace", "session", req.Session, "error", err)
			}
			return ws, err
		})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("making the workspace: %w", err)
	}
	if list, err = ws.Tools(p.Tools...); err != nil {
		return nil, nil, errors.Join(err, ws.Close())
	}
	if kept == nil {
		return list, ws.Close, nil
	}
	return a.keepFiles(ctx, kept, req, list), func() error {
		a.sweep(ctx, kept, req)
		return ws.Close()
	}, nil
}

// open opens the session's workspace, and makes it if need be.
func (a *Agents) open(id string, options func(dir string) *tools.Options) (*tools.Workspace, error) {
	dir, err := a.workspace(id)
	if err != nil {
		return nil, err
	}
	return tools.Open(dir, options(dir))
}

// options gives the options of a run's tools once their folder is known.
func (a *Agents) options(ctx context.Context, p config.Profile, req worker.AgentRequest) (func(dir string) *tools.Options, error) {
	if err := a.checkEnv(p.Bash.Env); err != nil {
		return nil, fmt.Errorf("agent %q: %w", p.Name, err)
	}
	var stored tools.Outputs
	if a.store != nil {
		o, err := a.sessionOutputs(ctx, req)
		if err != nil {
			return nil, err
		}
		stored = o
	}
	return func(dir string) *tools.Options {
		opt := a.toolOptions(p, dir)
		opt.Outputs = stored
		return opt
	}, nil
}

// ErrKeyInEnv says that a profile's bash.env would give the worker's keys to
// commands.
var ErrKeyInEnv = errors.New("bash.env passes on a key of the worker")

// toolOptions are those of a profile's tools in the workspace dir.
func (a *Agents) toolOptions(p config.Profile, dir string) *tools.Options {
	b := p.Bash
	wrapper := make([]string, 0, len(b.Wrapper))
	for _, word := range b.Wrapper {
		wrapper = append(wrapper, strings.ReplaceAll(word, "{workspace}", dir))
	}
	return &tools.Options{
		Env: append([]string{}, b.Env...), BashTimeout: b.Timeout, BashMaxTimeout: b.MaxTimeout, Wrapper: wrapper,
		Private: b.IsPrivate(), NoNetwork: !b.HasNetwork(), Hidden: a.keyFiles(),
		NoImages: len(p.Input) > 0 && !slices.Contains(p.Input, "image"),
		Limits: tools.Limits{Command: tools.CommandLimits{
			FileBytes: int64(b.MaxFile), MemoryBytes: int64(b.MaxMemory), Processes: b.MaxProcesses,
		}},
	}
}

// checkEnv refuses variables that hold keys of the worker.
func (a *Agents) checkEnv(env []string) error {
	for _, entry := range env {
		name, _, fixed := strings.Cut(entry, "=")
		if fixed {
			continue
		}
		isKey := strings.HasPrefix(name, "PI_") || name == "NATS_URL"
		for _, p := range a.cfg.Agents {
			isKey = isKey || name == p.APIKeyEnv
		}
		if isKey {
			return fmt.Errorf("%w: %s", ErrKeyInEnv, name)
		}
	}
	return nil
}

// keyFiles are the files of the configuration that hold keys, itself included.
func (a *Agents) keyFiles() []string {
	files := []string{a.cfg.File(), a.cfg.NATS.Creds, a.cfg.NATS.NKey, a.cfg.NATS.TLS.Key}
	for _, p := range a.cfg.Agents {
		files = append(files, p.APIKeyFile)
	}
	var out []string
	for _, file := range files {
		if file == "" {
			continue
		}
		if abs, err := filepath.Abs(file); err == nil {
			out = append(out, abs)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// warnOfBash says at the start that commands will be refused, and why.
func (a *Agents) warnOfBash() {
	if tools.Isolation() != "reaper" {
		return
	}
	for name, p := range a.cfg.Agents {
		if slices.Contains(p.Tools, "bash") && (p.Bash.IsPrivate() || !p.Bash.HasNetwork()) {
			a.log.Warn("bash will refuse to run: this host gives no namespaces; see bash.private and bash.network", "agent", name)
		}
	}
}
