package openai

import (
	"encoding/json"
	"net/url"
	"strings"
)

// Compat says how an endpoint differs from OpenAI's. The JSON names are pi's.
// nil and zero fields are taken from the endpoint's profile; see [ProfileFor].
type Compat struct {
	// SupportsStore sends "store": false.
	SupportsStore *bool `json:"supportsStore,omitempty"`
	// SupportsDeveloperRole gives the system prompt of a reasoning model the
	// role "developer".
	SupportsDeveloperRole *bool `json:"supportsDeveloperRole,omitempty"`
	// SupportsReasoningEffort sends "reasoning_effort".
	SupportsReasoningEffort *bool `json:"supportsReasoningEffort,omitempty"`
	// SupportsUsageInStreaming asks for usage in the stream.
	SupportsUsageInStreaming *bool `json:"supportsUsageInStreaming,omitempty"`
	// SupportsStrictMode sends "strict": false with each tool.
	SupportsStrictMode *bool `json:"supportsStrictMode,omitempty"`
	// SupportsLongCacheRetention allows the retention "long" (24 hours, or 1
	// hour with cache marks).
	SupportsLongCacheRetention *bool `json:"supportsLongCacheRetention,omitempty"`
	// MaxTokensField is "max_completion_tokens" or "max_tokens".
	MaxTokensField string `json:"maxTokensField,omitempty"`
	// RequiresToolResultName repeats the tool's name in its result.
	RequiresToolResultName *bool `json:"requiresToolResultName,omitempty"`
	// RequiresAssistantAfterToolResult puts an assistant message between tool
	// results and a user message, and sends "" instead of null content.
	RequiresAssistantAfterToolResult *bool `json:"requiresAssistantAfterToolResult,omitempty"`
	// RequiresThinkingAsText sends earlier thinking back as text.
	RequiresThinkingAsText *bool `json:"requiresThinkingAsText,omitempty"`
	// RequiresReasoningContentOnAssistantMessages sends an empty
	// "reasoning_content" where a message has none.
	RequiresReasoningContentOnAssistantMessages *bool `json:"requiresReasoningContentOnAssistantMessages,omitempty"`
	// RequiresMistralToolIDs turns call ids into nine letters and digits.
	RequiresMistralToolIDs *bool `json:"requiresMistralToolIds,omitempty"`
	// RequiresEncryptedReasoning leaves out earlier reasoning items without
	// encrypted content, and the ids of their calls: a server that stores
	// nothing does not find them (Responses).
	RequiresEncryptedReasoning *bool `json:"requiresEncryptedReasoning,omitempty"`
	// ThinkingFormat is how reasoning is switched on: "openai", "openrouter",
	// "deepseek", "together", "zai", "qwen" or "qwen-chat-template".
	ThinkingFormat string `json:"thinkingFormat,omitempty"`
	// CacheControlFormat "anthropic" marks what should be cached.
	CacheControlFormat string `json:"cacheControlFormat,omitempty"`
	// RefusesReasoning leaves earlier thinking out of requests. Without it that
	// is learned from the first refusal (Chat Completions).
	RefusesReasoning *bool `json:"refusesReasoning,omitempty"`
	// ReasoningDetails keeps OpenRouter's reasoning_details and sends them
	// back as they came.
	ReasoningDetails *bool `json:"reasoningDetails,omitempty"`
	// SendSessionAffinityHeaders names the session in headers (Chat
	// Completions).
	SendSessionAffinityHeaders *bool `json:"sendSessionAffinityHeaders,omitempty"`
	// SendSessionIDHeader sends "session_id" (Responses).
	SendSessionIDHeader *bool `json:"sendSessionIdHeader,omitempty"`
	// ZAIToolStream sends "tool_stream": true with tools.
	ZAIToolStream *bool `json:"zaiToolStream,omitempty"`
	// OpenRouterRouting is sent as "provider", VercelGatewayRouting as
	// "providerOptions.gateway"; JSON objects.
	OpenRouterRouting    json.RawMessage `json:"openRouterRouting,omitempty"`
	VercelGatewayRouting json.RawMessage `json:"vercelGatewayRouting,omitempty"`
	// EndsWithoutFinish accepts a stream whose end is not marked in any way.
	// Such a server's cut streams cannot be told from whole ones.
	EndsWithoutFinish *bool `json:"endsWithoutFinish,omitempty"`
	// KeyHeader is the header that carries the key, "" means Authorization.
	KeyHeader string `json:"keyHeader,omitempty"`
}

// compat is a Compat with every field decided.
type compat struct {
	store, developer, effort, usage, strict, longCache bool
	resultName, bridge, thinkingText, reasoningContent bool
	mistralIDs, encrypted, details, affinity, session  bool
	zaiToolStream, endsWithoutFinish, noThoughts       bool
	maxTokens, thinking, cacheControl, keyHeader       string
	openRouter, vercel                                 json.RawMessage
}

// Profiles by name. The first matching host decides, then the provider's name.
var profileHosts = []struct{ part, profile string }{
	{"api.openai.com", "openai"},
	{"openai.azure.com", "azure"},
	{"services.ai.azure.com", "azure"},
	{"openrouter.ai", "openrouter"},
	{"deepseek.com", "deepseek"},
	{"generativelanguage.googleapis.com", "gemini"},
	{"api.groq.com", "groq"},
	{"api.mistral.ai", "mistral"},
	{"api.x.ai", "xai"},
	{"api.z.ai", "zai"},
	{"api.together.", "together"},
	{"api.moonshot.", "moonshotai"},
	{"cerebras.ai", "cerebras"},
	{"ai-gateway.vercel.sh", "vercel"},
}

var profilePorts = map[string]string{
	"11434": "ollama", "8000": "vllm", "8080": "llamacpp",
}

// ProfileFor names the profile of an endpoint: "openai", "azure", "vllm",
// "ollama", "llamacpp", "openrouter", "deepseek", "gemini", "groq", "mistral",
// "xai", "zai", "together", "moonshotai", "cerebras", "vercel", or "generic",
// which sends nothing that a plain server may not know. A known host decides
// first, then the provider's name, then the usual port of a local server.
func ProfileFor(baseURL, provider string) string {
	u, err := url.Parse(baseURL)
	if err != nil {
		u = &url.URL{}
	}
	for _, h := range profileHosts {
		if strings.Contains(u.Host, h.part) {
			return h.profile
		}
	}
	name := strings.ToLower(provider)
	switch name {
	case "llama.cpp", "llama-cpp", "llama-server":
		return "llamacpp"
	case "google", "google-gemini":
		return "gemini"
	case "azure-openai", "azure-openai-responses":
		return "azure"
	case "moonshotai-cn":
		return "moonshotai"
	}
	if _, ok := profiles[name]; ok {
		return name
	}
	if p, ok := profilePorts[u.Port()]; ok && provider == "" {
		return p
	}
	if u.Host == "" {
		return "openai"
	}
	return "generic"
}

// openaiProfile is what pi assumes of an endpoint that it does not know.
var openaiProfile = compat{
	store: true, developer: true, effort: true, usage: true, strict: true, longCache: true,
	session: true, maxTokens: "max_completion_tokens", thinking: "openai",
}

// plainProfile sends what every server of this wire understands.
var plainProfile = compat{
	effort: true, usage: true, maxTokens: "max_tokens", thinking: "openai",
}

var profiles = map[string]func(*compat){
	"openai": func(c *compat) { *c = openaiProfile },
	"azure": func(c *compat) {
		*c = openaiProfile
		c.keyHeader, c.encrypted = "api-key", true
	},
	"generic":  func(*compat) {},
	"vllm":     func(*compat) {},
	"ollama":   func(*compat) {},
	"llamacpp": func(*compat) {},
	"gemini":   func(*compat) {},
	"groq":     func(c *compat) { c.maxTokens = "max_completion_tokens" },
	"mistral": func(c *compat) {
		c.effort, c.mistralIDs, c.resultName = false, true, true
		c.usage = false // sent without being asked; unknown fields are refused
	},
	"openrouter": func(c *compat) {
		*c = openaiProfile
		c.thinking, c.details = "openrouter", true
	},
	"deepseek": func(c *compat) {
		*c = openaiProfile
		c.store, c.developer = false, false
		c.thinking, c.reasoningContent = "deepseek", true
	},
	"xai": func(c *compat) {
		*c = openaiProfile
		c.store, c.developer, c.effort = false, false, false
	},
	"zai": func(c *compat) {
		*c = openaiProfile
		c.store, c.developer, c.effort, c.thinking = false, false, false, "zai"
	},
	"together": func(c *compat) {
		*c = openaiProfile
		c.store, c.developer, c.effort, c.strict, c.longCache = false, false, false, false, false
		c.maxTokens, c.thinking = "max_tokens", "together"
	},
	"moonshotai": func(c *compat) {
		*c = openaiProfile
		c.store, c.developer, c.effort, c.strict = false, false, false, false
		c.maxTokens = "max_tokens"
	},
	"cerebras": func(c *compat) {
		*c = openaiProfile
		c.store, c.developer = false, false
	},
	"vercel": func(c *compat) { *c = openaiProfile },
}

// resolve decides every field for an endpoint.
func resolve(baseURL, provider, model string, set *Compat) compat {
	name := ProfileFor(baseURL, provider)
	c := plainProfile
	c.session = true
	profiles[name](&c)
	if strings.Contains(baseURL, "api.openai.com") {
		c.encrypted = true
	}
	if name == "openrouter" && strings.HasPrefix(model, "anthropic/") {
		c.cacheControl = "anthropic"
	}
	if set != nil {
		set.over(&c)
	}
	return c
}

// over puts the fields that are set over the profile's.
func (s *Compat) over(c *compat) {
	for _, f := range []struct {
		set *bool
		to  *bool
	}{
		{s.SupportsStore, &c.store}, {s.SupportsDeveloperRole, &c.developer},
		{s.SupportsReasoningEffort, &c.effort}, {s.SupportsUsageInStreaming, &c.usage},
		{s.SupportsStrictMode, &c.strict}, {s.SupportsLongCacheRetention, &c.longCache},
		{s.RequiresToolResultName, &c.resultName}, {s.RequiresAssistantAfterToolResult, &c.bridge},
		{s.RequiresThinkingAsText, &c.thinkingText},
		{s.RequiresReasoningContentOnAssistantMessages, &c.reasoningContent},
		{s.RequiresMistralToolIDs, &c.mistralIDs}, {s.RequiresEncryptedReasoning, &c.encrypted},
		{s.ReasoningDetails, &c.details}, {s.SendSessionAffinityHeaders, &c.affinity},
		{s.SendSessionIDHeader, &c.session}, {s.ZAIToolStream, &c.zaiToolStream},
		{s.EndsWithoutFinish, &c.endsWithoutFinish}, {s.RefusesReasoning, &c.noThoughts},
	} {
		if f.set != nil {
			*f.to = *f.set
		}
	}
	for _, f := range []struct {
		set string
		to  *string
	}{
		{s.MaxTokensField, &c.maxTokens}, {s.ThinkingFormat, &c.thinking},
		{s.CacheControlFormat, &c.cacheControl}, {s.KeyHeader, &c.keyHeader},
	} {
		if f.set != "" {
			*f.to = f.set
		}
	}
	c.openRouter, c.vercel = s.OpenRouterRouting, s.VercelGatewayRouting
}
