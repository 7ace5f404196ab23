package main

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
)

// proxy stands between a command and its broker, to be cut.
type proxy struct {
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu    sync.Mutex // guards what is below
	cond  *sync.Cond
	conns []net.Conn
	seen  bytes.Buffer // from the broker
	done  bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target}
	p.cond = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

func (p *proxy) Addr() string { return p.ln.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		p.mu.Unlock()
		p.wg.Go(func() { io.Copy(out, in) })
		p.wg.Go(func() { io.Copy(io.MultiWriter(p, in), out) })
	}
}

// Write notes what the broker sends.
func (p *proxy) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Write(b)
	p.cond.Broadcast()
	return len(b), nil
}

// untilBytes waits until the broker has sent one of the words.
func (p *proxy) untilBytes(words ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.done {
		for _, w := range words {
			if bytes.Contains(p.seen.Bytes(), []byte(w)) {
				return
			}
		}
		p.cond.Wait()
	}
}

// Close cuts every connection and takes no more.
func (p *proxy) Close() {
	p.ln.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		c.Close()
	}
	p.done = true
	p.cond.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
}
