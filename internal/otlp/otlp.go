// Package otlp sends the spans of a process to an OpenTelemetry collector, if
// the standard variables name one:
//
//	OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 pi-worker
//
//	tracer, end, err := otlp.Start(ctx, "pi-worker", version, log)
//	defer end()
//
// What is sampled, batched and cut is the SDK's, by its variables. Only the
// transport is written here: the official exporters, the HTTP one included,
// link gRPC, whose golang.org/x/net/trace links html/template, and that makes
// the linker keep every exported method: 24 MiB (docs/decisions). The messages
// are those of OTLP's own module, and both protocols are spoken by net/http.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// endTime bounds how long the last spans may take to leave.
const endTime = 5 * time.Second

// Start gives the tracer that the variables ask for, nil if they ask for none.
// end sends what is left, and must be called; errors of sending are logged,
// never returned. It may be called once in a process.
func Start(ctx context.Context, service, version string, log *slog.Logger) (_ trace.Tracer, end func(), err error) {
	s, err := readSettings(os.Getenv)
	if s == nil || err != nil {
		return nil, func() {}, err
	}
	c, err := newClient(s)
	if err != nil {
		return nil, nil, err
	}
	exporter, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the exporter of traces: %w", err)
	}
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(service), semconv.ServiceVersion(version)),
		resource.WithHost(), resource.WithFromEnv(), // the environment has the last word
	)
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("sending traces", "error", err) }))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	log.Info("sending traces", "to", s.shown(), "protocol", s.protocol)
	end = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("sending the last traces", "error", err)
		}
	}
	return provider.Tracer("github.com/pi-worker/pi-worker", trace.WithSchemaURL(semconv.SchemaURL)), end, nil
}

// The protocols.
const (
	protocolHTTP = "http/protobuf"
	protocolGRPC = "grpc"
)

// settings are what the standard variables say. Those for traces come before
// those for all signals.
type settings struct {
	protocol  string
	endpoint  string // whole URL
	headers   map[string]string
	timeout   time.Duration
	gzip      bool
	ca        string // files
	cert, key string
}

// readSettings gives nil if nothing is to be sent.
func readSettings(env func(string) string) (*settings, error) {
	get := func(name string) string {
		if v := env("OTEL_EXPORTER_OTLP_TRACES_" + name); v != "" {
			return v
		}
		return env("OTEL_EXPORTER_OTLP_" + name)
	}
	exporter := env("OTEL_TRACES_EXPORTER")
	switch {
	case strings.EqualFold(env("OTEL_SDK_DISABLED"), "true"), exporter == "none", exporter == "" && get("ENDPOINT") == "":
		return nil, nil
	case exporter != "" && exporter != "otlp":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q; allowed are otlp and none", exporter)
	}
	s := &settings{protocol: get("PROTOCOL"), timeout: 10 * time.Second, ca: get("CERTIFICATE"), cert: get("CLIENT_CERTIFICATE"), key: get("CLIENT_KEY")}
	if s.protocol == "" {
		s.protocol = protocolHTTP
	}
	if s.protocol != protocolHTTP && s.protocol != protocolGRPC {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q; allowed are %s and %s", s.protocol, protocolHTTP, protocolGRPC)
	}
	var errs []error
	var err error
	if s.endpoint, err = endpoint(s.protocol, env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), env("OTEL_EXPORTER_OTLP_ENDPOINT"), get("INSECURE")); err != nil {
		errs = append(errs, err)
	}
	if s.headers, err = headers(get("HEADERS")); err != nil {
		errs = append(errs, err)
	}
	if ms := get("TIMEOUT"); ms != "" {
		if s.timeout, err = time.ParseDuration(ms + "ms"); err != nil || s.timeout <= 0 {
			errs = append(errs, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT is %q; it must be milliseconds", ms))
		}
	}
	switch c := get("COMPRESSION"); c {
	case "", "none":
	case "gzip":
		s.gzip = true
	default:
		errs = append(errs, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION is %q; allowed are gzip and none", c))
	}
	return s, errors.Join(append(errs, checkSDK(env)...)...)
}
