package worker

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// Attributes of spans that the conventions have no name for.
const (
	attrRun     = attribute.Key("pi.run")     // sequence of the prompt in the inbox
	attrEpoch   = attribute.Key("pi.epoch")   // of the ownership
	attrAttempt = attribute.Key("pi.attempt") // claims of the run, from 1
	attrOutcome = attribute.Key("pi.outcome")
	attrTurn    = attribute.Key("pi.turn") // from 1
)

// spans are the open ones of a run. Between workers they are held together by
// the trace context in the records' headers.
type spans struct {
	run trace.Span
	ctx context.Context // with the run's span

	mu   sync.Mutex // guards turn: tools begin side by side
	turn trace.Span // nil between turns
}

// begin opens the span of the run below the publisher's trace context, or the
// former owner's, and puts the run's own into the records that follow.
func (r *run) begin(parent string) {
	o := r.o
	carrier := propagation.MapCarrier{subjects.HeaderTraceParent: parent}
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier)
	attrs := trace.WithAttributes(
		semconv.GenAIConversationID(o.session), attrRun.Int64(int64(r.prompt.Seq)), //nolint:gosec // a sequence
		attrEpoch.String(o.events.Epoch().String()), attrAttempt.Int(r.attempts),
	)
	now := time.Now()
	since := o.claimed // the first run of an ownership begins with the claim
	if since.IsZero() {
		since = now
	}
	s := &r.spans
	s.ctx, s.run = o.w.cfg.Tracer.Start(ctx, "invoke_agent "+o.agentName, attrs, trace.WithTimestamp(since),
		trace.WithAttributes(
			semconv.GenAIOperationNameInvokeAgent, semconv.GenAIAgentName(o.agentName),
			semconv.GenAIRequestModel(r.agent.Model.Info().ID),
		))
	if !o.claimed.IsZero() {
		// Nobody knew then whose trace it belongs to.
		_, claim := o.w.cfg.Tracer.Start(s.ctx, "claim", attrs, trace.WithTimestamp(since), trace.WithSpanKind(trace.SpanKindConsumer))
		claim.End(trace.WithTimestamp(now))
		o.claimed = time.Time{}
	}
	if sc := s.run.SpanContext(); sc.IsValid() {
		out := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(s.ctx, out)
		parent = out[subjects.HeaderTraceParent]
		r.log = r.log.With("trace", sc.TraceID().String())
	}
	o.events.SetTraceParent(parent)
}

// with gives ctx the run's span.
func (s *spans) with(ctx context.Context) context.Context {
	if s.run == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.run)
}

// current is the open turn's span, or the run's.
func (s *spans) current(ctx context.Context) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.turn)
}

func (s *spans) startTurn(r *run) {
	_, span := r.o.w.cfg.Tracer.Start(s.ctx, "turn", trace.WithAttributes(attrTurn.Int(r.turn+1)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = span
}

func (s *spans) endTurn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn != nil {
		s.turn.End()
		s.turn = nil
	}
}

// retry notes on the turn that its request is made again.
func (s *spans) retry(ev *loop.AutoRetryStart) {
	trace.SpanFromContext(s.current(s.ctx)).AddEvent("retry", trace.WithAttributes(
		semconv.ErrorTypeKey.String(cmp.Or(ev.Class, "other")), attribute.Int("pi.retry", ev.Attempt),
		attribute.Int64("pi.retry.delay_ms", ev.Delay.Milliseconds()),
	))
}

// endRun closes what is open. err is why the run goes on elsewhere.
func (s *spans) endRun(r *run, err error) {
	s.endTurn()
	if s.run == nil {
		return
	}
	switch {
	case r.settled != "":
		s.run.SetAttributes(attrOutcome.String(string(r.settled)))
		u := r.meter.used()
		s.run.SetAttributes(usageOf(u)...)
		if r.settled == loop.OutcomeFailed || r.settled == loop.OutcomeDeadLetter {
			s.run.SetStatus(codes.Error, string(r.settled))
		}
	case err != nil:
		s.run.SetStatus(codes.Error, r.mask.text(err.Error()))
	}
	s.run.End()
}

func usageOf(u loop.Usage) []attribute.KeyValue {
	return []attribute.KeyValue{
		// The conventions count what came from a cache as input.
		semconv.GenAIUsageInputTokensKey.Int64(u.Input + u.CacheRead + u.CacheWrite),
		semconv.GenAIUsageOutputTokensKey.Int64(u.Output),
		semconv.GenAIUsageCacheReadInputTokensKey.Int64(u.CacheRead),
		semconv.GenAIUsageCacheCreationInputTokensKey.Int64(u.CacheWrite),
		semconv.GenAIUsageReasoningOutputTokensKey.Int64(u.Reasoning),
	}
}

// modelSpan is one request's.
type modelSpan struct {
	trace.Span
	run *run
}

func (s *spans) model(ctx context.Context, r *run, info loop.ModelInfo, req *loop.Request) (context.Context, modelSpan) {
	ctx, span := r.o.w.cfg.Tracer.Start(s.current(ctx), "chat "+info.ID, trace.WithSpanKind(trace.SpanKindClient))
	if !span.IsRecording() {
		return ctx, modelSpan{span, r}
	}
	span.SetAttributes(
		semconv.GenAIOperationNameChat, semconv.GenAIProviderNameKey.String(cmp.Or(info.Provider, "openai")),
		semconv.GenAIRequestModel(info.ID), semconv.GenAIConversationID(r.o.session), semconv.GenAIRequestStream(true),
	)
	if n := req.Options.MaxTokens; n > 0 {
		span.SetAttributes(semconv.GenAIRequestMaxTokensKey.Int64(n))
	}
	if t := req.Options.Temperature; t != nil {
		span.SetAttributes(semconv.GenAIRequestTemperature(*t))
	}
	if r.o.w.cfg.TraceContent {
		span.SetAttributes(
			semconv.GenAIInputMessagesKey.String(r.mask.text(contentOf(req.Messages...))),
			semconv.GenAISystemInstructionsKey.String(r.mask.text(instructions(req.SystemPrompt))),
		)
	}
	return ctx, modelSpan{span, r}
}

func (s modelSpan) end(c *ModelCall, a *loop.AssistantMessage) {
	defer s.End()
	if !s.IsRecording() {
		return
	}
	if c.FirstByte > 0 {
		s.SetAttributes(semconv.GenAIResponseTimeToFirstChunk(c.FirstByte.Seconds()))
	}
	if c.Result != "ok" {
		s.SetAttributes(semconv.ErrorTypeKey.String(cmp.Or(c.Result, "paused")))
	}
	if a == nil {
		return
	}
	if c.Result != "ok" && c.Result != "aborted" {
		s.SetStatus(codes.Error, s.run.mask.text(a.ErrorMessage))
	}
	s.SetAttributes(usageOf(a.Usage)...)
	s.SetAttributes(semconv.GenAIResponseFinishReasons(string(a.StopReason)))
	if a.ResponseID != "" {
		s.SetAttributes(semconv.GenAIResponseID(a.ResponseID))
	}
	if a.ResponseModel != "" {
		s.SetAttributes(semconv.GenAIResponseModel(a.ResponseModel))
	}
	if s.run.o.w.cfg.TraceContent {
		s.SetAttributes(semconv.GenAIOutputMessagesKey.String(s.run.mask.text(contentOf(a))))
	}
}

// toolSpan is one call's.
type toolSpan struct {
	trace.Span
	run *run
}

func (s *spans) tool(ctx context.Context, r *run, tc loop.Call) (context.Context, toolSpan) {
	ctx, span := r.o.w.cfg.Tracer.Start(s.current(ctx), "execute_tool "+tc.Name, trace.WithAttributes(
		semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(tc.Name), semconv.GenAIToolCallID(tc.ID),
		semconv.GenAIToolType("function"), semconv.GenAIConversationID(r.o.session),
	))
	if r.o.w.cfg.TraceContent {
		span.SetAttributes(semconv.GenAIToolCallArgumentsKey.String(r.mask.text(string(tc.Args))))
	}
	return ctx, toolSpan{span, r}
}

func (s toolSpan) end(c *ToolCall, res loop.ToolResult, err error) {
	defer s.End()
	switch {
	case err != nil:
		s.SetStatus(codes.Error, s.run.mask.text(err.Error()))
		s.SetAttributes(semconv.ErrorTypeKey.String(fmt.Sprintf("%T", err)))
	case c.Failed:
		s.SetStatus(codes.Error, "the result is an error")
		s.SetAttributes(semconv.ErrorTypeKey.String("tool_error"))
	}
	if s.run.o.w.cfg.TraceContent {
		s.SetAttributes(semconv.GenAIToolCallResultKey.String(s.run.mask.text(textOf(res.Content))))
	}
}
