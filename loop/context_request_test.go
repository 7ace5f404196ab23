package loop_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/loop/openai"
)

// recorder keeps the body of the last request and refuses it.
type recorder struct{ body []byte }

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	var err error
	if r.body, err = io.ReadAll(req.Body); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader("{}")), Request: req}, nil
}

// asker returns a function that gives the request with which a model of api
// would be asked.
func asker(t *testing.T, api string) func([]loop.Message) []byte {
	t.Helper()
	r := new(recorder)
	m, err := openai.New(openai.Config{BaseURL: "http://model.invalid/v1", APIKey: "k", API: api,
		Info: loop.ModelInfo{ID: "test-model"}, HTTPClient: &http.Client{Transport: r}})
	if err != nil {
		t.Fatal(err)
	}
	return func(messages []loop.Message) []byte {
		r.body = nil
		for _, err := range m.Stream(context.Background(), &loop.Request{Messages: messages}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		return r.body
	}
}

// TestContextOfAnyPrefixIsAccepted cuts recorded logs behind every event: the
// context of what is left, with a next prompt, is a request that a strict
// server takes, in both APIs.
func TestContextOfAnyPrefixIsAccepted(t *testing.T) {
	chat, responses := asker(t, openai.ChatCompletions), asker(t, openai.Responses)
	last := map[string]bool{} // cuts with the same context are asked once
	requests := 0
	for name, file := range expectedFiles(t) {
		var tr loop.Transcript
		for i, raw := range eventsOf(t, file) {
			ev, err := loop.ParseWire(raw)
			if err != nil {
				t.Fatal(err)
			}
			if err := tr.Apply(ev); err != nil {
				t.Fatal(err)
			}
			messages := append(llmMessages(tr.Context()), loop.NewUserText("go on"))
			key := contextKey(t, messages)
			if last[key] {
				continue
			}
			last[key] = true
			requests++
			if body := chat(messages); looptest.CheckChatRequest(body) != nil {
				t.Errorf("%s cut behind event %d: %v\n%s", filepath.Base(name), i, looptest.CheckChatRequest(body), body)
			}
			if body := responses(messages); looptest.CheckResponsesRequest(body) != nil {
				t.Errorf("%s cut behind event %d: %v\n%s", filepath.Base(name), i, looptest.CheckResponsesRequest(body), body)
			}
		}
	}
	if requests < 50 {
		t.Errorf("only %d contexts", requests)
	}
	t.Logf("%d contexts, each in both APIs", requests)
}

// llmMessages leaves out the messages that do not reach a model.
func llmMessages(all []loop.Message) (out []loop.Message) {
	for _, m := range all {
		if _, custom := m.(*loop.CustomMessage); !custom {
			out = append(out, m)
		}
	}
	return out
}

func contextKey(t *testing.T, messages []loop.Message) string {
	t.Helper()
	b, err := json.Marshal(loop.Messages(messages))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
