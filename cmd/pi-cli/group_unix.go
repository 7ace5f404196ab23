//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownProcessGroup keeps the terminal's Ctrl-C away from the process.
func ownProcessGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
