package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// river is how many no-op jobs a second River does on a PostgreSQL of this run,
// if the machine has one. River is a module of its own, beside this folder.
func (b *bench) river(ctx context.Context, jobs int) (perSecond float64, err error) {
	bin, err := postgresBin()
	if err != nil {
		return 0, err
	}
	program := filepath.Join(b.dir, "river")
	if err := buildRiver(ctx, program); err != nil {
		return 0, err
	}
	db, err := b.startPostgres(ctx, bin)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	out, err := exec.CommandContext(ctx, program, db.url(), strconv.Itoa(jobs)).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %.300s", err, exit.Stderr)
		}
		return 0, fmt.Errorf("river: %w", err)
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}

// postgresBin is the folder with the server's programs: the newest of Debian's,
// or the one that PATH leads to.
func postgresBin() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append([]string{path}, found...)
		}
	}
	for _, path := range slices.Backward(found) {
		dir := filepath.Dir(path)
		if _, err := os.Stat(filepath.Join(dir, "pg_isready")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("PostgreSQL is not installed")
}

func buildRiver(ctx context.Context, program string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("finding the module: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(strings.TrimSpace(string(root)), "internal/bench/river"), "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building River: %w: %.200s", err, out)
	}
	return nil
}

// postgres is a server of its own, with a socket in its folder only.
type postgres struct {
	dir string
	cmd *exec.Cmd
}

func (p *postgres) url() string {
	return "postgres:///postgres?user=bench&host=" + url.QueryEscape(p.dir)
}

// startPostgres makes a database and serves it. Like JetStream it acknowledges
// what is not synced to disk yet.
func (b *bench) startPostgres(ctx context.Context, bin string) (*postgres, error) {
	dir, err := os.MkdirTemp("", "pi-bench-pg-") // a socket's path must be short
	if err != nil {
		return nil, err
	}
	p := &postgres{dir: dir}
	as, err := notRoot(dir)
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "bench", "-A", "trust", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = &syscall.SysProcAttr{Credential: as}, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w: %.300s", err, out), p.stop())
	}
	p.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=",
		"-c", "synchronous_commit=off", "-c", "shared_buffers=256MB", "-c", "max_wal_size=2GB")
	p.cmd.SysProcAttr, p.cmd.Dir = &syscall.SysProcAttr{Credential: as, Setpgid: true}, dir
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return nil, errors.Join(err, p.stop())
	}
	for end := time.Now().Add(readyTime); ; pause(ctx, 50*time.Millisecond) {
		err := exec.CommandContext(ctx, filepath.Join(bin, "pg_isready"), "-q", "-h", dir, "-U", "bench", "-d", "postgres").Run()
		if err == nil {
			return p, nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("PostgreSQL does not get ready: %w", err), p.stop())
		}
	}
}

// notRoot is the user postgres, whose the folder becomes, if this is root: its
// server runs as nobody with all rights. Otherwise it is nil.
func notRoot(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, int(uid), int(gid))
}

// stop ends the server, fast shutdown, and takes its folder away.
func (p *postgres) stop() error {
	var err error
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(os.Interrupt)
		late := time.AfterFunc(readyTime, func() { _ = p.cmd.Process.Kill() })
		err = p.cmd.Wait()
		late.Stop()
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}
