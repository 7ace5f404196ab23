package natstool_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/tools/natstool"
)

// serviceEnv makes the test binary a service at this NATS.
const serviceEnv = "NATSTOOL_TEST_SERVICE"

// serveUntilKilled offers a tool that never ends by itself.
func serveUntilKilled(url string) {
	nc, err := nats.Connect(url)
	if err != nil {
		panic(err)
	}
	tool := named("hang")
	tool.run = func(ctx context.Context, _ loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
		update(loop.TextResult("hanging"))
		<-ctx.Done()
		return loop.ToolResult{}, ctx.Err()
	}
	if _, err := natstool.Serve(nc, natstool.Config{Name: "other", Heartbeat: 100 * time.Millisecond}, tool); err != nil {
		panic(err)
	}
	if err := nc.Flush(); err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	select {}
}

// process starts a command and waits for its first line.
func process(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the process said %q: %v", line, err)
	}
}

func TestServiceKilledMidCallIsTyped(t *testing.T) {
	e := natstest.Start(t, nil)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serviceEnv+"="+e.Server.ClientURL())
	process(t, cmd)
	remote := one(t, open(t, e.NC, nil), "hang")
	begun := time.Now()
	res, err := remote.Execute(t.Context(), loop.Call{Name: "hang"}, func(loop.ToolResult) {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	wantFailure(t, res, natstool.FailureVanished)
	if d := time.Since(begun); d > 45*time.Second {
		t.Errorf("it took %v to notice; the deadline is minutes away", d)
	}
}

func TestPythonExampleIsATool(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	e := natstest.Start(t, nil)
	address := strings.TrimPrefix(e.Server.ClientURL(), "nats://")
	process(t, exec.Command(python, "../../docs/examples/remote_tool.py", address))
	remote := one(t, open(t, e.NC, nil), "count_*")
	progress := ""
	res, err := remote.Execute(t.Context(),
		loop.Call{ID: "c", Name: "count_words", Args: json.RawMessage(`{"text":"three small words"}`), Key: "s/1/0/0"},
		func(r loop.ToolResult) { progress += text(r) })
	if err != nil || res.IsError || text(res) != "3 words" || progress != "counting" {
		t.Fatalf("got %q after %q: %v", text(res), progress, err)
	}
	if want := `{"words": 3, "key": "s/1/0/0"}`; string(res.Details) != want {
		t.Errorf("details %s, want %s", res.Details, want)
	}
	if !remote.Spec().Idempotent {
		t.Error("the example says that it is idempotent")
	}
}
