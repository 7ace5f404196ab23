package openai

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	openaigo "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/pi-worker/pi-worker/loop"
)

const benchChunks = 2000

// benchBody is an answer of benchChunks text chunks as OpenAI sends them.
func benchBody() []byte {
	var b bytes.Buffer
	const head = `data: {"id":"chatcmpl-CYkOHhMUbXbNmtqNCVVKnEMfnkWdC","object":"chat.completion.chunk","created":1763000000,"model":"gpt-5-2025-08-07","service_tier":"default","system_fingerprint":"fp_50906f2aac","choices":[{"index":0,"delta":`
	fmt.Fprintf(&b, head+`{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"obfuscation":"Zr4"}`+"\n\n")
	for i := range benchChunks - 2 {
		fmt.Fprintf(&b, head+`{"content":" word%d"},"logprobs":null,"finish_reason":null}],"obfuscation":"q8WnSf2bX"}`+"\n\n", i%1000)
	}
	fmt.Fprintf(&b, head+`{},"logprobs":null,"finish_reason":"stop"}],"usage":null,"obfuscation":"Gd"}`+"\n\ndata: [DONE]\n\n")
	return b.Bytes()
}

func perChunk(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchChunks, "ns/chunk")
	b.ReportAllocs()
}

func BenchmarkReader(b *testing.B) {
	body := benchBody()
	b.ReportAllocs()
	for b.Loop() {
		r := NewReader(bytes.NewReader(body))
		n := 0
		for {
			if _, err := r.Next(); err != nil {
				break
			}
			n++
		}
		if n != benchChunks+1 {
			b.Fatal(n)
		}
	}
	perChunk(b)
}

// BenchmarkStream is everything from the body's bytes to updates with the
// message so far; BenchmarkStreamSDK is the same with openai-go's stream and
// accumulator.
func BenchmarkStream(b *testing.B) {
	body := benchBody()
	m, err := New(Config{BaseURL: "http://127.0.0.1:1/v1", Info: loop.ModelInfo{ID: "gpt-5-2025-08-07"}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		n := decode(b, m, body)
		if n != benchChunks+2 {
			b.Fatal(n)
		}
	}
	perChunk(b)
	ours = b.Elapsed() / time.Duration(b.N)
}

// ours is what BenchmarkStream took for a stream, 0 if it has not run.
var ours time.Duration

func decode(t testing.TB, m *Model, body []byte) (updates int) {
	a := &attempt{m: m, parent: t.Context(), ctx: t.Context(), req: &loop.Request{}}
	a.cancel = func(error) {}
	a.out = sink{msg: &loop.AssistantMessage{Model: m.cfg.Info.ID}, yield: func(u *loop.Update, err error) bool {
		updates++
		return true
	}}
	a.dec = &chatStream{m: m, out: &a.out}
	a.events(bytes.NewReader(body))
	if a.out.msg.StopReason != loop.StopStop {
		t.Fatal(a.out.msg.ErrorMessage)
	}
	return updates
}

func BenchmarkStreamSDK(b *testing.B) {
	body := benchBody()
	b.ReportAllocs()
	for b.Loop() {
		res := &http.Response{
			Header: http.Header{"Content-Type": {"text/event-stream"}},
			Body:   io.NopCloser(bytes.NewReader(body)),
		}
		stream := ssestream.NewStream[openaigo.ChatCompletionChunk](ssestream.NewDecoder(res), nil)
		var acc openaigo.ChatCompletionAccumulator
		n := 0
		for stream.Next() {
			acc.AddChunk(stream.Current())
			n++
		}
		if n != benchChunks || stream.Err() != nil {
			b.Fatal(n, stream.Err())
		}
	}
	perChunk(b)
	if ours > 0 {
		b.ReportMetric(float64(b.Elapsed()/time.Duration(b.N))/float64(ours), "times-ours")
	}
}
