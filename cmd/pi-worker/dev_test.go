package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestDevInterruptedOnceLeavesNothing(t *testing.T) {
	plain(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), self, "dev", "--port", "0")
	cmd.Env = append(os.Environ(), asWorker+"=1", "TMPDIR="+temp)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, said := bufio.NewScanner(stderr), ""
	for !strings.Contains(said, "worker ready") && lines.Scan() {
		said += lines.Text() + "\n"
	}
	if made, err := os.ReadDir(temp); err != nil || len(made) == 0 {
		t.Errorf("there is no temporary folder to remove (%v):\n%s", err, said)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		said += lines.Text() + "\n"
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v, want exit code 0:\n%s", err, said)
	}
	left, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		t.Errorf("%s is left", entry.Name())
	}
}
