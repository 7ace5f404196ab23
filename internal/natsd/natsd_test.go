package natsd_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/pi-worker/pi-worker/internal/natsd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStartKeepsWhatIsOnDisk(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 {
		srv, err := natsd.Start(natsd.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(srv.ClientURL(), "nats://127.0.0.1:") {
			t.Errorf("listens on %s, want loopback", srv.ClientURL())
		}
		nc, err := nats.Connect(srv.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S"})
		} else {
			_, err = js.Stream(t.Context(), "S")
		}
		if err != nil {
			t.Error(err)
		}
		nc.Close()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestStartNamesAPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	if _, err := natsd.Start(natsd.Config{Port: port}); !errors.Is(err, natsd.ErrPortInUse) {
		t.Errorf("error %v, want ErrPortInUse", err)
	}
}

func TestStartSaysWhyTheFolderIsNoUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := natsd.Start(natsd.Config{Dir: file})
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v, want one that names %s", err, file)
	}
}

func TestCloseRemovesTheTemporaryFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	srv, err := natsd.Start(natsd.Config{DontListen: true})
	if err != nil {
		t.Fatal(err)
	}
	if srv.ClientURL() != "" {
		t.Errorf("listens on %s", srv.ClientURL())
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

func TestTwoServersDoNotShareAFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	srv, err := natsd.Start(natsd.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := natsd.Start(natsd.Config{Dir: dir}); !errors.Is(err, natsd.ErrFolderInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v, want ErrFolderInUse and the folder", err)
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if srv, err = natsd.Start(natsd.Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
}
