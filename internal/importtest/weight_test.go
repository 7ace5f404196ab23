package importtest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tooHeavy must not be linked into pi-worker, which runs in thousands: what
// only terminals and tests need, and gRPC, which makes the linker keep every
// exported method (by html/template).
var tooHeavy = []string{
	"charm.land/", "github.com/charmbracelet/", "github.com/alecthomas/chroma", "github.com/yuin/goldmark",
	"github.com/testcontainers/", "github.com/moby/", "github.com/docker/", "github.com/chromedp/",
	"google.golang.org/grpc", "github.com/grpc-ecosystem/", "go.opentelemetry.io/proto/otlp/collector/",
	"testing", "helm.sh/", "k8s.io/",
}

func TestWorkerLinksNothingHeavy(t *testing.T) {
	sources(t) // so that go test knows which files the result hangs on
	cmd := exec.Command("go", "list", "-deps", "./cmd/pi-worker")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 100 {
		t.Fatalf("only %d packages: %s", len(deps), out)
	}
	for _, dep := range deps {
		for _, heavy := range tooHeavy {
			if dep == heavy || strings.HasPrefix(dep, heavy) && (strings.HasSuffix(heavy, "/") || strings.HasPrefix(dep, heavy+"/")) {
				t.Errorf("pi-worker links %s", dep)
			}
		}
	}
}
