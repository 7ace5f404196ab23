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

// builtins opens the session's workspace with the profile's tools, until the run
// is over.
func (a *Agents) builtins(ctx context.Context, p config.Profile, req worker.AgentRequest) (list []loop.Tool, closeTools func() error, err error) {
	if len(p.Tools) == 0 {
		return nil, func() error { return nil }, nil
	}
	var dir string
	var kept *files
	if a.cfg.Worker.Workspace.Mode == "snapshot" {
		if kept, err = a.snapshots(req); err == nil {
			dir = kept.dir
		}
	} else {
		dir, err = a.workspace(req.Session)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("making the workspace: %w", err)
	}
	opt, err := a.toolOptions(p, dir)
	if err != nil {
		return nil, nil, err
	}
	if a.store != nil {
		if opt.Outputs, err = a.sessionOutputs(ctx, req); err != nil {
			return nil, nil, err
		}
	}
	ws, err := tools.Open(dir, opt)
	if err != nil {
		return nil, nil, err
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

// ErrKeyInEnv says that a profile's bash.env would give the worker's keys to
// commands.
var ErrKeyInEnv = errors.New("bash.env passes on a key of the worker")

// toolOptions are those of a profile's tools in the workspace dir.
func (a *Agents) toolOptions(p config.Profile, dir string) (*tools.Options, error) {
	b := p.Bash
	if err := a.checkEnv(b.Env); err != nil {
		return nil, fmt.Errorf("agent %q: %w", p.Name, err)
	}
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
	}, nil
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
