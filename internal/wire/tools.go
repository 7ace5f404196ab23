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

// tools opens the session's workspace with the profile's tools. closeTools
// gives it back; a temporary one is removed.
func (a *Agents) tools(p config.Profile, id string) (list []loop.Tool, closeTools func() error, err error) {
	if len(p.Tools) == 0 {
		return nil, func() error { return nil }, nil
	}
	dir, remove, err := a.workspace(id)
	if err != nil {
		return nil, nil, fmt.Errorf("making the workspace: %w", err)
	}
	ws, err := tools.Open(dir, nil)
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	closeTools = func() error { return errors.Join(ws.Close(), remove()) }
	if list, err = ws.Tools(p.Tools...); err != nil {
		return nil, nil, errors.Join(err, closeTools())
	}
	return list, closeTools, nil
}

// workspace makes the folder of a session's files.
func (a *Agents) workspace(id string) (dir string, remove func() error, err error) {
	w := a.cfg.Worker.Workspace
	if w.Mode == "dir" {
		dir = filepath.Join(w.Dir, id)
		return dir, func() error { return nil }, os.MkdirAll(dir, 0o750)
	}
	dir, err = os.MkdirTemp(w.Dir, "pi-worker-"+id+"-")
	return dir, func() error { return os.RemoveAll(dir) }, err
}
