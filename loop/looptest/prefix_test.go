package looptest_test

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/loop/openai"
)

// wiretap is a transport that keeps the last request and refuses it.
type wiretap struct{ body []byte }

func (w *wiretap) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	w.body = b
	return &http.Response{
		StatusCode: http.StatusBadRequest, Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader("{}")),
	}, nil
}

// TestAnyPrefixOfALogGivesAnAcceptableRequest cuts the events of pi's own runs
// after each one, asks both APIs something with what they add up to, and
// checks the request as a strict server does.
func TestAnyPrefixOfALogGivesAnAcceptableRequest(t *testing.T) {
	fsys, err := oracleFS()
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	for _, suite := range suites {
		files, err := fs.Glob(fsys, suite.expected+"/*.json")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			b, err := fs.ReadFile(fsys, file)
			if err != nil {
				t.Fatal(err)
			}
			var log struct{ Events []json.RawMessage }
			if err := json.Unmarshal(b, &log); err != nil {
				t.Fatal(err)
			}
			requests += askAfterEachEvent(t, file, openai.ChatCompletions, looptest.CheckChatRequest, log.Events)
			requests += askAfterEachEvent(t, file, openai.Responses, looptest.CheckResponsesRequest, log.Events)
		}
	}
	if requests < 1000 {
		t.Fatalf("only %d requests were checked", requests)
	}
}

func askAfterEachEvent(t *testing.T, file, api string, check func([]byte) error, events []json.RawMessage) (requests int) {
	t.Helper()
	tap := &wiretap{}
	model, err := openai.New(openai.Config{
		API: api, BaseURL: "http://model.invalid/v1", HTTPClient: &http.Client{Transport: tap},
		Info: loop.ModelInfo{ID: "m", Provider: "openai"},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &loop.Config{Model: model}
	tr := new(loop.Transcript)
	for i, raw := range events {
		ev, err := loop.ParseEvent(raw)
		if err != nil {
			t.Fatalf("%s: event %d: %v", file, i, err)
		}
		if err := tr.Apply(ev); err != nil {
			t.Fatalf("%s: event %d: %v", file, i, err)
		}
		switch ev.(type) {
		case *loop.MessageEnd, *loop.ToolExecutionStart, *loop.ToolExecutionEnd:
		default:
			continue // adds nothing to what a model is asked with
		}
		tap.body = nil
		if _, err := looptest.Collect(loop.Run(t.Context(), cfg, tr.Context(), loop.NewUserText("go on"))); err != nil {
			t.Fatal(err)
		}
		requests++
		if err := check(tap.body); err != nil {
			t.Errorf("%s as %s, cut after event %d (%s): %v\n%s", file, api, i, ev.EventType(), err, tap.body)
			return requests
		}
	}
	return requests
}
