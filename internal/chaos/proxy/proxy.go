// Package proxy is a TCP proxy whose connections can be cut, stalled and
// delayed, each direction by itself, and that can take the fence out of what a
// worker publishes.
package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// fence is the header that makes an append conditional; no server knows the
// other one, which has the same length.
var (
	fence   = []byte("Nats-Expected-Last-Subject-Sequence")
	nothing = []byte("Xats-Expected-Last-Subject-Sequence")
)

// Direction is one way through the proxy.
type Direction int

// Up is from the client to the server, Down the way back.
const (
	Up Direction = iota
	Down
)

// Config configures [Start].
type Config struct {
	Target func() string // host:port of the server, asked for each connection
	// Unfence renames the fence's header in everything that goes up.
	Unfence bool
}

// Proxy listens on loopback.
type Proxy struct {
	cfg Config
	ln  net.Listener
	wg  sync.WaitGroup

	mu      sync.Mutex // guards what is below
	conns   map[net.Conn]bool
	stalled [2]time.Time
	delay   [2]time.Duration
	closed  bool
}

// Start listens on a free port.
func Start(cfg Config) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: listening: %w", err)
	}
	p := &Proxy{cfg: cfg, ln: ln, conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Cut closes all connections; new ones are taken.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// Stall holds back what goes that way for a time; then it goes on, late.
func (p *Proxy) Stall(d Direction, t time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled[d] = time.Now().Add(t)
}

// Delay makes each piece that goes that way wait; 0 ends it.
func (p *Proxy) Delay(d Direction, t time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay[d] = t
}

// Close cuts everything and takes no more.
func (p *Proxy) Close() {
	p.ln.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		in, err := p.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		out, err := net.DialTimeout("tcp", p.cfg.Target(), 2*time.Second)
		if err != nil {
			in.Close()
			continue
		}
		if !p.add(in, out) {
			return
		}
		p.wg.Go(func() { p.pipe(Up, out, in) })
		p.wg.Go(func() { p.pipe(Down, in, out) })
	}
}

func (p *Proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed {
			c.Close()
			continue
		}
		p.conns[c] = true
	}
	return !p.closed
}

// pipe copies until one end is closed, and closes both.
func (p *Proxy) pipe(d Direction, to, from net.Conn) {
	defer func() {
		from.Close()
		to.Close()
		p.mu.Lock()
		delete(p.conns, from)
		p.mu.Unlock()
	}()
	var src io.Reader = from
	if d == Up && p.cfg.Unfence {
		src = &replacer{src: from}
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			p.hold(d)
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// hold waits as long as that way is stalled or slow.
func (p *Proxy) hold(d Direction) {
	p.mu.Lock()
	until := time.Now().Add(p.delay[d])
	p.mu.Unlock()
	for {
		p.mu.Lock()
		if p.stalled[d].After(until) {
			until = p.stalled[d]
		}
		closed := p.closed
		p.mu.Unlock()
		wait := time.Until(until)
		if wait <= 0 || closed {
			return
		}
		time.Sleep(min(wait, 20*time.Millisecond))
	}
}

// replacer renames the fence in a stream. What may be the beginning of the
// name is held back until the next bytes tell.
type replacer struct {
	src  io.Reader
	kept []byte // not given out yet, without the name
	tail []byte // may be the beginning of the name
	err  error
}

func (r *replacer) Read(b []byte) (int, error) {
	for len(r.kept) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		buf := make([]byte, 32<<10)
		n, err := r.src.Read(buf)
		all := bytes.ReplaceAll(append(r.tail, buf[:n]...), fence, nothing)
		hold := 0
		for i := min(len(fence)-1, len(all)); i > 0 && err == nil; i-- {
			if bytes.HasPrefix(fence, all[len(all)-i:]) {
				hold = i
				break
			}
		}
		r.kept, r.tail, r.err = all[:len(all)-hold], bytes.Clone(all[len(all)-hold:]), err
	}
	n := copy(b, r.kept)
	r.kept = r.kept[n:]
	return n, nil
}
