package openai

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// Classes of [loop.ModelError].
const (
	classNetwork     = "network"
	classFirstByte   = "timeout_first_byte"
	classSilence     = "timeout_silence"
	classTotal       = "timeout_total"
	classRateLimited = "rate_limited"
	classOverloaded  = "overloaded"
	classServer      = "server"
	classClient      = "client"
	classTruncated   = "stream_truncated"
	classStream      = "stream_error"
	classBadResponse = "bad_response"
	classFilter      = "content_filter"
	classAuth        = "auth"
	classOverflow    = "context_overflow"
)

// maxErrorText bounds a provider's text in an error, in bytes.
const maxErrorText = 16 << 10

// statusError is an answer with an HTTP error status.
func statusError(res *http.Response, body []byte) *loop.ModelError {
	e := &loop.ModelError{Status: res.StatusCode}
	text, raw := errorText(body)
	if text == "" {
		text = "status code (no body)"
	}
	e.Message = strconv.Itoa(res.StatusCode) + " " + clip(text)
	e.Raw = raw
	e.Class, e.Retryable = statusClass(res.StatusCode)
	if overflows(text, raw) {
		e.Class, e.Retryable = classOverflow, false
	}
	switch res.Header.Get("X-Should-Retry") {
	case "true":
		e.Retryable = true
	case "false":
		e.Retryable = false
	}
	e.RetryAfter = retryAfter(res.Header, time.Now())
	return e
}

func statusClass(status int) (class string, retryable bool) {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return classAuth, false
	case status == http.StatusRequestTimeout, status == http.StatusConflict:
		return classServer, true
	case status == http.StatusTooManyRequests:
		return classRateLimited, true
	case status == http.StatusServiceUnavailable, status == 529:
		return classOverloaded, true
	case status >= 500:
		return classServer, true
	}
	return classClient, false
}

// errorText is the text of an error body, and the body if it is JSON.
func errorText(body []byte) (string, json.RawMessage) {
	trimmed := strings.TrimSpace(string(body))
	if !json.Valid([]byte(trimmed)) {
		return trimmed, nil
	}
	raw := json.RawMessage(trimmed)
	if e := field(raw, "error"); !emptyError(e) {
		return errorObjectText(e), raw
	}
	return trimmed, raw
}

// emptyError reports whether the value of an "error" field says nothing.
func emptyError(raw []byte) bool {
	if len(raw) == 0 {
		return true
	}
	switch s := strings.TrimSpace(string(raw)); s {
	case "", "null", "false", `""`, "{}", "[]", "0":
		return true
	default:
		return isObject(raw) && string(compact(raw)) == "{}"
	}
}

// errorObjectText is the text of an error object, or string: its message, else
// all of it, and what a router says of the provider behind it.
func errorObjectText(raw []byte) string {
	text := string(compact(raw))
	if msg := field(raw, "message"); len(msg) > 0 && !isNull(msg) {
		if s := str(msg); s != "" {
			text = s
		} else if _, ok := inside(msg); !ok {
			text = string(compact(msg))
		}
	}
	if behind := str(get(raw, "metadata", "raw")); behind != "" {
		text += "\n" + behind
	}
	return text
}

// streamError is an error object inside a stream, or in a body with status 200.
func streamError(raw []byte) *loop.ModelError {
	e := &loop.ModelError{Class: classStream, Raw: clone(raw), Message: clip(errorObjectText(raw))}
	code, kind := str(field(raw, "code")), str(field(raw, "type"))
	if n := integer(field(raw, "code")); n >= 400 && n < 600 {
		e.Status = int(n)
		e.Class, e.Retryable = statusClass(e.Status)
	} else {
		e.Class, e.Retryable = codeClass(code + " " + kind)
	}
	if overflows(e.Message, raw) {
		e.Class, e.Retryable = classOverflow, false
	}
	return e
}

// codeClass judges an error by its code and type.
func codeClass(code string) (class string, retryable bool) {
	for _, c := range []struct {
		part, class string
		retryable   bool
	}{
		{"insufficient_quota", classRateLimited, false},
		{"rate_limit", classRateLimited, true},
		{"overloaded", classOverloaded, true},
		{"authentication", classAuth, false},
		{"invalid_api_key", classAuth, false},
		{"permission", classAuth, false},
		{"invalid_request", classClient, false},
		{"invalid_prompt", classClient, false},
		{"content_filter", classFilter, false},
		{"server_error", classServer, true},
	} {
		if strings.Contains(code, c.part) {
			return c.class, c.retryable
		}
	}
	return classStream, true
}

// overflowTexts are what servers say when the context is too long.
var overflowTexts = []string{
	"context_length_exceeded",
	"maximum context length",          // OpenAI, OpenRouter, DeepSeek
	"exceeds the context window",      // OpenAI Responses
	"context window exceeds",          // MiniMax
	"exceeds the available context",   // llama.cpp
	"exceed_context_size",             // llama.cpp
	"exceeds the maximum number of",   // Gemini: "input token count … exceeds the maximum number of tokens"
	"longer than the model's context", // vLLM
	"is longer than the maximum model length",
	"maximum prompt length is",   // xAI
	"reduce the length of the",   // Groq, OpenAI
	"exceeds the limit of",       // Copilot
	"greater than the context",   // LM Studio
	"exceeded model token limit", // Moonshot
	"too large for model with",   // Mistral
	"prompt too long",            // Ollama
	"prompt is too long",         // Anthropic behind a proxy
	"input is too long",          // Bedrock behind a proxy
}

// overflows reports whether an error says that the context is too long.
func overflows(text string, raw []byte) bool {
	text = strings.ToLower(text)
	if str(get(raw, "error", "code")) == "context_length_exceeded" || str(field(raw, "code")) == "context_length_exceeded" {
		return true
	}
	for _, known := range overflowTexts {
		if strings.Contains(text, known) {
			return true
		}
	}
	return false
}

// retryAfter is the wait that a provider asks for, 0 for none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return seconds(ms / 1000)
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 {
		return seconds(s)
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// seconds is a duration, at most a year.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, 365*24*3600) * float64(time.Second))
}

// clip bounds a provider's text.
func clip(s string) string {
	if len(s) <= maxErrorText {
		return s
	}
	return strings.ToValidUTF8(s[:maxErrorText], "") + "…"
}

func clone(raw []byte) json.RawMessage { return append(json.RawMessage(nil), raw...) }

// mask removes the key from what a provider said, in case it repeats it.
func mask(e *loop.ModelError, key string) {
	if len(key) < 6 {
		return // too short to be a secret, and part of many words
	}
	e.Message = strings.ReplaceAll(e.Message, key, "***")
	if len(e.Raw) > 0 && strings.Contains(string(e.Raw), key) {
		e.Raw = json.RawMessage(strings.ReplaceAll(string(e.Raw), key, "***"))
	}
	if e.Err != nil && strings.Contains(e.Err.Error(), key) {
		e.Err = nil
	}
}
