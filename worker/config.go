package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// Errors that [Config.Agent] returns for prompts that can never run here. Such
// a prompt is dead-lettered; after any other error it settles as failed.
var (
	ErrUnknownAgent = errors.New("worker: unknown agent")
	ErrNotAllowed   = errors.New("worker: prompt asks for more than its agent allows")
)

// Config is what a [Worker] needs.
type Config struct {
	// NATS is the connection, which the worker neither opens nor closes.
	NATS *nats.Conn
	// Names has the prefix of all subjects.
	Names subjects.Names
	// ID names the worker in the log, one subject token; "" makes one from the
	// host's name.
	ID string
	// Version is shown by ps.
	Version string
	// Sessions are at work at once; 0 means 64. Those whose model asks to wait
	// do not count, up to eight for each.
	Sessions int
	// Agent gives what a prompt runs with. It is called for each run, also
	// when one is resumed.
	Agent func(context.Context, AgentRequest) (*Agent, error)
	// Limiter of the agents' models; which keys rest is shared with all
	// workers. nil shares nothing.
	Limiter Limiter
	// Left is called when the worker has given a session up, after its last
	// run there; nil is not called. It must not block.
	Left func(session string)
	// Grace is how long turns may go on after Run's context ended; 0 hands
	// over at once.
	Grace time.Duration
	// AckWait is the life of a lease without a beat, as the bell's consumer
	// has it; 0 means 5 s.
	AckWait time.Duration
	// MaxAttempts are the claims of one run without a completed turn before it
	// is dead-lettered; 0 means 5.
	MaxAttempts int
	// WaitingEvery is the longest silence in a run's log; 0 means 15 s.
	WaitingEvery time.Duration
	// EphemeralTTL is the life of records with nothing but deltas; 0 means
	// 1 h, negative keeps them.
	EphemeralTTL time.Duration
	// SessionRecords is how many durable records of a session are kept when a
	// run has ended, whole prompts; 0 keeps all.
	SessionRecords uint64
	// Ensure says how streams are created again that somebody deleted; nil
	// means the defaults.
	Ensure *subjects.EnsureOptions
	// Secrets never appear in events: their values are replaced in tool
	// results and error texts. Values under 6 bytes are ignored.
	Secrets []string
	// Hooks are told what the worker does, for metrics.
	Hooks Hooks
	// Tracer opens spans, nil none: from the publisher's trace context on, one
	// for the claim, the run, each turn, request to the model and tool call.
	Tracer trace.Tracer
	// TraceContent puts messages, arguments and results into the spans.
	TraceContent bool
	// Logger; nil discards.
	Logger *slog.Logger
}

// AgentRequest says what a prompt asked for.
type AgentRequest struct {
	Session       string
	Name          string // of the agent, "" is the default one
	Model         string // "" is the agent's
	ThinkingLevel string // "" is the agent's
	// Extra are all other options of the prompt, by name.
	Extra map[string]json.RawMessage

	// Epoch names this ownership of the session; nobody else's has its name.
	Epoch string
	// Saved is the last snapshot of the session's files in the log, as it was
	// when this ownership began; nil without one.
	Saved *loop.WorkspaceSaved
	// ClaimsSince are the epochs between it and this one.
	ClaimsSince []string
	// Append queues an event for the session's log. To be called until the run
	// ends, from any goroutine: by tools during their calls, and by Watch.
	Append func(context.Context, loop.Event) error
	// Flush waits until the broker has what was appended.
	Flush func(context.Context) error
}

// QueueMode says how many waiting inputs one poll delivers.
type QueueMode string

const (
	OneAtATime QueueMode = "one-at-a-time" // also the zero value's meaning
	All        QueueMode = "all"
)

// Agent is what a prompt runs with.
type Agent struct {
	Name         string // "" means default
	Model        loop.Model
	SystemPrompt string
	// Tools nil sends no list of tools at all.
	Tools         []loop.Tool
	ToolExecution loop.ExecutionMode
	Options       loop.ModelOptions
	// APIKey is asked before each request; nil means the model's own.
	APIKey func(ctx context.Context, provider string) (string, error)
	// Retry repeats failed requests; the zero value never does.
	Retry loop.RetryPolicy
	// Compaction summarises a context that has become too long; nil never does.
	Compaction *loop.Compaction
	Limits     Limits
	// Approvals hold calls until a person allows them; the zero value holds
	// none.
	Approvals Approvals
	Steering  QueueMode
	FollowUp  QueueMode
	// Secrets are added to the worker's, for this run.
	Secrets []string
	// Background runs beside the run, until its context ends before the run
	// settles; nil does not.
	Background func(context.Context)
	// Close is called after the run; nil is not.
	Close func() error
}

func (c *Config) setDefaults() error {
	if c.NATS == nil {
		return errors.New("worker: Config.NATS is nil")
	}
	if c.Agent == nil {
		return errors.New("worker: Config.Agent is nil")
	}
	if c.ID == "" {
		c.ID = newID()
	}
	if _, err := subjects.ParseSession(c.ID); err != nil {
		return fmt.Errorf("worker: Config.ID %q is not one subject token", c.ID)
	}
	if c.Sessions <= 0 {
		c.Sessions = 64
	}
	if c.AckWait <= 0 {
		c.AckWait = 5 * time.Second
	}
	if c.MaxAttempts <= 0 {
		c.MaxAttempts = 5
	}
	if c.WaitingEvery <= 0 {
		c.WaitingEvery = 15 * time.Second
	}
	if c.Tracer == nil {
		c.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// newID is the host's name, as far as a subject allows, and something that no
// earlier process on this host had.
func newID() string {
	host, _ := os.Hostname()
	host = strings.Map(func(r rune) rune {
		if r < 128 && (r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') {
			return r
		}
		return '-'
	}, host)
	if len(host) > 40 {
		host = host[:40]
	}
	id := nuid.Next()
	return strings.Trim(host+"-"+id[len(id)-6:], "-")
}

func (c *Config) storeOptions() *session.Options {
	ensure := c.Ensure
	if ensure == nil {
		ensure = &subjects.EnsureOptions{AckWait: c.AckWait}
	}
	return &session.Options{
		EphemeralTTL: c.EphemeralTTL, SessionRecords: c.SessionRecords, Ensure: ensure, Hooks: c.Hooks.Log, Logger: c.Logger,
	}
}
