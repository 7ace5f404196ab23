package natstest

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Cluster is three servers that replicate, in one process.
type Cluster struct {
	Servers []*server.Server
	NC      *nats.Conn // knows all servers, and never gives up
	JS      jetstream.JetStream
}

// StartCluster starts three servers with JetStream on loopback, and waits
// until they have a leader. Everything is closed when the test ends.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{}
	var routes []string
	ports := make([]int, 3)
	for i := range ports {
		ports[i] = freePort(t)
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
	}
	urls := ""
	for i, port := range ports {
		opts := &server.Options{
			ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: server.RANDOM_PORT,
			JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port},
			Routes:  server.RoutesFromStr(routes[0] + "," + routes[1] + "," + routes[2]),
		}
		s, err := server.NewServer(opts)
		if err != nil {
			t.Fatalf("natstest: %v", err)
		}
		s.Start()
		t.Cleanup(s.WaitForShutdown)
		t.Cleanup(s.Shutdown)
		c.Servers = append(c.Servers, s)
		if !s.ReadyForConnections(20 * time.Second) {
			t.Fatal("natstest: a server is not ready")
		}
		urls += "," + s.ClientURL()
	}
	nc, err := nats.Connect(urls[1:], nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatalf("natstest: connecting: %v", err)
	}
	t.Cleanup(nc.Close)
	c.NC = nc
	if c.JS, err = jetstream.New(nc); err != nil {
		t.Fatalf("natstest: %v", err)
	}
	c.awaitPeers(t)
	return c
}

// awaitPeers waits until the nodes have found each other: before that a stream
// of three replicas is refused.
func (c *Cluster) awaitPeers(t testing.TB) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, s := range c.Servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(c.Servers) {
				if _, err := c.JS.AccountInfo(ctx); err == nil {
					return
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("natstest: the cluster has no leader, or not all peers")
		}
	}
}

func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
