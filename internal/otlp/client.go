package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	attempts = 4
	// maxAnswer is how much of an answer is read.
	maxAnswer = 64 << 10
)

// client is otlptrace's Client over net/http.
type client struct {
	s    *settings
	http *http.Client
}

func newClient(s *settings) (*client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.IdleConnTimeout = 2, time.Minute
	if s.protocol == protocolGRPC {
		// gRPC is HTTP/2, also without TLS.
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP2(true)
		t.Protocols.SetUnencryptedHTTP2(true)
	}
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s has no certificate", s.ca)
		}
	}
	if s.cert != "" || s.key != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and _KEY: %w", err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return &client{s: s, http: &http.Client{Transport: t}}, nil
}

// Start does nothing: the first upload connects.
func (c *client) Start(context.Context) error { return nil }

// Stop closes what is idle.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans, again if the receiver asks for it.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// A request of the receiver's service has the same one field.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("encoding spans: %w", err)
	}
	if body, err = c.pack(body); err != nil {
		return fmt.Errorf("encoding spans: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.s.timeout)
	defer cancel()
	pause := time.Second
	for n := 1; ; n++ {
		err := c.send(ctx, body)
		again, ok := errors.AsType[*againError](err)
		if !ok || n == attempts {
			return err
		}
		t := time.NewTimer(max(pause, again.after))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
		pause *= 2
	}
}

// againError is an answer that asks for another attempt.
type againError struct {
	error
	after time.Duration
}

func (e *againError) Unwrap() error { return e.error }

// pack compresses, and for gRPC puts the frame around: one byte that says
// whether it is compressed, four for the length.
func (c *client) pack(body []byte) ([]byte, error) {
	var buf bytes.Buffer
	if c.s.protocol == protocolGRPC {
		buf.Write(make([]byte, 5))
	}
	if c.s.gzip {
		zw := gzip.NewWriter(&buf)
		if _, err := zw.Write(body); err != nil {
			return nil, err
		}
		if err := zw.Close(); err != nil {
			return nil, err
		}
	} else {
		buf.Write(body)
	}
	out := buf.Bytes()
	if c.s.protocol == protocolGRPC {
		if c.s.gzip {
			out[0] = 1
		}
		binary.BigEndian.PutUint32(out[1:], uint32(len(out)-5)) //nolint:gosec // batches are small
	}
	return out, nil
}

func (c *client) send(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.s.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "pi-worker OTLP")
	encoding := "Content-Encoding"
	if c.s.protocol == protocolGRPC {
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("TE", "trailers")
		encoding = "Grpc-Encoding"
	} else {
		req.Header.Set("Content-Type", "application/x-protobuf")
	}
	if c.s.gzip {
		req.Header.Set(encoding, "gzip")
	}
	for name, v := range c.s.headers {
		req.Header.Set(name, v)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return &againError{error: fmt.Errorf("%s does not answer: %w", c.s.shown(), err)}
	}
	defer func() { _ = resp.Body.Close() }()
	// gRPC's status is behind the body.
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return &againError{error: fmt.Errorf("reading the answer of %s: %w", c.s.shown(), err)}
	}
	return c.verdict(resp)
}

// verdict is nil for spans that were taken.
func (c *client) verdict(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // 0 if it is a date, or none
		return &againError{fmt.Errorf("%s says %s", c.s.shown(), resp.Status), time.Duration(after) * time.Second}
	case code < 200 || code > 299:
		return fmt.Errorf("%s says %s", c.s.shown(), resp.Status)
	case c.s.protocol != protocolGRPC:
		return nil
	}
	status := resp.Trailer.Get("Grpc-Status")
	if status == "" {
		status = resp.Header.Get("Grpc-Status") // an answer of nothing but headers
	}
	switch status {
	case "0":
		return nil
	case "1", "4", "10", "11", "14", "15": // those that OTLP calls retryable
		return &againError{error: fmt.Errorf("%s says gRPC status %s", c.s.shown(), status)}
	}
	return fmt.Errorf("%s says gRPC status %q", c.s.shown(), status)
}
