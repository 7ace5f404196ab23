package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// brokerConfig is what a broker process gets in its environment.
type brokerConfig struct {
	Name, Dir   string
	Port        int
	ClusterPort int      // 0: alone
	Routes      []string // of all nodes
}

const configEnv = "CHAOS_CONFIG"

// brokerMain is a nats-server until SIGTERM, or until the parent is gone.
func brokerMain() error {
	var cfg brokerConfig
	if err := json.Unmarshal([]byte(os.Getenv(configEnv)), &cfg); err != nil {
		return err
	}
	opts := &server.Options{
		ServerName: cfg.Name, Host: "127.0.0.1", Port: cfg.Port,
		JetStream: true, StoreDir: cfg.Dir, NoSigs: true, MaxPayload: maxPayload,
		LogFile: cfg.Dir + ".log", Logtime: true,
	}
	if cfg.ClusterPort != 0 {
		opts.Cluster = server.ClusterOpts{Name: "chaos", Host: "127.0.0.1", Port: cfg.ClusterPort, NoAdvertise: true}
		opts.Routes = server.RoutesFromStr(strings.Join(cfg.Routes, ","))
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	srv.ConfigureLogger()
	srv.Start()
	untilTold()
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil
}

// maxPayload of the servers, in bytes: small, so that a long text has to travel
// beside its record.
const maxPayload = 64 << 10

// untilTold returns on SIGTERM, and when standard input ends: then the parent
// is gone, however it went.
func untilTold() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var parent sync.WaitGroup // ends with the process
	parent.Go(func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	})
	<-ctx.Done()
}

// child is one process of the run.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed when it has ended
	err   error         // of Wait, after done
	wg    sync.WaitGroup
}

// spawn runs this binary once more, in a role.
func spawn(role, name string, config any, env []string, log io.Writer) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	c := &child{name: name, cmd: exec.Command(self), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), append(env, roleEnv+"="+role, configEnv+"="+string(b))...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	// Ctrl-C is the parent's alone.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s %s: %w", role, name, err)
	}
	c.wg.Go(func() {
		c.err = c.cmd.Wait()
		close(c.done)
	})
	return c, nil
}

func (c *child) signal(s syscall.Signal) {
	// That it is gone already is seen by its end.
	_ = c.cmd.Process.Signal(s)
}

// kill ends it as a crash would, and waits.
func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	c.wg.Wait()
}

// end says whether it went within the time, and how.
func (c *child) end(within time.Duration) error {
	select {
	case <-c.done:
		return c.err
	case <-time.After(within):
		return fmt.Errorf("%s has not ended within %v of SIGTERM", c.name, within)
	}
}

// brokers are the NATS servers of a run, each a process.
type brokers struct {
	mu    sync.Mutex // guards nodes; held while one is down, so that it is one at a time
	cfgs  []brokerConfig
	nodes []*child
}

func startBrokers(dir string, n int) (*brokers, error) {
	b := &brokers{nodes: make([]*child, n)}
	var routes []string
	for i := range n {
		cfg := brokerConfig{Name: fmt.Sprint("n", i+1), Dir: filepath.Join(dir, fmt.Sprint("n", i+1))}
		var err error
		if cfg.Port, err = freePort(); err != nil {
			return nil, err
		}
		if n > 1 {
			if cfg.ClusterPort, err = freePort(); err != nil {
				return nil, err
			}
			routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", cfg.ClusterPort))
		}
		b.cfgs = append(b.cfgs, cfg)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	for i := range b.cfgs {
		b.cfgs[i].Routes = routes
		if err := b.start(i); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	return b, nil
}

func (b *brokers) start(i int) (err error) {
	b.nodes[i], err = spawn("broker", b.cfgs[i].Name, b.cfgs[i], nil, os.Stderr)
	return err
}

func (b *brokers) addr(i int) string { return fmt.Sprintf("127.0.0.1:%d", b.cfgs[i].Port) }

// url names all servers.
func (b *brokers) url() string {
	var urls []string
	for i := range b.cfgs {
		urls = append(urls, "nats://"+b.addr(i))
	}
	return strings.Join(urls, ",")
}

// restart stops node i, leaves it down for a while, and starts it on the same
// store. Only when it is back, as well says, the next one may be stopped.
func (b *brokers) restart(ctx context.Context, i int, how syscall.Signal, down time.Duration, well func() bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes[i].signal(how)
	if err := b.nodes[i].end(30 * time.Second); err != nil && how != syscall.SIGKILL {
		b.nodes[i].kill()
	}
	b.nodes[i].stdin.Close()
	pause(ctx, down)
	if err := b.start(i); err != nil {
		return err
	}
	if err := b.awaitPort(i); err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); !well() && time.Now().Before(end) && ctx.Err() == nil; {
		pause(ctx, 100*time.Millisecond)
	}
	return nil
}

// awaitPort waits until the node takes connections.
func (b *brokers) awaitPort(i int) error {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", b.addr(i), time.Second)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(end) {
			return fmt.Errorf("broker %s does not come back: %w", b.cfgs[i].Name, err)
		}
	}
}

func (b *brokers) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.nodes {
		if n != nil {
			n.kill()
			n.stdin.Close()
		}
	}
	return nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
