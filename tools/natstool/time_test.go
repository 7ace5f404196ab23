package natstool_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/tools/natstool"
)

// stopNow stops inside a bubble, where nothing may outlive the test.
func stopNow(t *testing.T, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestDeadlineStopsTheServiceAndIsTyped(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		tool := named("slow")
		ended := make(chan struct{})
		tool.run = func(ctx context.Context, _ loop.Call, _ func(loop.ToolResult)) (loop.ToolResult, error) {
			<-ctx.Done()
			close(ended)
			time.Sleep(time.Minute) // does not answer in time even so
			return loop.ToolResult{}, ctx.Err()
		}
		s, err := natstool.Serve(e.Connect(), natstool.Config{Name: "test", Timeout: 20 * time.Minute}, tool)
		if err != nil {
			t.Fatal(err)
		}
		defer stopNow(t, s.Stop)
		d, err := natstool.Open(t.Context(), e.NC, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer stopNow(t, d.Close)
		begun := time.Now()
		res, err := one(t, d, "slow").Execute(t.Context(), loop.Call{Name: "slow"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantFailure(t, res, natstool.FailureDeadline)
		if took := time.Since(begun); took < 20*time.Minute || took > 21*time.Minute {
			t.Errorf("it took %v, want the deadline of 20 minutes", took)
		}
		<-ended
	})
}

func TestSilentServiceWithoutHeartbeatIsAskedWhetherItIsThere(t *testing.T) {
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		nc := e.Connect()
		svc, err := micro.AddService(nc, micro.Config{Name: "quiet", Version: "1.0.0"})
		if err != nil {
			t.Fatal(err)
		}
		err = svc.AddEndpoint("quiet", micro.HandlerFunc(func(micro.Request) {}),
			micro.WithEndpointMetadata(map[string]string{natstool.MetaTool: "quiet", natstool.MetaTimeout: "1h"}))
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		d, err := natstool.Open(t.Context(), e.NC, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer stopNow(t, d.Close)
		begun := time.Now()
		gone := time.AfterFunc(10*time.Minute, nc.Close)
		defer gone.Stop()
		res, err := one(t, d, "quiet").Execute(t.Context(), loop.Call{Name: "quiet"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantFailure(t, res, natstool.FailureVanished)
		if took := time.Since(begun); took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("it took %v, want soon after the 10 minutes that it was there", took)
		}
	})
}
