package natstest

import (
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
	for end := time.Now().Add(30 * time.Second); ; {
		if _, err := c.JS.AccountInfo(t.Context()); err == nil {
			return c
		} else if time.Now().After(end) {
			t.Fatalf("natstest: the cluster has no leader: %v", err)
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
