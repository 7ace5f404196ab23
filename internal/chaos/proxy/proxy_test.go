package proxy

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// echo is a server that says everything back.
func echo(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { ln.Close() })
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(c, c)
				c.Close()
			})
		}
	})
	return ln.Addr().String()
}

func dial(t *testing.T, cfg Config) (*Proxy, net.Conn) {
	t.Helper()
	addr := echo(t)
	cfg.Target = func() string { return addr }
	p, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return p, c
}

func say(t *testing.T, c net.Conn, text string) string {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(text))
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestStalledBytesComeLateAndWhole(t *testing.T) {
	p, c := dial(t, Config{})
	say(t, c, "hello")
	began := time.Now()
	p.Stall(Down, 80*time.Millisecond)
	if got := say(t, c, "late"); got != "late" || time.Since(began) < 80*time.Millisecond {
		t.Errorf("%q after %v", got, time.Since(began))
	}
}

func TestCutEndsConnectionsAndTakesNewOnes(t *testing.T) {
	p, c := dial(t, Config{})
	say(t, c, "hello")
	p.Cut()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("the connection lives")
	}
	again, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	say(t, again, "hello")
}

func TestUnfenceRenamesTheHeaderOnly(t *testing.T) {
	_, c := dial(t, Config{Unfence: true})
	text := "HPUB x\r\n" + string(fence) + ": 7\r\nNats-Expected-Stream: y\r\n"
	if got, want := say(t, c, text), strings.Replace(text, "Nats-Expected-Last", "Xats-Expected-Last", 1); got != want {
		t.Errorf("%q", got)
	}
}

func TestUnfenceFindsTheHeaderAcrossReads(t *testing.T) {
	text := "a" + string(fence) + "bNats-Expected-" + string(fence) + "Nats-Exp"
	b, err := io.ReadAll(&replacer{src: iotest.OneByteReader(strings.NewReader(text))})
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.ReplaceAll(text, string(fence), string(nothing)); string(b) != want {
		t.Errorf("%q, want %q", b, want)
	}
}
