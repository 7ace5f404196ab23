package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// DefaultAgent is the profile of prompts that name none.
const DefaultAgent = "default"

// Errors of profiles.
var (
	ErrUnknownAgent = errors.New("config: no such agent profile")
	ErrNotAllowed   = errors.New("config: more than the agent profile allows")
	ErrAPIKey       = errors.New("config: API key is not available")
)

// Profile is what a session runs with: a model and its endpoint, a system
// prompt, tools and limits.
type Profile struct {
	Name   string   // "" in Config.Defaults
	Model  string   // id as the endpoint knows it
	Models []string // further models that a prompt may pick

	BaseURL    string // with /v1
	API        string // "completions" or "responses"
	APIKeyEnv  string // name of the variable that holds the key
	APIKeyFile string // path of the file that holds the key; preferred to APIKeyEnv
	Headers    map[string]Secret

	SystemPrompt     string
	SystemPromptFile string // read by Load into SystemPrompt

	Tools         []string // sent in the order of their names
	ToolExecution string   // "parallel" or "sequential"

	Bash Bash

	Outside  Outside
	Approval Approval

	Reasoning    string // "off", "minimal", "low", "medium", "high", "xhigh"
	MaxReasoning string // the most that a prompt may ask for
	// ReasoningModel says whether the model can reason at all; nil: see Reasons.
	ReasoningModel *bool
	MaxTokens      int64    // of one answer; 0 leaves it to the endpoint
	Input          []string // "text", "image"; nil both
	// Compaction summarises a context that has become too long.
	Compaction  bool
	Temperature *float64
	// ContextWindow is the model's, in tokens; 0 unknown.
	ContextWindow int64

	Price    Price
	Limits   Limits
	Retry    Retry
	Timeouts Timeouts
	Compat   Compat
}

// Words is a command line: unlike in other lists, words may be there twice.
type Words []string

// Bash says what the tool of that name may do.
type Bash struct {
	// Private and Network are nil when they are not configured: see IsPrivate
	// and HasNetwork.
	Private, Network *bool
	Wrapper          Words // before the shell's command line; "{workspace}" is the folder
	Timeout          time.Duration
	MaxTimeout       time.Duration
	Env              []string // NAME or NAME=value
	MaxFile          Bytes    // 0 is without limit, in the next two as well
	MaxMemory        Bytes
	MaxProcesses     int64
}

// IsPrivate says whether commands see no more than their workspace and the
// system. With a wrapper that is the wrapper's task unless it is asked for.
func (b Bash) IsPrivate() bool {
	if b.Private != nil {
		return *b.Private
	}
	return len(b.Wrapper) == 0
}

// HasNetwork says whether commands reach the network. With a wrapper that is
// the wrapper's task unless it is refused.
func (b Bash) HasNetwork() bool {
	if b.Network != nil {
		return *b.Network
	}
	return len(b.Wrapper) > 0
}

// Price is US dollars per million tokens.
type Price struct{ Input, Output, CacheRead, CacheWrite float64 }

// Limits end a run; 0 is without limit.
type Limits struct {
	Turns          int
	ToolCalls      int
	IdenticalCalls int           // the same call, name and arguments
	WallTime       time.Duration // from the start of the run
	Tokens         int64         // input and output of all its model calls
	Cost           float64       // US dollars, by Price
	TreeTokens     int64         // of the run and all below it together
	TreeCost       float64       // the same
}

// Retry says how failed model requests are repeated.
type Retry struct {
	Max           int // further attempts
	BaseDelay     time.Duration
	MaxDelay      time.Duration
	MaxRetryAfter time.Duration // longest wish of an endpoint that is honoured
	MidStream     bool          // answers that broke off half-way as well
}

// Timeouts of one model request; 0 is without limit.
type Timeouts struct {
	FirstByte time.Duration // until the response's headers
	Silence   time.Duration // between two pieces of the answer
	Total     time.Duration
}

// Compat are the quirks of an endpoint, with pi's meanings; nil and "" are
// chosen by Endpoint, and that by the base URL.
type Compat struct {
	Endpoint                                    string // "openai", "azure", "vllm", "ollama", …
	SupportsStore                               *bool
	SupportsDeveloperRole                       *bool
	SupportsReasoningEffort                     *bool
	SupportsUsageInStreaming                    *bool
	SupportsStrictMode                          *bool
	MaxTokensField                              string
	RequiresToolResultName                      *bool
	RequiresAssistantAfterToolResult            *bool
	RequiresThinkingAsText                      *bool
	RequiresReasoningContentOnAssistantMessages *bool
	ThinkingFormat                              string
	CacheControlFormat                          string
	// NoTerminal accepts answers without finish reason or [DONE], for servers
	// that never send one.
	NoTerminal *bool
}

// Profile gives the profile of that name, "" the default one. Names are not
// case-sensitive. The error is [ErrUnknownAgent] and names the nearest.
func (c *Config) Profile(name string) (Profile, error) {
	if name == "" {
		name = DefaultAgent
	}
	if p, ok := c.Agents[strings.ToLower(name)]; ok {
		return p, nil
	}
	names := slices.Sorted(maps.Keys(c.Agents))
	err := fmt.Errorf("%w: %q (there are: %s)", ErrUnknownAgent, name, strings.Join(names, ", "))
	if near := nearest(name, names); near != "" {
		err = fmt.Errorf("%w; did you mean %q?", err, near)
	}
	return Profile{}, err
}

// reasoningNames begin the ids of models that are known to reason.
var reasoningNames = []string{"gpt-5", "o1", "o3", "o4", "gpt-oss", "deepseek-reasoner", "deepseek-r1", "qwq", "magistral"}

// Reasons says whether the profile's model can reason: as configured, else if a
// level other than "off" is asked for or its name is a known one. A model that
// can is told so when its level is "off"; one that cannot is told nothing.
func (p Profile) Reasons() bool {
	if p.ReasoningModel != nil {
		return *p.ReasoningModel
	}
	if p.Reasoning != "" && p.Reasoning != "off" {
		return true
	}
	id := strings.ToLower(p.Model[strings.LastIndexByte(p.Model, '/')+1:])
	return !strings.Contains(id, "-chat") && slices.ContainsFunc(reasoningNames, func(name string) bool {
		return strings.HasPrefix(id, name)
	})
}

// APIKey reads the key from the profile's file or environment variable, now.
// A profile that names neither, or the variable OPENAI_API_KEY only by
// default, may have no key: local servers need none. The error is [ErrAPIKey]
// and never holds a key.
func (p Profile) APIKey() (Secret, error) {
	if p.APIKeyFile != "" {
		b, err := os.ReadFile(p.APIKeyFile)
		if err != nil {
			return "", fmt.Errorf("%w: agent %q: %w", ErrAPIKey, p.Name, err)
		}
		key := strings.TrimSpace(string(b))
		if key == "" {
			return "", fmt.Errorf("%w: agent %q: file %s is empty", ErrAPIKey, p.Name, p.APIKeyFile)
		}
		return Secret(key), nil
	}
	if p.APIKeyEnv == "" {
		return "", nil
	}
	key := strings.TrimSpace(os.Getenv(p.APIKeyEnv))
	if key == "" && p.needsKey() {
		return "", fmt.Errorf("%w: agent %q: variable %s is not set", ErrAPIKey, p.Name, p.APIKeyEnv)
	}
	return Secret(key), nil
}

// needsKey: a key was asked for by name, or the endpoint is known to want one.
func (p Profile) needsKey() bool {
	return p.APIKeyEnv != defaultKeyEnv || p.BaseURL == defaultBaseURL
}

// Narrowing is what a prompt asks of its profile; zero fields ask nothing.
type Narrowing struct {
	Model     string
	Reasoning string
	MaxTokens int64
	Tools     []string // a part of the profile's; nil keeps them
	Limits    Limits   // lowered, never raised
}

// Narrow gives the profile as a prompt wants it. Asking for a model, a
// reasoning level or a tool that the profile does not allow is
// [ErrNotAllowed]; numbers above the profile's are brought down to them.
func (p Profile) Narrow(n Narrowing) (Profile, error) {
	var errs []error
	if n.Model != "" && n.Model != p.Model {
		if !slices.Contains(p.Models, n.Model) {
			errs = append(errs, p.refuse("model", n.Model, append([]string{p.Model}, p.Models...)))
		}
		p.Model = n.Model
	}
	if n.Reasoning != "" {
		most := slices.Index(reasoningLevels, p.MaxReasoning)
		if i := slices.Index(reasoningLevels, n.Reasoning); i < 0 || i > most {
			errs = append(errs, p.refuse("reasoning", n.Reasoning, reasoningLevels[:most+1]))
		}
		p.Reasoning = n.Reasoning
	}
	if n.Tools != nil {
		for _, t := range n.Tools {
			if !slices.Contains(p.Tools, t) && !p.Outside.takes(t) {
				errs = append(errs, p.refuse("tool", t, slices.Concat(p.Tools, p.Outside.MCP, p.Outside.Remote)))
			}
		}
		own := slices.DeleteFunc(slices.Clone(n.Tools), func(t string) bool { return !slices.Contains(p.Tools, t) })
		p.Tools, p.Outside = own, p.Outside.narrow(n.Tools)
	}
	p.MaxTokens = lower(p.MaxTokens, n.MaxTokens)
	p.Limits = p.Limits.Lower(n.Limits)
	if err := errors.Join(errs...); err != nil {
		return Profile{}, err
	}
	return p, nil
}

func (p Profile) refuse(what, value string, allowed []string) error {
	return fmt.Errorf("%w: agent %q: %s %q (allowed: %s)", ErrNotAllowed, p.Name, what, value, strings.Join(allowed, ", "))
}

// Lower gives the stricter of both for each limit.
func (l Limits) Lower(by Limits) Limits {
	return Limits{
		Turns:          lower(l.Turns, by.Turns),
		ToolCalls:      lower(l.ToolCalls, by.ToolCalls),
		IdenticalCalls: lower(l.IdenticalCalls, by.IdenticalCalls),
		WallTime:       lower(l.WallTime, by.WallTime),
		Tokens:         lower(l.Tokens, by.Tokens),
		Cost:           lower(l.Cost, by.Cost),
		TreeTokens:     lower(l.TreeTokens, by.TreeTokens),
		TreeCost:       lower(l.TreeCost, by.TreeCost),
	}
}

// lower is the smaller of two limits of which 0 is none. A wish below 0 asks
// nothing.
func lower[T int | int64 | float64 | time.Duration](have, want T) T {
	if want <= 0 {
		return have
	}
	if have == 0 {
		return want
	}
	return min(have, want)
}
