//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	docker "github.com/moby/moby/api/types/network"
	moby "github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"
)

// Images that .ci/test-images makes. The NATS image is compose.yaml's.
const (
	workerImage = "pi-worker:integration"
	modelImage  = "pi-worker-model:integration"
)

// ackWait is the life of a lease in these tests: what a takeover waits for.
const ackWait = "2s"

func TestMain(m *testing.M) {
	// The reaper's image may be out of reach; every test cleans up itself.
	os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	os.Exit(m.Run())
}

// images builds them once, where Docker is.
var images = sync.OnceValue(func() error {
	cmd := exec.Command("../../.ci/test-images")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf(".ci/test-images: %w\n%s", err, out)
	}
	return nil
})

// needDocker skips the test where there is no Docker, unless it must not.
func needDocker(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").CombinedOutput()
	if err != nil && os.Getenv("PI_INTEGRATION") != "required" {
		t.Skipf("no Docker that answers: %v %s", err, out)
	}
	if err != nil {
		t.Fatalf("PI_INTEGRATION=required, but no Docker answers: %v %s", err, out)
	}
	if err := images(); err != nil {
		t.Fatal(err)
	}
}

// natsImage is the one that compose.yaml names.
func natsImage(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "image: nats:"); ok {
			return "nats:" + name
		}
	}
	t.Fatal("compose.yaml names no NATS image")
	return ""
}

// site is a network with the containers of one test.
type site struct {
	t   *testing.T
	api *testcontainers.DockerClient
	net *testcontainers.DockerNetwork
}

func newSite(t *testing.T) *site {
	t.Helper()
	needDocker(t)
	nw, err := network.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	testcontainers.CleanupNetwork(t, nw)
	api, err := testcontainers.NewDockerClientWithOpts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	s := &site{t: t, api: api, net: nw}
	s.run("model", modelImage, testcontainers.WithWaitStrategy(wait.ForLog("model is ready")))
	return s
}

// run starts a container that the others reach by its name.
func (s *site) run(name, image string, opts ...testcontainers.ContainerCustomizer) *testcontainers.DockerContainer {
	s.t.Helper()
	opts = append([]testcontainers.ContainerCustomizer{network.WithNetwork([]string{name}, s.net)}, opts...)
	c, err := testcontainers.Run(s.t.Context(), image, opts...)
	testcontainers.CleanupContainer(s.t, c, testcontainers.StopTimeout(0))
	if err != nil {
		s.t.Fatalf("starting %s: %v", name, err)
	}
	s.t.Cleanup(func() { s.logsOf(name, c) })
	return c
}

// logsOf shows the last lines of a container if the test has failed.
func (s *site) logsOf(name string, c *testcontainers.DockerContainer) {
	if !s.t.Failed() {
		return
	}
	out, err := exec.Command("docker", "logs", "--tail", "30", c.GetContainerID()).CombinedOutput()
	s.t.Logf("log of %s (%v):\n%s", name, err, out)
}

// brokerConfig lets a broker notice within seconds that a connection is dead:
// a node that was cut off and comes back has another address, and its old
// routes look alive until a ping is missed. NATS itself takes a minute.
const brokerConfig = `
ping_interval: "1s"
ping_max: 2
cluster { ping_interval: "1s" }
`

// broker starts a NATS whose port on this computer outlives a restart.
func (s *site) broker(name string, args ...string) (c *testcontainers.DockerContainer, url string) {
	s.t.Helper()
	port := freePort(s.t)
	c = s.run(name, natsImage(s.t),
		testcontainers.WithCmd(append([]string{"--config", "/nats.conf", "--jetstream", "--store_dir", "/data", "--server_name", name}, args...)...),
		testcontainers.WithFiles(testcontainers.ContainerFile{
			Reader: strings.NewReader(brokerConfig), ContainerFilePath: "/nats.conf", FileMode: 0o644,
		}),
		testcontainers.WithExposedPorts("4222/tcp"),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = docker.PortMap{docker.MustParsePort("4222/tcp"): {{
				HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: fmt.Sprint(port),
			}}}
		}),
		testcontainers.WithWaitStrategy(wait.ForLog("Server is ready")),
	)
	return c, fmt.Sprintf("nats://127.0.0.1:%d", port)
}

// worker starts the worker's image.
func (s *site) worker(name, natsURL string, replicas int) *testcontainers.DockerContainer {
	s.t.Helper()
	return s.run(name, workerImage,
		testcontainers.WithEnv(map[string]string{
			"PI_NATS_URL": natsURL, "PI_NATS_REPLICAS": fmt.Sprint(replicas), "PI_NATS_ACK_WAIT": ackWait,
			"PI_WORKER_ID": name, "OPENAI_API_KEY": "sk-of-the-test", "PI_DEFAULTS_BASE_URL": "http://model:8080/v1",
		}),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.ReadonlyRootfs, h.CapDrop = true, []string{"ALL"}
			h.Tmpfs = map[string]string{"/tmp": ""}
		}),
		testcontainers.WithWaitStrategy(wait.ForExec([]string{"/pi-worker", "healthcheck"}).WithStartupTimeout(30*time.Second)),
	)
}

func (s *site) must(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

func (s *site) kill(c *testcontainers.DockerContainer) {
	s.t.Helper()
	_, err := s.api.ContainerKill(s.t.Context(), c.GetContainerID(), moby.ContainerKillOptions{Signal: "KILL"})
	s.must("killing", err)
}

func (s *site) pause(c *testcontainers.DockerContainer) {
	s.t.Helper()
	_, err := s.api.ContainerPause(s.t.Context(), c.GetContainerID(), moby.ContainerPauseOptions{})
	s.must("pausing", err)
}

func (s *site) unpause(c *testcontainers.DockerContainer) {
	s.t.Helper()
	_, err := s.api.ContainerUnpause(s.t.Context(), c.GetContainerID(), moby.ContainerUnpauseOptions{})
	s.must("going on", err)
}

func (s *site) restart(c *testcontainers.DockerContainer) {
	s.t.Helper()
	soon := time.Second
	s.must("stopping", c.Stop(s.t.Context(), &soon))
	s.must("starting", c.Start(s.t.Context()))
}

// cutOff takes a container off the network.
func (s *site) cutOff(c *testcontainers.DockerContainer) {
	s.t.Helper()
	_, err := s.api.NetworkDisconnect(s.t.Context(), s.net.ID, moby.NetworkDisconnectOptions{Container: c.GetContainerID(), Force: true})
	s.must("cutting off", err)
}

// join brings it back under its name.
func (s *site) join(c *testcontainers.DockerContainer, name string) {
	s.t.Helper()
	_, err := s.api.NetworkConnect(s.t.Context(), s.net.ID, moby.NetworkConnectOptions{
		Container: c.GetContainerID(), EndpointConfig: &docker.EndpointSettings{Aliases: []string{name}},
	})
	s.must("joining", err)
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
