package openai

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

var loopInfo = loop.ModelInfo{ID: "m", Provider: "openai", Reasoning: true}

// checkDecoder runs two chunks, and the end, through a decoder. Whatever they
// are, there is one end, the pieces make up the blocks, and the message can be
// sent back.
func checkDecoder(t *testing.T, m *Model, chunks ...[]byte) {
	var body bytes.Buffer
	for _, c := range chunks {
		body.WriteString("data: ")
		body.Write(bytes.ReplaceAll(bytes.ReplaceAll(c, []byte("\n"), []byte(" ")), []byte("\r"), []byte(" ")))
		body.WriteString("\n\n")
	}
	body.WriteString("data: [DONE]\n\n")
	a := &attempt{m: m, parent: t.Context(), ctx: t.Context(), req: &loop.Request{}}
	a.cancel = func(error) {}
	ends := 0
	pieces := map[int]string{}
	a.out = sink{msg: &loop.AssistantMessage{API: m.cfg.API, Provider: "openai", Model: "m", StopReason: loop.StopStop}}
	a.out.yield = func(u *loop.Update, err error) bool {
		switch u.Type {
		case loop.UpdateDone, loop.UpdateError:
			ends++
		case loop.UpdateTextDelta, loop.UpdateThinkingDelta:
			pieces[u.ContentIndex] += u.Delta
		case loop.UpdateTextEnd, loop.UpdateThinkingEnd:
			if m.cfg.API == ChatCompletions && u.Content != pieces[u.ContentIndex] {
				t.Fatalf("block %d: the pieces are %q, the whole is %q", u.ContentIndex, pieces[u.ContentIndex], u.Content)
			}
		}
		return true
	}
	if m.cfg.API == Responses {
		a.dec = newResponsesStream(m, &a.out)
	} else {
		a.dec = &chatStream{m: m, out: &a.out}
	}
	a.events(&body)
	if ends != 1 {
		t.Fatalf("%d ends", ends)
	}
	checkAnswer(t, m, a.out.msg)
}

func checkAnswer(t *testing.T, m *Model, msg *loop.AssistantMessage) {
	ids := map[string]bool{}
	for _, b := range msg.Content {
		switch b := b.(type) {
		case *loop.Text:
			if !utf8.ValidString(b.Text) {
				t.Fatalf("text %q", b.Text)
			}
		case *loop.ToolCall:
			if !json.Valid(b.Arguments) || b.ID == "" || m.cfg.API == ChatCompletions && ids[b.ID] {
				t.Fatalf("call %+v", b)
			}
			ids[b.ID] = true
		}
	}
	req := &loop.Request{SystemPrompt: "s", Messages: []loop.Message{msg}}
	check, body := looptest.CheckChatRequest, m.chatBody
	if m.cfg.API == Responses {
		check, body = looptest.CheckResponsesRequest, m.responsesBody
	}
	if b := body(req); check(b) != nil {
		t.Fatalf("%v\n%s", check(b), b)
	}
}
