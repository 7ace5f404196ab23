//go:build unix

package wire

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pi-worker/pi-worker/config"
)

// At its start a worker removes the workspaces of those that were killed, and
// leaves alone those of the living, what was kept for a person, and what is not
// of this kind.
func TestWorkspacesOfKilledWorkersAreSwept(t *testing.T) {
	root := t.TempDir()
	cfg := &config.Config{}
	cfg.Worker.Workspace.Mode, cfg.Worker.Workspace.Dir = "temp", root
	begin := func() *Agents { return NewAgents(cfg, slog.New(slog.DiscardHandler)) }
	workspace := func(a *Agents, id string) string {
		t.Helper()
		dir, err := a.workspace(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, "closed"), 0o500); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	killed, alive := begin(), begin()
	dead, kept, used, left := workspace(killed, "s1"), workspace(killed, "s2"), workspace(alive, "s1"), workspace(alive, "s3")
	killed.unlock(kept)
	alive.left("s3")
	for dir, lock := range killed.locks.files { // the kernel does it when a process dies
		if err := lock.Close(); err != nil {
			t.Fatal(dir, err)
		}
	}
	other := filepath.Join(root, "pi-worker-tools-1")
	link := filepath.Join(root, "pi-worker-s9-1")
	for _, err := range []error{
		os.Mkdir(other, 0o700), os.Symlink(other, link), os.WriteFile(link+lockSuffix, nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	begin().sweepTemp(root)
	want := []string{kept, used, used + lockSuffix, other, link, link + lockSuffix}
	var got []string
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, filepath.Join(root, e.Name()))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("left are\n%q, want\n%q\n(of a dead worker: %s, given up: %s)", got, want, dead, left)
	}
}
