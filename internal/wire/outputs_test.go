package wire_test

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

const tempConfig = `
worker: {grace: 60s, workspace: {mode: temp}}
nats: {ack_wait: 2s}
agents:
  default:
    model: m
    base_url: "%s"
    tools: [bash, read]
    bash: {private: false, network: true}
`

// A worker's process is killed after a long output. The next worker, whose
// workspace is empty, reads its middle; the store has the whole; nothing is left
// when the session is removed.
func TestLongOutputSurvivesTheWorkersProcess(t *testing.T) {
	j := newJournal(t)
	hold := make(chan struct{})
	calls := looptest.Calls(looptest.Call{ID: "call_long", Name: "bash", Args: `{"command":"seq 40000; exit 7"}`})
	script := looptest.NewScript(calls, looptest.Reply{Text: "half", Hold: hold}, looptest.Text("done"))
	defer script.Close()
	yaml := strings.Replace(tempConfig, "%s", script.BaseURL(), 1)
	kill := startProcess(t, j.env.Server.ClientURL(), yaml)
	j.prompt("s1")
	evs := j.until("s1", halfAnswered)
	kill()
	close(hold)
	path := fullOutput(t, evs)

	startWorker(t, j.env, yaml)
	j.settled("s1", 1)
	readCall := looptest.Call{Name: "read", Args: `{"path":` + quote(path) + `,"offset":20001,"limit":3}`}
	script.Add(looptest.Calls(readCall), looptest.Text("done"))
	j.prompt("s1")
	if got, _ := j.settled("s1", 2); !strings.HasPrefix(got, "20001\n20002\n20003\n") {
		t.Errorf("read on another worker: %q", got)
	}

	objects, err := j.store.Objects("s1", session.HeadingOutput)
	if err != nil {
		t.Fatal(err)
	}
	in, err := objects.Get(t.Context(), strings.TrimPrefix(path, ".pi-worker/output/"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(in)
	in.Close()
	if err != nil || !bytes.Equal(got, sequence(40000)) {
		t.Errorf("the store has %d bytes, %v", len(got), err)
	}
	if list := j.objects("s1"); len(list) != 1 {
		t.Errorf("objects %q, want one", list)
	}
	if err := j.store.Remove(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	if list := j.objects("s1"); len(list) != 0 {
		t.Errorf("%q are left of a removed session", list)
	}
}

// fullOutput is the path that the model was told, which must be that of the
// details.
func fullOutput(t *testing.T, evs []loop.Event) string {
	t.Helper()
	for _, ev := range evs {
		end, ok := ev.(*loop.ToolExecutionEnd)
		if !ok {
			continue
		}
		var d struct {
			FullOutputPath string
			Output         struct {
				Blob string
				Size int
			}
		}
		if err := json.Unmarshal(end.Result.Details, &d); err != nil {
			t.Fatal(err)
		}
		text := end.Result.Content[0].(*loop.Text).Text
		found := regexp.MustCompile(`Full output: (\S+)\]`).FindStringSubmatch(text)
		if !end.IsError || found == nil || found[1] != d.FullOutputPath || d.Output.Size != len(sequence(40000)) {
			t.Fatalf("error %v, details %s, text …%s", end.IsError, end.Result.Details, text[max(0, len(text)-200):])
		}
		return d.FullOutputPath
	}
	t.Fatal("no call has ended")
	return ""
}

// sequence is what seq n writes.
func sequence(n int) (out []byte) {
	for i := 1; i <= n; i++ {
		out = append(strconv.AppendInt(out, int64(i), 10), '\n')
	}
	return out
}
