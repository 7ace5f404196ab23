package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// startAndSize is figure 10, of the real pi-worker.
func startAndSize(ctx context.Context, b *bench) ([]row, error) {
	bin := filepath.Join(b.dir, "bin", "pi-worker")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "github.com/pi-worker/pi-worker/cmd/pi-worker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return []row{skipped("10 start and size", fmt.Sprintf("building pi-worker: %v %.200s", err, out))}, nil
	}
	info, err := os.Stat(bin)
	if err != nil {
		return nil, err
	}
	var took []float64
	for range pick(b.options, 5, 15) {
		t, err := b.startOnce(ctx, bin)
		if err != nil {
			return nil, err
		}
		took = append(took, ms(t))
	}
	begin := row{Figure: "10 start to ready", Value: median(took), Unit: "ms", Note: fmt.Sprintf("worst %.0f ms", quantile(took, 100))}
	size := row{Figure: "10 pi-worker, stripped", Value: float64(info.Size()) / (1 << 20), Unit: "MiB"}
	return []row{begin.want("< 100 ms", begin.Value < 100), size.want("< 40 MiB", size.Value < 40)}, nil
}

// startOnce runs pi-worker until it says that it is ready.
func (b *bench) startOnce(ctx context.Context, bin string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, bin)
	cmd.Env = append(os.Environ(), b.workerEnv(b.broker.hello, "start", 8)...)
	errs, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	var took time.Duration
	in := bufio.NewScanner(errs)
	var said strings.Builder
	for in.Scan() {
		said.WriteString(in.Text() + "\n")
		if took == 0 && strings.Contains(in.Text(), "worker ready") {
			took = time.Since(begun)
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	err = cmd.Wait()
	if took == 0 {
		return 0, fmt.Errorf("pi-worker did not get ready: %w\n%s", err, said.String())
	}
	return took, err
}
