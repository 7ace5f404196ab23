//go:build integration

package integration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/testcontainers/testcontainers-go"
	tcexec "github.com/testcontainers/testcontainers-go/exec"

	"github.com/pi-worker/pi-worker/subjects"
)

const slowAnswer = "word word word"

func TestPromptsSurviveKilledWorkersAndOneBrokersTroubles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	nats, url := s.broker("nats")
	workers := map[string]*testcontainers.DockerContainer{
		"w1": s.worker("w1", "nats://nats:4222", 1), "w2": s.worker("w2", "nats://nats:4222", 1),
	}
	c := connect(t, url)

	t.Run("the image's own pi-cli", func(t *testing.T) {
		code, out, err := workers["w1"].Exec(t.Context(),
			[]string{"/pi-cli", "--server", "nats://nats:4222", "prompt", "--session", "cli", "hello"}, tcexec.Multiplexed())
		if err != nil {
			t.Fatal(err)
		}
		text := readAll(t, out)
		if code != 0 || !strings.Contains(text, "scripted: hello") {
			t.Errorf("exit code %d, output %q", code, text)
		}
	})
	t.Run("a worker is killed", func(t *testing.T) {
		r := prompt(t, c, "killed", "slow")
		owner := streaming(t, c, "killed")
		s.kill(workers[owner])
		if res := completed(t, c, r, slowAnswer); res.Attempts < 2 {
			t.Errorf("%d attempts, though the owner %s was killed", res.Attempts, owner)
		}
		s.must("starting "+owner, workers[owner].Start(t.Context()))
	})
	t.Run("the broker is paused", func(t *testing.T) {
		r := prompt(t, c, "paused", "slow")
		streaming(t, c, "paused")
		lost := noticed(t, url)
		s.pause(nats)
		select {
		case <-lost:
		case <-time.After(time.Minute):
			t.Error("no client notices that its broker is frozen")
		}
		s.unpause(nats)
		completed(t, c, r, slowAnswer)
	})
	t.Run("the broker is restarted", func(t *testing.T) {
		r := prompt(t, c, "restarted", "slow")
		streaming(t, c, "restarted")
		s.restart(nats)
		completed(t, c, r, slowAnswer)
	})
	t.Run("a worker is cut off the network", func(t *testing.T) {
		r := prompt(t, c, "cut", "slow")
		owner := streaming(t, c, "cut")
		s.cutOff(workers[owner])
		if res := completed(t, c, r, slowAnswer); res.Attempts < 2 {
			t.Errorf("%d attempts, though the owner %s was cut off", res.Attempts, owner)
		}
		s.join(workers[owner], owner)
	})
}

func TestClusterLosesANodeAndNothingElse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	routes := "nats://n1:6222,nats://n2:6222,nats://n3:6222"
	nodes := map[string]*testcontainers.DockerContainer{}
	var urls []string
	for _, name := range []string{"n1", "n2", "n3"} {
		node, url := s.broker(name, "--cluster_name", "c", "--cluster", "nats://0.0.0.0:6222", "--routes", routes)
		nodes[name] = node
		urls = append(urls, url)
	}
	inside := "nats://n1:4222,nats://n2:4222,nats://n3:4222"
	c := connect(t, urls...) // waits until the cluster has a leader
	s.worker("w1", inside, 3)
	s.worker("w2", inside, 3)

	for _, tt := range []struct {
		name       string
		hurt, heal func(node string)
	}{
		{"stopped", func(n string) { s.kill(nodes[n]) }, func(n string) { s.must("starting "+n, nodes[n].Start(t.Context())) }},
		{"paused", func(n string) { s.pause(nodes[n]) }, func(n string) { s.unpause(nodes[n]) }},
		{"cut off", func(n string) { s.cutOff(nodes[n]) }, func(n string) { s.join(nodes[n], n) }},
	} {
		t.Run("the log's leader is "+tt.name, func(t *testing.T) {
			session := strings.ReplaceAll(tt.name, " ", "-")
			r := prompt(t, c, session, "slow")
			streaming(t, c, session)
			leader := settledCluster(t, urls)
			tt.hurt(leader)
			completed(t, c, r, slowAnswer)
			// One more while the node is away.
			completed(t, c, prompt(t, c, session+"-after", "hello"), "scripted: hello")
			tt.heal(leader)
			settledCluster(t, urls)
		})
	}
}

// noticed is closed when a client has noticed that its broker does not answer:
// after two pings, which is longer than the lease.
func noticed(t *testing.T, url string) <-chan struct{} {
	t.Helper()
	lost := make(chan struct{})
	nc, err := nats.Connect(url, nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.NoReconnect(),
		nats.ClosedHandler(func(*nats.Conn) { close(lost) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return lost
}

// settledCluster waits until each replica of the log's stream is there and
// current, and names the leader.
func settledCluster(t *testing.T, urls []string) (leader string) {
	t.Helper()
	var last any
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		info, err := eventsInfo(t, urls)
		if err == nil && info.Cluster != nil && info.Cluster.Leader != "" && len(info.Cluster.Replicas) == 2 {
			a, b := info.Cluster.Replicas[0], info.Cluster.Replicas[1]
			if a.Current && b.Current && !a.Offline && !b.Offline {
				return info.Cluster.Leader
			}
		}
		last = err
		time.Sleep(200 * time.Millisecond) // real brokers: nothing tells when they are whole
	}
	t.Fatalf("the cluster is not whole after two minutes: %v", last)
	return ""
}

func eventsInfo(t *testing.T, urls []string) (*jetstream.StreamInfo, error) {
	nc, err := nats.Connect(strings.Join(urls, ","), nats.Timeout(time.Second))
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(2*time.Second))
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(t.Context(), subjects.Names{}.EventsStream())
	if err != nil {
		return nil, err
	}
	return stream.Info(t.Context())
}
