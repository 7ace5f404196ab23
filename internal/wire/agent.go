package wire

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/secret"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/openai"
	"github.com/pi-worker/pi-worker/worker"
)

// Agents makes the agents of the configured profiles. Close it after the
// worker has ended.
type Agents struct {
	cfg *config.Config
	log *slog.Logger

	mask    *secret.Mask   // told of keys that are read
	locks   locks          // of the temporary workspaces
	sources sources        // set by Start
	store   *session.Store // set by Start
	limiter openai.Limiter

	mu     sync.Mutex // guards what is below
	models map[modelKey]*openai.Model
	temp   map[string]string // temporary workspaces by session
	files  map[string]*files // those in mode snapshot
	// outputs are those of sessions that are owned here.
	outputs map[string]*outputs
	// watchers are the runs that may use tools of others.
	watchers map[*watcher]bool
}

// modelKey tells models apart.
type modelKey struct {
	agent, model string
	reasoning    bool
}

// NewAgents keeps nothing open until the first prompt.
func NewAgents(cfg *config.Config, log *slog.Logger) *Agents {
	return &Agents{
		cfg: cfg, log: log, mask: secret.New(Secrets(cfg)...),
		models: map[modelKey]*openai.Model{}, temp: map[string]string{}, files: map[string]*files{},
		outputs: map[string]*outputs{}, watchers: map[*watcher]bool{},
	}
}

// Masking tells mask, which has the configuration's [Secrets], of every key that
// is read, and gives a. Before the first prompt.
func (a *Agents) Masking(mask *secret.Mask) *Agents {
	a.mask = mask
	return a
}

// apiKey reads a profile's key.
func (a *Agents) apiKey(p config.Profile) (string, error) {
	key, err := p.APIKey()
	if key != "" {
		a.mask.Add(key.Reveal())
	}
	return key.Reveal(), err
}

// Close ends MCP servers and closes the models' idle connections.
func (a *Agents) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	errs := a.sources.close()
	for _, m := range a.models {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// Worker is the configured worker's Config.
func (a *Agents) Worker(nc *nats.Conn, version string) worker.Config {
	a.warnOfBash()
	w := a.cfg.Worker
	ttl := a.cfg.EphemeralTTL
	if ttl == 0 {
		ttl = -1 // configured as kept
	}
	return worker.Config{
		NATS: nc, Names: Names(a.cfg), ID: w.ID, Version: version,
		Sessions: w.Sessions, Agent: a.Agent, Limiter: &a.limiter, Left: a.left, Grace: w.Grace, AckWait: a.cfg.NATS.AckWait,
		MaxAttempts: w.MaxAttempts, EphemeralTTL: ttl, SessionRecords: uint64(a.cfg.Retention.SessionRecords),
		Ensure: EnsureOptions(a.cfg), Logger: a.log, Secrets: Secrets(a.cfg),
		TraceContent: a.cfg.Trace.Content,
	}
}

// Agent is worker.Config's Agent.
func (a *Agents) Agent(ctx context.Context, req worker.AgentRequest) (*worker.Agent, error) {
	p, err := a.profile(req)
	switch {
	case errors.Is(err, config.ErrUnknownAgent):
		return nil, fmt.Errorf("%w: %w", worker.ErrUnknownAgent, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", worker.ErrNotAllowed, err)
	}
	key, err := a.apiKey(p)
	if err != nil {
		return nil, err
	}
	model, err := a.model(p)
	if err != nil {
		return nil, err
	}
	tools, err := a.tools(ctx, p, req)
	if err != nil {
		return nil, err
	}
	approvals, err := approvals(p)
	if err != nil {
		return nil, errors.Join(err, tools.close())
	}
	return &worker.Agent{
		Name: p.Name, Model: model, SystemPrompt: p.SystemPrompt,
		Tools: tools.list, ToolExecution: loop.ExecutionMode(p.ToolExecution),
		Options: loop.ModelOptions{
			APIKey: key, Temperature: p.Temperature, MaxTokens: p.MaxTokens,
			Reasoning: reasoning(p.Reasoning), SessionID: req.Session,
		},
		// A key from a file may be replaced while a long run goes on.
		APIKey: func(context.Context, string) (string, error) { return a.apiKey(p) },
		Retry: loop.RetryPolicy{
			MaxRetries: p.Retry.Max, BaseDelay: p.Retry.BaseDelay, MaxDelay: p.Retry.MaxDelay,
			MaxRetryAfter: p.Retry.MaxRetryAfter, MidStream: p.Retry.MidStream,
		},
		Compaction: compaction(p),
		Limits:     limits(p.Limits),
		Approvals:  approvals,
		Steering:   worker.QueueMode(a.cfg.Worker.SteeringMode),
		FollowUp:   worker.QueueMode(a.cfg.Worker.FollowUpMode),
		Secrets:    []string{key},
		Background: tools.background,
		Close:      tools.close,
	}, nil
}

// promptOptions are the options of a prompt besides agent, model and level.
type promptOptions struct {
	MaxTokens int64    `json:"maxTokens"`
	Tools     []string `json:"tools"`
	Limits    *struct {
		Turns          int     `json:"turns"`
		ToolCalls      int     `json:"toolCalls"`
		IdenticalCalls int     `json:"identicalCalls"`
		WallTime       string  `json:"wallTime"`
		Tokens         int64   `json:"tokens"`
		Cost           float64 `json:"cost"`
		TreeTokens     int64   `json:"treeTokens"`
		TreeCost       float64 `json:"treeCost"`
	} `json:"limits"`
}

// profile is the one that the prompt names, narrowed to what it asks for.
func (a *Agents) profile(req worker.AgentRequest) (config.Profile, error) {
	p, err := a.cfg.Profile(req.Name)
	if err != nil {
		return p, err
	}
	var o promptOptions
	raw, err := json.Marshal(req.Extra)
	if err == nil {
		err = json.Unmarshal(raw, &o)
	}
	if err != nil {
		return p, fmt.Errorf("reading the prompt's options: %w", err)
	}
	n := config.Narrowing{Model: req.Model, Reasoning: req.ThinkingLevel, MaxTokens: o.MaxTokens, Tools: o.Tools}
	if l := o.Limits; l != nil {
		n.Limits = config.Limits{
			Turns: l.Turns, ToolCalls: l.ToolCalls, IdenticalCalls: l.IdenticalCalls, Tokens: l.Tokens, Cost: l.Cost,
			TreeTokens: l.TreeTokens, TreeCost: l.TreeCost,
		}
		if l.WallTime != "" {
			if n.Limits.WallTime, err = time.ParseDuration(l.WallTime); err != nil {
				return p, fmt.Errorf("reading the prompt's option limits.wallTime: %w", err)
			}
		}
	}
	if name := belowZero(o.MaxTokens, n.Limits); name != "" {
		return p, fmt.Errorf("reading the prompt's option %s: it is below 0; 0 or nothing asks for nothing", name)
	}
	return p.Narrow(n)
}

// belowZero names an option of a prompt that is less than nothing. Somebody's
// rest of a budget may be, and taking that for no wish would be all that the
// profile allows.
func belowZero(maxTokens int64, l config.Limits) string {
	switch {
	case maxTokens < 0:
		return "maxTokens"
	case l.Turns < 0:
		return "limits.turns"
	case l.ToolCalls < 0:
		return "limits.toolCalls"
	case l.IdenticalCalls < 0:
		return "limits.identicalCalls"
	case l.WallTime < 0:
		return "limits.wallTime"
	case l.Tokens < 0:
		return "limits.tokens"
	case l.Cost < 0:
		return "limits.cost"
	case l.TreeTokens < 0:
		return "limits.treeTokens"
	case l.TreeCost < 0:
		return "limits.treeCost"
	}
	return ""
}

func limits(l config.Limits) worker.Limits {
	return worker.Limits{
		Turns: l.Turns, ToolCalls: l.ToolCalls, IdenticalCalls: l.IdenticalCalls,
		WallTime: l.WallTime, Tokens: l.Tokens, Cost: l.Cost, TreeTokens: l.TreeTokens, TreeCost: l.TreeCost,
	}
}

// compaction is on unless the profile says no: without a known window it waits
// until a request is refused as too long.
func compaction(p config.Profile) *loop.Compaction {
	if !p.Compaction {
		return nil
	}
	return &loop.Compaction{Window: p.ContextWindow}
}

func reasoning(level string) string {
	if level == "off" {
		return ""
	}
	return level
}

// model makes the profile's model, once.
func (a *Agents) model(p config.Profile) (*openai.Model, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// Whether a model can reason is a property of the model, not of the prompt:
	// one that can is told so when it shall not.
	k := modelKey{p.Name, p.Model, p.Reasons()}
	if m := a.models[k]; m != nil {
		return m, nil
	}
	headers := map[string]string{}
	for name, v := range p.Headers {
		headers[name] = v.Reveal()
	}
	m, err := openai.New(openai.Config{
		BaseURL: p.BaseURL, API: api(p.API), Headers: headers, Compat: compat(p.Compat),
		Info: loop.ModelInfo{
			ID: p.Model, Provider: p.Compat.Endpoint, ContextWindow: p.ContextWindow,
			MaxTokens: p.MaxTokens, Input: p.Input, Reasoning: k.reasoning, Price: loop.Price(p.Price),
		},
		ThinkingLevelMap: levels(p),
		Timeouts: openai.Timeouts{
			FirstByte: orNever(p.Timeouts.FirstByte), Silence: orNever(p.Timeouts.Silence), Total: p.Timeouts.Total,
		},
		EstimateUsage: true,
		Limiter:       &a.limiter,
		Logger:        a.log,
	})
	if err != nil {
		return nil, err
	}
	a.models[k] = m
	return m, nil
}

// levels says that the Responses API's older reasoning models have no "none":
// they refuse it, and reason as they like when it is left out.
func levels(p config.Profile) map[string]*string {
	if api(p.API) != openai.Responses || strings.HasPrefix(p.Model, "gpt-5.") {
		return nil
	}
	return map[string]*string{"off": nil}
}

// orNever turns the configuration's "0 is no limit" into openai's.
func orNever(d time.Duration) time.Duration { return cmp.Or(d, -1) }

func api(name string) string {
	if name == "responses" {
		return openai.Responses
	}
	return openai.ChatCompletions
}

func compat(c config.Compat) *openai.Compat {
	return &openai.Compat{
		SupportsStore: c.SupportsStore, SupportsDeveloperRole: c.SupportsDeveloperRole,
		SupportsReasoningEffort: c.SupportsReasoningEffort, SupportsUsageInStreaming: c.SupportsUsageInStreaming,
		SupportsStrictMode: c.SupportsStrictMode, MaxTokensField: c.MaxTokensField,
		RequiresToolResultName:                      c.RequiresToolResultName,
		RequiresAssistantAfterToolResult:            c.RequiresAssistantAfterToolResult,
		RequiresThinkingAsText:                      c.RequiresThinkingAsText,
		RequiresReasoningContentOnAssistantMessages: c.RequiresReasoningContentOnAssistantMessages,
		ThinkingFormat:                              c.ThinkingFormat, CacheControlFormat: c.CacheControlFormat,
		EndsWithoutFinish: c.NoTerminal,
	}
}
