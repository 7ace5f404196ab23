package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/tools"
	"github.com/pi-worker/pi-worker/tools/natstool"
)

func TestToolsListsWhatAProfileGivesItsModel(t *testing.T) {
	plain(t)
	e := natstest.Start(t, nil)
	shout, err := tools.Func("shout", "Shout a text,\nloudly.", func(context.Context, loop.Call, struct {
		Text string `json:"text"`
	}) (loop.ToolResult, error) {
		return loop.TextResult("ok"), nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := natstool.Serve(e.Connect(), natstool.Config{Name: "shouting"}, shout)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	file := filepath.Join(t.TempDir(), "pi-worker.yaml")
	yaml := "agents: {loud: {tools: [read], remote_tools: [shout, gone], approval: {ask: [\"shout(x*)\"]}}}\n"
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"tools", "--config", file, "--agent", "loud", "--server", e.Server.ClientURL()}
	code, out, errOut := command(t, args...)
	if code != exitOK || !strings.Contains(errOut, "no tool is there for gone") {
		t.Fatalf("code %d, stderr %q", code, errOut)
	}
	for _, want := range []string{"read", "built in", "NATS service shouting", "shout(x*)", "Shout a text, loudly."} {
		if !strings.Contains(out, want) {
			t.Errorf("the list lacks %q:\n%s", want, out)
		}
	}
	code, out, _ = command(t, append(args, "--json")...)
	var rows []struct {
		Name, Origin string
		Parameters   struct{ Type string }
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil || code != exitOK || len(rows) != 2 {
		t.Fatalf("code %d, %v:\n%s", code, err, out)
	}
	for _, r := range rows {
		if r.Parameters.Type != "object" || r.Origin == "" {
			t.Errorf("row %+v", r)
		}
	}
	if code, _, _ := command(t, "tools", "--agent", "nobody"); code == exitOK {
		t.Error("an unknown profile is no error")
	}
}
