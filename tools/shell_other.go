//go:build !linux

package tools

import (
	"os/exec"
)

// isolation is how commands are kept apart from other processes; only Linux
// has one that keeps this package's promises.
type isolation string

func bestIsolation() isolation { return "" }

// keeperCommand gives a command that cannot start: bash needs Linux.
func keeperCommand(isolation, []string) *exec.Cmd {
	return &exec.Cmd{Err: exec.ErrNotFound}
}

func killSession(int) {}
