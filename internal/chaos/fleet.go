package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/pi-worker/pi-worker/internal/chaos/check"
	"github.com/pi-worker/pi-worker/internal/chaos/proxy"
)

// fleet are the worker processes: slots that are never empty for long.
type fleet struct {
	o       *options
	brokers *brokers
	world   *world
	dir     string
	slots   []*slot

	mu     sync.Mutex // guards what is below
	kills  []check.Kill
	broken []string // what no worker may do
	made   int      // workers so far
	wg     sync.WaitGroup
}

// slot is a place for one worker, with its own way to the broker.
type slot struct {
	mu     sync.Mutex // held by the fault that has the worker
	n      int
	gen    int
	worker *proc
	proxy  *proxy.Proxy // nil: direct
}

// proc is one worker process.
type proc struct {
	*child
	mu       sync.Mutex // guards expected
	expected bool       // its end is wanted
}

func (p *proc) expect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = true
}

func startFleet(ctx context.Context, o *options, dir string, b *brokers, w *world, m *model) (*fleet, error) {
	f := &fleet{o: o, brokers: b, world: w, dir: dir}
	if err := f.writeConfig(m); err != nil {
		return nil, err
	}
	for n := range o.workers {
		s := &slot{n: n}
		if o.has("proxy") || o.control {
			next := n
			var mu sync.Mutex
			p, err := proxy.Start(proxy.Config{Unfence: o.control, Target: func() string {
				mu.Lock()
				defer mu.Unlock()
				next++
				return b.addr(next % len(b.nodes))
			}})
			if err != nil {
				return nil, err
			}
			s.proxy = p
		}
		f.slots = append(f.slots, s)
		if err := f.fill(ctx, s); err != nil {
			return nil, errors.Join(err, f.close())
		}
	}
	return f, nil
}

// writeConfig writes what all workers are configured with. JSON is YAML.
func (f *fleet) writeConfig(m *model) error {
	type object = map[string]any
	profile := func(api string) object {
		return object{
			"model": "scripted", "base_url": m.script.BaseURL(), "api_key_env": "CHAOS_KEY", "api": api,
			"system_prompt": "You are under test.",
			"retry":         object{"max": 8, "base_delay": "50ms", "max_delay": "1s"},
		}
	}
	b, err := json.MarshalIndent(object{
		"nats":      object{"ack_wait": f.o.ackWait.String(), "replicas": len(f.brokers.nodes)},
		"retention": object{"max_age": "0s", "dlq_max_age": "0s"},
		"worker": object{
			"grace": f.o.grace.String(), "max_attempts": 20,
			"workspace": object{"mode": "temp", "dir": f.dir},
		},
		"defaults": profile("completions"),
		"agents":   object{"other": profile("responses")},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(f.config(), b, 0o600)
}

func (f *fleet) config() string { return filepath.Join(f.dir, "pi-worker.yaml") }

// fill starts a worker in the slot, again and again until one is ready, as a
// supervisor would.
func (f *fleet) fill(ctx context.Context, s *slot) error {
	for {
		p, err := f.start(ctx, s)
		if err == nil {
			s.worker = p
			f.wg.Go(func() { f.watch(p) })
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no worker could be started: %w", err)
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// start gives a worker that claims, or says why there is none.
func (f *fleet) start(ctx context.Context, s *slot) (*proc, error) {
	s.gen++
	name := fmt.Sprintf("w%d-%d", s.n, s.gen)
	f.mu.Lock()
	f.made++
	f.mu.Unlock()
	log, err := os.Create(filepath.Join(f.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	url := f.brokers.url()
	if s.proxy != nil {
		url = "nats://" + s.proxy.Addr()
	}
	c, err := spawn("worker", name, workerConfig{World: f.world.url},
		[]string{"PI_CONFIG=" + f.config(), "PI_WORKER_ID=" + name, "NATS_URL=", "PI_NATS_URL=" + url, "CHAOS_KEY=chaos-key"}, log)
	if err != nil {
		return nil, err
	}
	if err := ready(ctx, c, log.Name()); err != nil {
		c.kill()
		return nil, err
	}
	return &proc{child: c}, nil
}

// ready waits for the worker's word, which is in its log.
func ready(ctx context.Context, c *child, name string) error {
	end := time.Now().Add(30 * time.Second)
	for ; time.Now().Before(end) && ctx.Err() == nil; pause(ctx, 10*time.Millisecond) {
		if hasLine(name, readyLine) {
			return nil
		}
		select {
		case <-c.done:
			return fmt.Errorf("worker %s: %w", c.name, c.err)
		default:
		}
	}
	return fmt.Errorf("worker %s is not ready", c.name)
}

func hasLine(name, line string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	for s := bufio.NewScanner(io.LimitReader(f, 1<<20)); s.Scan(); {
		if s.Text() == line {
			return true
		}
	}
	return false
}

// watch notes a worker that ends without being asked to.
func (f *fleet) watch(p *proc) {
	<-p.done
	p.mu.Lock()
	expected := p.expected
	p.mu.Unlock()
	if !expected {
		f.fault("worker %s ended by itself: %v", p.name, p.err)
	}
}

func (f *fleet) fault(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = append(f.broken, fmt.Sprintf(format, args...))
}

// take gives a random slot that no other fault has, locked; nil if there is
// none.
func (f *fleet) take(rng *rand.Rand) *slot {
	for _, i := range rng.Perm(len(f.slots)) {
		if f.slots[i].mu.TryLock() {
			return f.slots[i]
		}
	}
	return nil
}

// kill is SIGKILL, and a new worker.
func (f *fleet) kill(ctx context.Context, s *slot) error {
	p := s.worker
	p.expect()
	f.mu.Lock()
	f.kills = append(f.kills, check.Kill{Worker: p.name, Time: time.Now()})
	f.mu.Unlock()
	p.kill()
	p.stdin.Close()
	return f.fill(ctx, s)
}

// roll replaces a worker in order: the new one first, then SIGTERM.
func (f *fleet) roll(ctx context.Context, s *slot) error {
	old := s.worker
	if err := f.fill(ctx, s); err != nil {
		return err
	}
	f.terminate(old)
	return nil
}

func (f *fleet) terminate(p *proc) {
	p.expect()
	p.signal(syscall.SIGTERM)
	if err := p.end(f.o.grace + 20*time.Second); err != nil {
		f.fault("worker %s after SIGTERM: %v", p.name, err)
	}
	p.stdin.Close()
}

// stop ends all workers in order.
func (f *fleet) stop() {
	var wg sync.WaitGroup
	for _, s := range f.slots {
		wg.Go(func() { f.terminate(s.worker) })
	}
	wg.Wait()
}

// close ends everything at once.
func (f *fleet) close() error {
	for _, s := range f.slots {
		if s.worker != nil {
			s.worker.expect()
			s.worker.kill()
			s.worker.stdin.Close()
		}
		if s.proxy != nil {
			s.proxy.Close()
		}
	}
	f.wg.Wait()
	return nil
}
