package wire

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/tools"
)

// tools opens the session's workspace with the profile's tools, until the run
// is over.
func (a *Agents) tools(p config.Profile, id string) (list []loop.Tool, closeTools func() error, err error) {
	if len(p.Tools) == 0 {
		return nil, func() error { return nil }, nil
	}
	dir, err := a.workspace(id)
	if err != nil {
		return nil, nil, fmt.Errorf("making the workspace: %w", err)
	}
	ws, err := tools.Open(dir, nil)
	if err != nil {
		return nil, nil, err
	}
	if list, err = ws.Tools(p.Tools...); err != nil {
		return nil, nil, errors.Join(err, ws.Close())
	}
	return list, ws.Close, nil
}

// workspace gives the folder of a session's files. A temporary one stays
// while the worker owns the session.
func (a *Agents) workspace(id string) (dir string, err error) {
	w := a.cfg.Worker.Workspace
	if w.Mode == "dir" {
		dir = filepath.Join(w.Dir, id)
		return dir, os.MkdirAll(dir, 0o750)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if dir := a.temp[id]; dir != "" {
		return dir, nil
	}
	if dir, err = os.MkdirTemp(w.Dir, "pi-worker-"+id+"-"); err == nil {
		a.temp[id] = dir
	}
	return dir, err
}

// left removes a session's temporary workspace.
func (a *Agents) left(id string) {
	a.mu.Lock()
	dir := a.temp[id]
	delete(a.temp, id)
	a.mu.Unlock()
	if dir == "" {
		return
	}
	if err := os.RemoveAll(dir); err != nil {
		a.log.Warn("removing a workspace", "session", id, "error", err)
	}
}
