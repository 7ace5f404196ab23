package main

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// lateBroker passes everything on, and what the broker says only after a
// delay. Unlike a pause, the delay takes nothing from the throughput.
type lateBroker struct {
	ln     net.Listener
	target string
	delay  atomic.Int64
	wg     sync.WaitGroup
}

func startLateBroker(target string) (*lateBroker, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &lateBroker{ln: ln, target: target}
	p.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.pass(c) })
		}
	})
	return p, nil
}

// close waits for the connections, which end with the worker's.
func (p *lateBroker) close() {
	_ = p.ln.Close()
	p.wg.Wait()
}

func (p *lateBroker) pass(client net.Conn) {
	defer client.Close()
	broker, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer broker.Close()
	type piece struct {
		due  time.Time
		data []byte
	}
	pieces := make(chan piece, 1<<14)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, _ = io.Copy(broker, client)
		_ = broker.Close()
	})
	wg.Go(func() {
		defer close(pieces)
		for {
			buf := make([]byte, 32<<10)
			n, err := broker.Read(buf)
			if err != nil {
				return
			}
			pieces <- piece{time.Now().Add(time.Duration(p.delay.Load())), buf[:n]}
		}
	})
	for next := range pieces {
		time.Sleep(time.Until(next.due))
		if _, err := client.Write(next.data); err != nil {
			_ = client.Close() // the other two end
		}
	}
	_ = client.Close()
}
