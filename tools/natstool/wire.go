package natstool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/loop"
)

// Keys of an endpoint's metadata. The first one makes it a tool.
const (
	MetaTool        = "pi.tool"        // the tool's name, [A-Za-z0-9_-]{1,64}
	MetaDescription = "pi.description" // for the model
	MetaParameters  = "pi.parameters"  // JSON Schema of the arguments; absent: an object of anything
	MetaLabel       = "pi.label"       // for people; absent: the name
	MetaIdempotent  = "pi.idempotent"  // "true": may be called again after an unknown outcome
	MetaSequential  = "pi.sequential"  // "true": no other call of the same answer beside it
	MetaTimeout     = "pi.timeout"     // longest time of a call, as "30s"; absent: the worker's
	MetaHeartbeat   = "pi.heartbeat"   // the service sends an update at least this often, as "5s"
)

// Headers of a call, and of its answers.
const (
	HeaderCall    = "Pi-Call"       // the model's id of the call
	HeaderKey     = "Pi-Call-Key"   // the same for each attempt of the call; absent without a session
	HeaderTool    = "Pi-Tool"       // the tool's name
	HeaderTimeout = "Pi-Timeout-Ms" // what is left until the deadline, in milliseconds
	HeaderCancel  = "Pi-Cancel"     // subject on which the caller says that it has lost interest
	HeaderUpdate  = "Pi-Update"     // answers only: this one is progress, not the result
)

// Failure is why a call has no result of the service's own. It is the member
// "error" of the result's details.
type Failure string

const (
	// FailureNoService: nobody listens on the tool's subject; nothing ran.
	FailureNoService Failure = "no_service"
	// FailureVanished: the service was called and is gone; outcome unknown.
	FailureVanished Failure = "vanished"
	// FailureDeadline: no result in time; the service was told to stop.
	FailureDeadline Failure = "deadline"
	// FailureService: the service answered with a NATS service error.
	FailureService Failure = "service_error"
	// FailureProtocol: the answer is not one.
	FailureProtocol Failure = "protocol"
	// FailureTooLarge: the arguments are over the server's max_payload;
	// nothing ran.
	FailureTooLarge Failure = "too_large"
)

// failureDetails are the details of an error result.
type failureDetails struct {
	Error   Failure `json:"error"`
	Service string  `json:"service"`
	Subject string  `json:"subject"`
	Code    string  `json:"code,omitempty"` // of a service error
}

// failed makes the error result of a call.
func (o *offer) failed(why Failure, code, format string, args ...any) loop.ToolResult {
	res := loop.TextResult(fmt.Sprintf(format, args...))
	res.IsError = true
	// Strings only: it cannot fail.
	res.Details, _ = json.Marshal(failureDetails{why, o.Service, o.Subject, code})
	return res
}

// toolName is what both OpenAI APIs take.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// anyObject is the schema of a tool that has none.
var anyObject = json.RawMessage(`{"type":"object"}`)

// offer is a tool as one endpoint offers it.
type offer struct {
	Service   string
	Version   string
	Subject   string
	Spec      loop.ToolSpec
	Timeout   time.Duration // 0: the caller's
	Heartbeat time.Duration // 0: the service promises none
}

// parseOffer reads an endpoint's metadata. It is nil without an error for
// endpoints that are no tools.
func parseOffer(service, version, subject string, meta map[string]string) (*offer, error) {
	name, ok := meta[MetaTool]
	if !ok {
		return nil, nil
	}
	o := &offer{Service: service, Version: version, Subject: subject, Spec: loop.ToolSpec{
		Name: name, Label: meta[MetaLabel], Description: meta[MetaDescription],
		Parameters: anyObject, Idempotent: meta[MetaIdempotent] == "true",
	}}
	if !toolName.MatchString(name) {
		return nil, fmt.Errorf("tool name %.80q is not 1 to 64 of A-Z a-z 0-9 _ -", name)
	}
	if meta[MetaSequential] == "true" {
		o.Spec.ExecutionMode = loop.ExecutionSequential
	}
	if p := meta[MetaParameters]; p != "" {
		var schema map[string]json.RawMessage
		if err := json.Unmarshal([]byte(p), &schema); err != nil {
			return nil, fmt.Errorf("%s of tool %s is no JSON object: %w", MetaParameters, name, err)
		}
		o.Spec.Parameters = json.RawMessage(p)
	}
	var err error
	if o.Timeout, err = metaDuration(meta, MetaTimeout); err != nil {
		return nil, err
	}
	o.Heartbeat, err = metaDuration(meta, MetaHeartbeat)
	return o, err
}

func metaDuration(meta map[string]string, key string) (time.Duration, error) {
	s := meta[key]
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s is %.40q, must be a duration such as 30s", key, s)
	}
	return d, nil
}

// metadata is what parseOffer reads.
func metadata(spec *loop.ToolSpec, timeout, heartbeat time.Duration) map[string]string {
	m := map[string]string{
		MetaTool: spec.Name, MetaDescription: spec.Description,
		MetaParameters: string(spec.Parameters), MetaHeartbeat: heartbeat.String(),
	}
	if spec.Label != "" {
		m[MetaLabel] = spec.Label
	}
	if spec.Idempotent {
		m[MetaIdempotent] = "true"
	}
	if spec.ExecutionMode == loop.ExecutionSequential {
		m[MetaSequential] = "true"
	}
	if timeout > 0 {
		m[MetaTimeout] = timeout.String()
	}
	return m
}

// errResult says that a payload that looks like JSON is no result.
var errResult = errors.New("answer looks like JSON but is no result")

// parseResult reads the payload of an answer: a result as JSON if it is an
// object with "content", any other text as it is.
func parseResult(data []byte) (loop.ToolResult, error) {
	trimmed := bytes.TrimSpace(data)
	var probe struct {
		Content json.RawMessage `json:"content"`
	}
	if len(trimmed) == 0 || trimmed[0] != '{' || json.Unmarshal(trimmed, &probe) != nil || probe.Content == nil {
		return loop.TextResult(string(bytes.ToValidUTF8(data, []byte("\uFFFD")))), nil
	}
	var text string
	if json.Unmarshal(probe.Content, &text) == nil {
		// A content that is one text, as scripts write it.
		var res struct {
			Details json.RawMessage `json:"details"`
			IsError bool            `json:"isError"`
		}
		if err := json.Unmarshal(trimmed, &res); err != nil {
			return loop.ToolResult{}, fmt.Errorf("%w: %w", errResult, err)
		}
		out := loop.TextResult(text)
		out.Details, out.IsError = res.Details, res.IsError
		return out, nil
	}
	var res loop.ToolResult
	if err := json.Unmarshal(trimmed, &res); err != nil {
		return loop.ToolResult{}, fmt.Errorf("%w: %w", errResult, err)
	}
	for _, b := range res.Content {
		switch b.(type) {
		case *loop.Text, *loop.Image:
		default:
			return loop.ToolResult{}, fmt.Errorf("%w: a block of type %q", errResult, b.BlockType())
		}
	}
	return res, nil
}

// timeoutOf reads the deadline of a call, 0 if the caller gave none.
func timeoutOf(h nats.Header) time.Duration {
	ms, err := strconv.ParseInt(h.Get(HeaderTimeout), 10, 64)
	if err != nil || ms <= 0 || ms > int64(1000*time.Hour/time.Millisecond) {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
