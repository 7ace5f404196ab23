package looptest_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/loop/openai"
)

// converse runs a prompt with one tool against an endpoint and returns what
// the assistant said, errors included.
func converse(t *testing.T, baseURL, api, text string) string {
	t.Helper()
	model, err := openai.New(openai.Config{BaseURL: baseURL, APIKey: "sk-planted", API: api, Info: loop.ModelInfo{ID: "m"}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &loop.Config{Model: model, Tools: []loop.Tool{&looptest.Tool{ToolSpec: loop.ToolSpec{Name: "echo"}}}}
	events, err := looptest.Collect(loop.Run(t.Context(), cfg, nil, loop.NewUserText(text)))
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for _, m := range looptest.Messages(events) {
		a, ok := m.(*loop.AssistantMessage)
		if !ok {
			continue
		}
		for _, c := range a.Content {
			if text, ok := c.(*loop.Text); ok {
				said.WriteString(text.Text)
			}
		}
		said.WriteString(a.ErrorMessage + "|")
	}
	return said.String()
}

// record lets a conversation run through a recorder, into a folder.
func record(t *testing.T, api string, answers ...looptest.Answer) (dir, said string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "recording")
	script := looptest.NewScript(answers...)
	defer script.Close()
	rec, err := looptest.NewRecorder(dir, script.BaseURL())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(rec)
	said = converse(t, server.URL, api, "go")
	server.Close() // waits for the handlers, and so for the files
	if err := rec.Err(); err != nil {
		t.Fatal(err)
	}
	return dir, said
}

// replayed answers from a recording.
func replayed(t *testing.T, dir, api, text string) (string, error) {
	t.Helper()
	rec, err := looptest.OpenRecording(dir)
	if err != nil {
		t.Fatal(err)
	}
	script := looptest.NewScript()
	defer script.Close()
	script.Otherwise(rec.Answer)
	return converse(t, script.BaseURL(), api, text), rec.Err()
}

// WISHES 52: what a model once did is replayed, keyed by the request.
func TestRecordedSessionIsReplayed(t *testing.T) {
	for _, api := range []string{openai.ChatCompletions, openai.Responses} {
		t.Run(api, func(t *testing.T) {
			dir, said := record(t, api,
				looptest.Reply{Text: "Let me see.", Calls: []looptest.Call{{Name: "echo", Args: `{}`}}},
				looptest.Text("<done> & över"),
			)
			if said != "Let me see.|<done> & över|" {
				t.Fatalf("recorded %q", said)
			}
			again, err := replayed(t, dir, api, "go")
			if again != said || err != nil {
				t.Errorf("replayed %q, %v", again, err)
			}
		})
	}
}

// WISHES 52: a miss prints the difference to the nearest recorded request.
func TestMissPrintsADiff(t *testing.T) {
	dir, _ := record(t, openai.ChatCompletions, looptest.Text("hello"))
	said, err := replayed(t, dir, openai.ChatCompletions, "stop")
	if err == nil {
		t.Fatal("no miss")
	}
	for _, want := range []string{"0001.json", `recorded "go", asked "stop"`, "1 of 1 recorded requests were never asked"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if !strings.Contains(said, `recorded "go", asked "stop"`) {
		t.Errorf("the run ended with %q", said)
	}
}

func TestRecordingHasNoKeyAndAnswersOnce(t *testing.T) {
	dir, _ := record(t, openai.ChatCompletions, looptest.Text("hello"))
	text, err := os.ReadFile(filepath.Join(dir, "0001.json"))
	if err != nil || strings.Contains(string(text), "planted") {
		t.Errorf("%v in %s", err, text)
	}
	rec, err := looptest.OpenRecording(dir)
	if err != nil {
		t.Fatal(err)
	}
	script := looptest.NewScript()
	defer script.Close()
	script.Otherwise(rec.Answer)
	converse(t, script.BaseURL(), openai.ChatCompletions, "go")
	converse(t, script.BaseURL(), openai.ChatCompletions, "go")
	if err := rec.Err(); err == nil || !strings.Contains(err.Error(), "as often as it was recorded") {
		t.Errorf("asked twice: %v", err)
	}
	if _, err := looptest.NewRecorder(dir, script.BaseURL()); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("recorded over: %v", err)
	}
	if _, err := looptest.OpenRecording(t.TempDir()); err == nil {
		t.Error("an empty folder was replayed")
	}
}

// An answer that broke off breaks off again.
func TestCutAnswerIsReplayedCut(t *testing.T) {
	dir, said := record(t, openai.ChatCompletions, &looptest.Response{Chunks: []looptest.Chunk{
		{Data: []byte(`{"choices":[{"index":0,"delta":{"content":"half"}}]}`)}, {Cut: true},
	}})
	again, err := replayed(t, dir, openai.ChatCompletions, "go")
	if err != nil || again != said || !strings.HasPrefix(said, "half") || said == "half|" {
		t.Errorf("recorded %q, replayed %q, %v", said, again, err)
	}
}
