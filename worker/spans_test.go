package worker

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

const (
	publisherTrace = "0af7651916cd43dd8448eb211c80319c"
	publisherSpan  = "b7ad6b7169203331"
	publisher      = "00-" + publisherTrace + "-" + publisherSpan + "-01"
)

// traced gives a worker a tracer of its own.
func traced(t *testing.T, content bool) (*tracetest.InMemoryExporter, func(*Config)) {
	t.Helper()
	out := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(out))
	t.Cleanup(func() {
		if err := provider.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return out, func(c *Config) { c.Tracer, c.TraceContent = provider.Tracer("test"), content }
}

func byName(spans tracetest.SpanStubs) map[string][]tracetest.SpanStub {
	out := map[string][]tracetest.SpanStub{}
	for _, s := range spans {
		out[s.Name] = append(out[s.Name], s)
	}
	return out
}

func attr(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}

func TestOneTraceFromThePublisherThroughATakeOver(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		hold := make(chan struct{})
		b.script.Add(callWork, looptest.Reply{Text: "half an answer", Hold: hold}, looptest.Text("a whole answer"))
		s := newStepping()
		close(s.release)
		out1, tracer1 := traced(b.T, false)
		w1 := b.start("w1", func(c *Config) { s.agent()(c); tracer1(c) })
		b.publish("s1", subjects.KindPrompt, &session.Input{Message: loop.NewUserText("the prompt's own text"), TraceParent: publisher})
		b.await("s1", "tool_execution_end")
		b.watch("s1", func(ev loop.Event) bool { // of the second answer
			u, ok := ev.(*loop.MessageUpdate)
			return ok && u.Update.Type == loop.UpdateTextDelta
		})
		w1.die()
		close(hold)
		out2, tracer2 := traced(b.T, false)
		w2 := b.start("w2", func(c *Config) { s.agent()(c); tracer2(c) })
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		w2.stop()
		<-w2.done

		first, second := byName(out1.GetSpans()), byName(out2.GetSpans())
		for _, spans := range []tracetest.SpanStubs{out1.GetSpans(), out2.GetSpans()} {
			for _, span := range spans {
				if got := span.SpanContext.TraceID().String(); got != publisherTrace {
					t.Errorf("span %q is of trace %s", span.Name, got)
				}
				for _, a := range span.Attributes {
					if strings.Contains(a.Value.String(), "own text") {
						t.Errorf("span %q has content in %s, which nobody asked for", span.Name, a.Key)
					}
				}
			}
		}
		for name, n := range map[string]int{"claim": 1, "invoke_agent default": 1, "turn": 2, "chat scripted": 2, "execute_tool work": 1} {
			if len(first[name]) != n {
				t.Fatalf("the first worker has %d spans %q, want %d: %v", len(first[name]), name, n, first)
			}
		}
		for _, name := range []string{"claim", "invoke_agent default", "chat scripted"} {
			if len(second[name]) != 1 {
				t.Fatalf("the second worker has %d spans %q, want 1: %v", len(second[name]), name, second)
			}
		}
		run1, run2 := first["invoke_agent default"][0], second["invoke_agent default"][0]
		if got := run1.Parent.SpanID().String(); got != publisherSpan {
			t.Errorf("the run's parent is %s, want the publisher's span", got)
		}
		if run2.Parent.SpanID() != run1.SpanContext.SpanID() {
			t.Error("the resumed run's parent is not the former owner's run")
		}
		turn, chat, call := first["turn"][0], first["chat scripted"][0], first["execute_tool work"][0]
		if turn.Parent.SpanID() != run1.SpanContext.SpanID() || chat.Parent.SpanID() != turn.SpanContext.SpanID() || call.Parent.SpanID() != turn.SpanContext.SpanID() {
			t.Error("request and call are not below their turn, or it is not below its run")
		}
		for key, want := range map[string]string{
			"gen_ai.operation.name": "chat", "gen_ai.request.model": "scripted", "gen_ai.conversation.id": "s1",
		} {
			if got := attr(chat, key); got != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
		if attr(call, "gen_ai.tool.name") != "work" || attr(run2, "pi.attempt") != "2" || attr(run2, "pi.outcome") != "completed" {
			t.Errorf("attributes of call %v and run %v", call.Attributes, run2.Attributes)
		}
		b.wantTraceParents("s1")
	})
}

// wantTraceParents: each record of a run carries the publisher's trace.
func (b *bench) wantTraceParents(id string) {
	b.Helper()
	began := false
	for _, rec := range b.records(id) {
		began = began || len(rec.Inputs) > 0
		claims := rec.Events[0].EventType() == "session_claimed"
		if began && !claims && !strings.HasPrefix(rec.TraceParent, "00-"+publisherTrace+"-") {
			b.Errorf("record %d.%d %s has trace context %q", rec.Seq, rec.Sub, rec.Events[0].EventType(), rec.TraceParent)
		}
	}
}

func TestContentOnlyWhenAskedForAndMasked(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{callWork, looptest.Text("the answer's text")}})
	s := newStepping()
	close(s.release)
	out, tracer := traced(t, true)
	w := b.start("w1", func(c *Config) {
		s.agent()(c)
		tracer(c)
		c.Secrets = []string{"pl4nted-s3cret"}
	})
	b.say("s1", subjects.KindPrompt, "the prompt's text with pl4nted-s3cret")
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
	w.stop()
	<-w.done
	all := ""
	for _, span := range out.GetSpans() {
		for _, a := range span.Attributes {
			all += string(a.Key) + "=" + a.Value.String() + "\n"
		}
	}
	for _, want := range []string{
		`gen_ai.input.messages=[{"role":"user","parts":[{"type":"text","content":"the prompt's text`,
		`gen_ai.output.messages=[{"role":"assistant","parts":[{"type":"text","content":"the answer's text"}],"finish_reason":"stop"}]`,
		"gen_ai.tool.call.arguments=", "gen_ai.tool.call.result=done",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no attribute has %s:\n%s", want, all)
		}
	}
	if strings.Contains(all, "pl4nted-s3cret") {
		t.Errorf("a secret is in a span:\n%s", all)
	}
}

func TestWithoutATracerThePublishersContextGoesOn(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{looptest.Text("ok")}})
	b.start("w1", nil)
	b.publish("s1", subjects.KindPrompt, &session.Input{Message: loop.NewUserText("hi"), TraceParent: publisher})
	b.settle("s1", 1)
	b.wantTraceParents("s1")
}
