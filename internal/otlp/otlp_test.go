package otlp

import (
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // the receiver takes it
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a collector for both protocols.
type receiver struct {
	collector.UnimplementedTraceServiceServer

	mu      sync.Mutex // guards what is below
	names   []string   // of spans
	service string
	auth    string
	refuse  int // so many requests are sent back, to come again
}

func (r *receiver) take(spans []*tracepb.ResourceSpans, auth string) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse > 0 {
		r.refuse--
		return true
	}
	r.auth = auth
	for _, rs := range spans {
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				r.service = a.Value.GetStringValue()
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				r.names = append(r.names, s.Name)
			}
		}
	}
	return false
}

func (r *receiver) Export(ctx context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if r.take(req.ResourceSpans, strings.Join(md.Get("authorization"), ",")) {
		return nil, status.Error(codes.Unavailable, "not now")
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		zr, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = zr
	}
	b, err := io.ReadAll(body)
	var got collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(b, &got)
	}
	if err != nil || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	if r.take(got.ResourceSpans, req.Header.Get("Authorization")) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (r *receiver) startGRPC(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, r)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := srv.Serve(l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { srv.Stop(); wg.Wait() })
	return l.Addr().String()
}

// unset keeps the machine's own variables away.
func unset(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_SERVICE_NAME",
		"OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER",
	} {
		t.Setenv(name, "")
	}
}

// Both protocols are spoken, packed or not, and a receiver that is busy is
// asked again. gRPC's is the real one.
func TestSpansReachTheReceiver(t *testing.T) {
	for _, c := range []struct {
		name, protocol, compression string
		refuse                      int
	}{
		{"http", "http/protobuf", "", 0},
		{"http packed, later", "http/protobuf", "gzip", 1},
		{"grpc", "grpc", "", 0},
		{"grpc packed, later", "grpc", "gzip", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			unset(t)
			r := &receiver{refuse: c.refuse}
			endpoint := "http://" + r.startGRPC(t)
			if c.protocol != "grpc" {
				srv := httptest.NewServer(r)
				t.Cleanup(srv.Close)
				endpoint = srv.URL
			}
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", c.protocol)
			t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", c.compression)
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20x")
			t.Setenv("OTEL_SERVICE_NAME", "my-worker")
			tracer, end, err := Start(t.Context(), "pi-worker", "v1", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			_, span := tracer.Start(t.Context(), "a span")
			span.End()
			end()
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.names) != 1 || r.names[0] != "a span" || r.service != "my-worker" || r.auth != "Bearer x" {
				t.Errorf("got spans %q of %q with %q", r.names, r.service, r.auth)
			}
		})
	}
}

func TestNothingIsSentUnlessConfigured(t *testing.T) {
	for _, env := range []map[string]string{
		{},
		{"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
	} {
		unset(t)
		for name, v := range env {
			t.Setenv(name, v)
		}
		tracer, end, err := Start(t.Context(), "x", "v", slog.New(slog.DiscardHandler))
		if tracer != nil || err != nil {
			t.Errorf("%v: got %v, %v", env, tracer, err)
		}
		end()
	}
}

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, "http://localhost:4318/v1/traces"},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c:1/base/"}, "https://c:1/base/v1/traces"},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c:1/as/it/is"}, "https://c:1/as/it/is"},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http://localhost:4317" + pathGRPC},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "https://c:4317" + pathGRPC},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_INSECURE": "true"}, "http://c:4317" + pathGRPC},
	} {
		s, err := readSettings(func(name string) string { return c.env[name] })
		if err != nil || s.endpoint != c.want {
			t.Errorf("%v: got %+v, %v", c.env, s, err)
		}
	}
}

func TestWrongVariablesGiveOneSentenceWithoutSecrets(t *testing.T) {
	const secret = "pl4nted-s3cret"
	for _, c := range []struct{ name, value, says string }{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "u:" + secret + "@host", "OTEL_EXPORTER_OTLP_ENDPOINT must be a URL"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://" + secret, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT must be a URL"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "allowed are http/protobuf and grpc"},
		{"OTEL_EXPORTER_OTLP_HEADERS", secret, "name=value"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "ten", "milliseconds"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "gzip"},
		{"OTEL_TRACES_EXPORTER", "zipkin", "otlp and none"},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "-1", "from 1 to"},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "999999999999", "from 1 to"},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1", "from 1 to"},
		{"OTEL_BSP_SCHEDULE_DELAY", "soon", "whole number"},
		{"OTEL_BSP_EXPORT_TIMEOUT", "0", "from 1 to"},
		{"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "long", "whole number"},
		{"OTEL_SPAN_EVENT_COUNT_LIMIT", "-7", "from -1 to"},
		{"OTEL_TRACES_SAMPLER", "sometimes", "parentbased_traceidratio"},
	} {
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", c.name: c.value}
		_, err := readSettings(func(name string) string { return env[name] })
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

func TestSamplersRatioIsChecked(t *testing.T) {
	for ratio, ok := range map[string]bool{"": true, "0.25": true, "1": true, "7": false, "-1": false, "NaN": false, "half": false} {
		env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": ratio}
		if _, err := readSettings(func(name string) string { return env[name] }); (err == nil) != ok {
			t.Errorf("%q: got %v", ratio, err)
		}
	}
}

func TestAReceiverThatIsAwayHoldsNothing(t *testing.T) {
	unset(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	tracer, end, err := Start(t.Context(), "x", "v", slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for range 10_000 {
		_, span := tracer.Start(t.Context(), "x")
		span.End()
	}
	if d := time.Since(begun); d > time.Minute {
		t.Errorf("10,000 spans took %s", d)
	}
	end()
	if !strings.Contains(out.String(), "traces") {
		t.Errorf("nothing was logged:\n%s", out.String())
	}
}
