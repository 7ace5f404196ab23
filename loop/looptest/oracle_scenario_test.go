package looptest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/loop/openai"
)

// scenario is one file of the oracle's scenarios. A key that is not listed
// here is an error: what the harness doesn't know it would not check.
type scenario struct {
	Name         string                          `json:"name"`
	Description  string                          `json:"description"`
	Driver       string                          `json:"driver"`
	Mode         string                          `json:"mode"`
	Model        modelSpec                       `json:"model"`
	Options      scenarioOptions                 `json:"options"`
	SystemPrompt string                          `json:"systemPrompt"`
	Messages     []json.RawMessage               `json:"messages"`
	Prompts      []json.RawMessage               `json:"prompts"`
	Tools        []toolScript                    `json:"tools"`
	Hooks        hookScripts                     `json:"hooks"`
	Actions      []action                        `json:"actions"`
	Responses    []*looptest.Response            `json:"responses"`
	ThenRuns     []thenRun                       `json:"thenRuns"`
	SettleMS     int                             `json:"settleMs"`
	TimeoutMS    int                             `json:"timeoutMs"`
	Compare      compareRules                    `json:"compare"`
	Divergence   *struct{ Kind, Instead string } `json:"divergence"`
}

type modelSpec struct {
	ID               string             `json:"id"`
	Name             string             `json:"name"`
	API              string             `json:"api"`
	Provider         string             `json:"provider"`
	Reasoning        bool               `json:"reasoning"`
	Input            []string           `json:"input"`
	Cost             loopPrice          `json:"cost"`
	ContextWindow    int64              `json:"contextWindow"`
	MaxTokens        int64              `json:"maxTokens"`
	ThinkingLevelMap map[string]*string `json:"thinkingLevelMap"`
	Compat           json.RawMessage    `json:"compat"`
	Headers          map[string]string  `json:"headers"`
}

type loopPrice struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cacheRead"`
	CacheWrite float64 `json:"cacheWrite"`
}

type scenarioOptions struct {
	MaxRetries     *int              `json:"maxRetries"`
	TimeoutMS      int               `json:"timeoutMs"`
	Temperature    *float64          `json:"temperature"`
	MaxTokens      *int64            `json:"maxTokens"`
	Headers        map[string]string `json:"headers"`
	SessionID      string            `json:"sessionId"`
	CacheRetention string            `json:"cacheRetention"`
	Reasoning      string            `json:"reasoning"`
	ToolExecution  string            `json:"toolExecution"`
	SteeringMode   string            `json:"steeringMode"`
	FollowUpMode   string            `json:"followUpMode"`
	APIKey         optionalString    `json:"apiKey"`
}

// optionalString tells an absent key from null.
type optionalString struct {
	set   bool
	value *string
}

func (o *optionalString) UnmarshalJSON(b []byte) error {
	o.set = true
	return json.Unmarshal(b, &o.value)
}

type toolScript struct {
	Name             string          `json:"name"`
	Description      string          `json:"description"`
	Parameters       json.RawMessage `json:"parameters"`
	ExecutionMode    string          `json:"executionMode"`
	PrepareArguments *struct {
		Rename map[string]string `json:"rename"`
		Throw  *string           `json:"throw"`
	} `json:"prepareArguments"`
	Calls []callScript `json:"calls"`
}

type callScript struct {
	Steps      []step `json:"steps"`
	OnAbort    string `json:"onAbort"`
	AbortError string `json:"abortError"`
	Late       []step `json:"late"`
}

type step struct {
	SleepMS int             `json:"sleepMs"`
	Update  json.RawMessage `json:"update"`
	Return  json.RawMessage `json:"return"`
	Throw   *string         `json:"throw"`
}

type hookScripts struct {
	BeforeToolCall      *[]beforeRule    `json:"beforeToolCall"`
	AfterToolCall       *[]afterRule     `json:"afterToolCall"`
	ShouldStopAfterTurn *[]bool          `json:"shouldStopAfterTurn"`
	Steering            *[]pollAnswer    `json:"steering"`
	FollowUp            *[]pollAnswer    `json:"followUp"`
	ConvertToLLM        *convertScript   `json:"convertToLlm"`
	TransformContext    *transformScript `json:"transformContext"`
	APIKeys             *[]*string       `json:"apiKeys"`
}

type beforeRule struct {
	Tool    string                     `json:"tool"`
	DelayMS int                        `json:"delayMs"`
	Abort   bool                       `json:"abort"`
	Throw   *string                    `json:"throw"`
	SetArgs map[string]json.RawMessage `json:"setArgs"`
	Block   *bool                      `json:"block"`
	Reason  string                     `json:"reason"`
}

type afterRule struct {
	Tool      string          `json:"tool"`
	Content   json.RawMessage `json:"content"`
	Details   json.RawMessage `json:"details"`
	IsError   *bool           `json:"isError"`
	Terminate *bool           `json:"terminate"`
	Throw     *string         `json:"throw"`
}

// pollAnswer is a list of messages or {"throw": text}.
type pollAnswer struct {
	messages []loop.Message
	throw    *string
}

func (p *pollAnswer) UnmarshalJSON(b []byte) error {
	if b[0] == '{' {
		var t struct {
			Throw *string `json:"throw"`
		}
		err := strict(b, &t)
		p.throw = t.Throw
		return err
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	var err error
	p.messages, err = parseMessages(raw)
	return err
}

type convertScript struct {
	Kind        string   `json:"kind"`
	Roles       []string `json:"roles"`
	ThrowOnCall int      `json:"throwOnCall"`
	Throw       string   `json:"throw"`
}

type transformScript struct {
	KeepLast *int              `json:"keepLast"`
	Append   []json.RawMessage `json:"append"`
}

type action struct {
	When struct {
		Before *struct{} `json:"before"`
		Event  *struct {
			Type   string `json:"type"`
			Role   string `json:"role"`
			Update string `json:"update"`
			Count  int    `json:"count"`
		} `json:"event"`
		Tool *struct {
			Tool    string `json:"tool"`
			Call    int    `json:"call"`
			AfterMS int    `json:"afterMs"`
		} `json:"tool"`
		Request *struct {
			Number  int `json:"number"`
			AfterMS int `json:"afterMs"`
		} `json:"request"`
		AfterMS int `json:"afterMs"`
	} `json:"when"`
	Do      string            `json:"do"`
	Message json.RawMessage   `json:"message"`
	Value   string            `json:"value"`
	Prompts []json.RawMessage `json:"prompts"`
}

type thenRun struct {
	Mode    string            `json:"mode"`
	Prompts []json.RawMessage `json:"prompts"`
}

type compareRules struct {
	ErrorMessage   string `json:"errorMessage"`
	LoneSurrogates bool   `json:"loneSurrogates"`
}

// expectation is one file of the oracle's expected results, or what the
// harness saw, in the same form.
type expectation struct {
	Name                string          `json:"name"`
	PI                  json.RawMessage `json:"pi,omitempty"`
	Outcome             string          `json:"outcome"`
	Error               string          `json:"error,omitempty"`
	Runs                []runOutcome    `json:"runs,omitempty"`
	Events              []any           `json:"events"`
	Messages            []any           `json:"messages"`
	AgentState          map[string]any  `json:"agentState,omitempty"`
	CallerContext       map[string]any  `json:"callerContext,omitempty"`
	Requests            []request       `json:"requests"`
	ToolExecutions      []any           `json:"toolExecutions"`
	HookCalls           []any           `json:"hookCalls"`
	Polls               map[string]int  `json:"polls"`
	Trace               []string        `json:"trace"`
	ActionErrors        []string        `json:"actionErrors,omitempty"`
	UnhandledRejections []string        `json:"unhandledRejections,omitempty"`
}

type runOutcome struct {
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
}

type request struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	Body    any               `json:"body"`
}

// check refuses what strict decoding lets through: values that the harness
// does not know, and fields that are missing.
func (s *scenario) check() error {
	if s.Name == "" || s.Responses == nil && s.Driver == "" {
		return errors.New("the scenario lacks its name, driver or responses")
	}
	if m := s.Compare.ErrorMessage; m != "" && m != "nonempty" {
		return fmt.Errorf("unknown compare rule errorMessage %q", m)
	}
	for i := range s.Tools {
		t := &s.Tools[i]
		for _, c := range t.Calls {
			if c.OnAbort != "" && c.OnAbort != "reject" {
				return fmt.Errorf("tool %s: unknown onAbort %q", t.Name, c.OnAbort)
			}
		}
	}
	for i, a := range s.Actions {
		if w := &a.When; w.Before == nil && w.Event == nil && w.Tool == nil && w.Request == nil {
			return fmt.Errorf("action %d: when is it done?", i)
		}
	}
	if d := s.Divergence; d != nil && d.Instead == "" {
		return errors.New("the divergence doesn't say what instead")
	}
	return nil
}

func (e *expectation) check() error {
	if e.Outcome == "" || e.Events == nil || e.Requests == nil || e.Trace == nil || e.Polls == nil ||
		e.ToolExecutions == nil || e.HookCalls == nil {
		return errors.New("the expectation lacks outcome, events, requests, trace, polls, toolExecutions or hookCalls")
	}
	return nil
}

func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

func parseMessages(raw []json.RawMessage) ([]loop.Message, error) {
	out := make([]loop.Message, 0, len(raw))
	for _, b := range raw {
		m, err := loop.ParseMessage(b)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// model builds the real provider for the scenario, pointed at the script.
func (s *scenario) model(script *looptest.Script) (*openai.Model, error) {
	baseURL := script.BaseURL()
	cfg := openai.Config{
		BaseURL: baseURL, HTTPClient: script.Client(), API: s.Model.API,
		Info: loop.ModelInfo{
			ID: s.Model.ID, Name: s.Model.Name, API: s.Model.API, Provider: s.Model.Provider, BaseURL: baseURL,
			Reasoning: s.Model.Reasoning, Input: s.Model.Input, Price: loop.Price(s.Model.Cost),
			ContextWindow: s.Model.ContextWindow, MaxTokens: s.Model.MaxTokens,
		},
		ThinkingLevelMap: s.Model.ThinkingLevelMap,
		Headers:          s.Model.Headers,
	}
	if s.Model.Compat != nil {
		cfg.Compat = &openai.Compat{}
		if err := strict(s.Model.Compat, cfg.Compat); err != nil {
			return nil, fmt.Errorf("compat: %w", err)
		}
	}
	cfg.Timeouts.FirstByte = ms(s.Options.TimeoutMS)
	cfg.Limiter = new(openai.Limiter) // scenarios have one address and run side by side
	return openai.New(cfg)
}
