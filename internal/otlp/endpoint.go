package otlp

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Paths of the receivers.
const (
	pathHTTP = "/v1/traces"
	pathGRPC = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
)

// endpoint is the whole URL: that for traces is used as it is, the one for all
// signals is a base. gRPC knows host and port only, with or without a scheme.
func endpoint(protocol, traces, base, insecure string) (string, error) {
	text, name := traces, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	if text == "" {
		text, name = base, "OTEL_EXPORTER_OTLP_ENDPOINT"
	}
	if text == "" {
		text = "http://localhost:4318"
		if protocol == protocolGRPC {
			text = "http://localhost:4317"
		}
	}
	if protocol == protocolGRPC && !strings.Contains(text, "://") {
		scheme := "https://"
		if strings.EqualFold(insecure, "true") {
			scheme = "http://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// Not the text: it may have a password.
		return "", errors.New(name + " must be a URL such as http://localhost:4318")
	}
	switch {
	case protocol == protocolGRPC:
		u.Path = pathGRPC
	case traces == "":
		u.Path = strings.TrimSuffix(u.Path, "/") + pathHTTP
	}
	return u.String(), nil
}

// shown is the endpoint for the log.
func (s *settings) shown() string {
	u, err := url.Parse(s.endpoint)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// headers reads key=value pairs, joined by commas, values escaped as in URLs.
func headers(text string) (map[string]string, error) {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || err != nil || name == "" {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS must be name=value, joined by commas, values escaped as in URLs")
		}
		out[name] = value
	}
	return out, nil
}
