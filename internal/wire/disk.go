package wire

import (
	"errors"
	"fmt"
	"os"
)

// makeParent makes the folder that workspaces are made in, if one is configured.
func (a *Agents) makeParent() error {
	if a.cfg.Worker.Workspace.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(a.cfg.Worker.Workspace.Dir, 0o750); err != nil {
		return fmt.Errorf("worker.workspace.dir: %w", err)
	}
	return nil
}

// Disk says why no session can have a workspace, nil if one can: a file is
// written where they are made, and removed.
func (a *Agents) Disk() (err error) {
	w := a.cfg.Worker.Workspace
	dir := w.Dir
	if dir == "" {
		dir = os.TempDir()
	}
	if err := a.makeParent(); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".pi-worker-ready-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	// More than a byte: some file systems keep short files without a block.
	_, err = f.Write(make([]byte, 64<<10))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing 64 KiB to %s: %w", dir, err)
	}
	return nil
}
