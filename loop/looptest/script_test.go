package looptest

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func post(t *testing.T, s *Script, path, body string) (int, string, error) {
	t.Helper()
	resp, err := s.Client().Post(s.BaseURL()+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(bufio.NewReader(resp.Body))
	return resp.StatusCode, string(b), err
}

func TestScriptAnswersBothWires(t *testing.T) {
	reply := Reply{Thinking: "hm", Text: "hello there", Calls: []Call{{Name: "read", Args: `{"path":"a"}`}}, Usage: &Usage{Input: 3, Output: 2}}
	s := NewScript(reply, reply)
	defer s.Close()
	_, chat, err := post(t, s, "/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"content":"hello "`, `"content":"there"`, `"reasoning_content":"hm"`, `"id":"call_1_1"`, `"finish_reason":"tool_calls"`, `"total_tokens":5`, "data: [DONE]\n\n"} {
		if !strings.Contains(chat, want) {
			t.Errorf("chat answer lacks %s:\n%s", want, chat)
		}
	}
	_, resp, err := post(t, s, "/responses", `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"event: response.completed\n", `"call_id":"call_2_1"`, `"delta":"hello "`, `"summary_text"`, `"total_tokens":5`} {
		if !strings.Contains(resp, want) {
			t.Errorf("responses answer lacks %s:\n%s", want, resp)
		}
	}
	for i, r := range s.Requests() {
		if r.Number != i+1 || r.LastUser() != "hi" {
			t.Errorf("request %d: number %d, last user %q", i, r.Number, r.LastUser())
		}
	}
}

func TestScriptRefusesWhenUsedUp(t *testing.T) {
	s := NewScript()
	defer s.Close()
	status, _, err := post(t, s, "/chat/completions", `{}`)
	if err != nil || status != 599 {
		t.Fatalf("status %d, error %v; want 599", status, err)
	}
}

func TestScriptCutsTheConnection(t *testing.T) {
	s := NewScript(Reply{Text: "one two three", CutAfter: 2}, &Response{CutBeforeHeaders: true})
	defer s.Close()
	_, got, err := post(t, s, "/chat/completions", `{}`)
	if err == nil || !strings.Contains(got, "two ") || strings.Contains(got, "three") {
		t.Fatalf("got %q, error %v; want a cut after the second piece", got, err)
	}
	if _, _, err := post(t, s, "/chat/completions", `{}`); err == nil {
		t.Fatal("no error for a connection that was closed before the headers")
	}
}

func TestScriptAnswerLooksAtTheRequest(t *testing.T) {
	s := NewScript()
	defer s.Close()
	s.Otherwise(func(r *Request) Answer {
		if r.ToolResults() == 1 && r.Last().Text == "ok" {
			return Text("done")
		}
		return Reply{Status: http.StatusTooManyRequests, Text: "slow down", Headers: map[string]string{"Retry-After": "1"}}
	})
	status, _, _ := post(t, s, "/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`)
	if status != http.StatusTooManyRequests {
		t.Fatalf("status %d", status)
	}
	_, got, _ := post(t, s, "/chat/completions", `{"messages":[{"role":"user","content":"x"},{"role":"tool","tool_call_id":"c","content":"ok"}]}`)
	if !strings.Contains(got, `"done"`) {
		t.Fatalf("got %q", got)
	}
}

// TestMemoryScriptTakesNoTime shows that a script works in a bubble: its
// delays pass in virtual time.
func TestMemoryScriptTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewMemoryScript(Reply{Text: "a b c", Delay: time.Minute, ChunkDelay: time.Hour})
		defer s.Close()
		begin := time.Now()
		_, got, err := post(t, s, "/chat/completions", `{}`)
		if err != nil || !strings.Contains(got, "[DONE]") {
			t.Fatalf("got %q, error %v", got, err)
		}
		if d := time.Since(begin); d != 3*time.Hour+time.Minute {
			t.Fatalf("took %v of virtual time", d)
		}
	})
}
