package config

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Key describes one key of the configuration.
type Key struct {
	Name    string // as in the file, with dots: "nats.url", "agents.<name>.model"
	Env     string // its variable
	Flag    string // its flag without dashes, "" none
	Default string // "" none
	Allowed string // what may be written, for people
	Doc     string
	Secret  bool
}

// key is a Key with its place in the Config. T is Config or Profile.
type key[T any] struct {
	name, def, doc string
	field          func(*T) any // pointer to the field
	check          check
	flag           string
	alt            []string // further variables, after the key's own
	short          string   // one letter of the flag, "" none
	scope          Scope
	sensitive      sensitivity
}

// sensitivity says what of a value must not be shown, beyond [Secret].
type sensitivity int

const (
	harmless sensitivity = iota
	holdsURL             // user information in URLs
	mayBeKey             // the whole value, where it was refused: people paste keys there
)

// check refuses values of the right type. The zero check allows all.
type check struct {
	allowed string
	ok      func(any) bool
}

const (
	defaultKeyEnv  = "OPENAI_API_KEY"
	defaultBaseURL = "https://api.openai.com/v1"
)

var reasoningLevels = []string{"off", "minimal", "low", "medium", "high", "xhigh"}

// Endpoints are the values of compat.endpoint.
var Endpoints = []string{"openai", "azure", "vllm", "ollama", "llamacpp", "openrouter", "deepseek", "gemini", "groq", "mistral"}

var keys = []key[Config]{
	{name: "nats.url", def: "nats://127.0.0.1:4222", flag: "server", alt: []string{"NATS_URL"}, short: "s", scope: ForClient | ForWorker, sensitive: holdsURL,
		doc: "broker, several with commas; ws:// and tls:// as well", field: func(c *Config) any { return &c.NATS.URL },
		check: brokers("nats", "tls", "ws", "wss")},
	{name: "nats.creds", flag: "creds", scope: ForClient | ForWorker, doc: "credentials file (JWT and seed)", field: func(c *Config) any { return &c.NATS.Creds }},
	{name: "nats.nkey", flag: "nkey", scope: ForClient | ForWorker, doc: "NKey seed file", field: func(c *Config) any { return &c.NATS.NKey }},
	{name: "nats.user", flag: "user", scope: ForClient | ForWorker, doc: "user name", field: func(c *Config) any { return &c.NATS.User }},
	{name: "nats.password", doc: "its password; better in a file or the environment than in pi-cli's --password, which ps shows", field: func(c *Config) any { return &c.NATS.Password }},
	{name: "nats.token", doc: "token, instead of user and password; pi-cli's --token is shown by ps as well", field: func(c *Config) any { return &c.NATS.Token }},
	{name: "nats.tls.ca", flag: "tls-ca", scope: ForClient | ForWorker, doc: "PEM file of roots, none means the system's", field: func(c *Config) any { return &c.NATS.TLS.CA }},
	{name: "nats.tls.cert", flag: "tls-cert", scope: ForClient | ForWorker, doc: "PEM file of the client's certificate", field: func(c *Config) any { return &c.NATS.TLS.Cert }},
	{name: "nats.tls.key", flag: "tls-key", scope: ForClient | ForWorker, doc: "PEM file of its key", field: func(c *Config) any { return &c.NATS.TLS.Key }},
	{name: "nats.inbox_prefix", flag: "inbox-prefix", scope: ForClient, doc: "first token of the subjects of answers, where the broker's permissions ask for it; none means _INBOX", field: func(c *Config) any { return &c.NATS.InboxPrefix },
		check: matches(`[A-Za-z0-9_-]*`, "letters, digits, _ and -")},
	{name: "nats.prefix", def: "agent", flag: "prefix", scope: ForClient | ForWorker, doc: "first token of every subject; one fleet, one prefix", field: func(c *Config) any { return &c.NATS.Prefix },
		check: matches(`[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*`, "letters, digits, _ and -, in tokens joined by dots")},
	{name: "nats.replicas", def: "1", flag: "replicas", scope: ForWorker, doc: "replicas of each stream; 3 for production", field: func(c *Config) any { return &c.NATS.Replicas },
		check: oneOf(1, 3, 5)},
	{name: "nats.ack_wait", def: "5s", flag: "ack-wait", scope: ForWorker, doc: "life of a lease without a beat: how long a dead worker's sessions wait", field: func(c *Config) any { return &c.NATS.AckWait },
		check: durations(time.Second, 10*time.Minute)},
	{name: "nats.start_timeout", def: "30s", flag: "start-timeout", scope: ForWorker, doc: "how long a worker that starts waits for a broker that is not there or has no leader; 0 tries once", field: func(c *Config) any { return &c.NATS.StartTimeout },
		check: durations(0, 24*time.Hour)},

	{name: "worker.id", flag: "id", scope: ForWorker, doc: "name of this worker; none means host name and process", field: func(c *Config) any { return &c.Worker.ID },
		check: matches(`[A-Za-z0-9_-]{0,64}`, "letters, digits, _ and -, at most 64")},
	{name: "worker.sessions", def: "64", flag: "sessions", scope: ForWorker, doc: "sessions run at once", field: func(c *Config) any { return &c.Worker.Sessions },
		check: between(1, 100_000)},
	{name: "worker.grace", def: "30s", flag: "grace", scope: ForWorker, doc: "from SIGTERM until unfinished turns are handed to another worker", field: func(c *Config) any { return &c.Worker.Grace },
		check: durations(0, 24*time.Hour)},
	{name: "worker.max_attempts", def: "5", doc: "claims of a run without a finished turn before it is dead-lettered", field: func(c *Config) any { return &c.Worker.MaxAttempts },
		check: between(1, 1000)},
	{name: "worker.steering_mode", def: "one-at-a-time", doc: "how many waiting steers a turn takes", field: func(c *Config) any { return &c.Worker.SteeringMode },
		check: oneOf("one-at-a-time", "all")},
	{name: "worker.followup_mode", def: "one-at-a-time", doc: "how many waiting follow-ups a run takes when it would stop", field: func(c *Config) any { return &c.Worker.FollowUpMode },
		check: oneOf("one-at-a-time", "all")},
	{name: "worker.workspace.mode", def: "temp", doc: "dir: a folder for each session below worker.workspace.dir, kept; temp: one for each claim, removed after it; snapshot: the same, and its files go to NATS after each call that changed them, for the next worker", field: func(c *Config) any { return &c.Worker.Workspace.Mode },
		check: oneOf("dir", "temp", "snapshot")},
	{name: "worker.workspace.dir", flag: "workspace", scope: ForWorker, doc: "parent folder of the workspaces; the flag means mode dir too", field: func(c *Config) any { return &c.Worker.Workspace.Dir }},
	{name: "worker.workspace.exclude", doc: "mode snapshot leaves these out, `name` or `folder/` at any depth, `a/b*` from the top; `.pi-worker/` always", field: func(c *Config) any { return &c.Worker.Workspace.Exclude }},
	{name: "worker.workspace.max_files", def: "20000", doc: "files and folders of a snapshot; over it nothing is saved, and the model and the log are told", field: func(c *Config) any { return &c.Worker.Workspace.MaxFiles },
		check: between(1, 1_000_000)},
	{name: "worker.workspace.max_bytes", def: "256MiB", doc: "size of a snapshot's files together", field: func(c *Config) any { return &c.Worker.Workspace.MaxBytes }},

	{name: "retention.max_age", def: "720h", doc: "how long events are kept, 0 for ever", field: func(c *Config) any { return &c.Retention.MaxAge },
		check: zeroOr(time.Second, 100*365*24*time.Hour)},
	{name: "retention.max_bytes", def: "0", doc: "size of the event stream, 0 without bound", field: func(c *Config) any { return &c.Retention.MaxBytes }},
	{name: "retention.session_records", def: "0", doc: "durable records kept of each session when its runs have ended, whole prompts; the model does not see what is gone; 0 keeps all", field: func(c *Config) any { return &c.Retention.SessionRecords },
		check: zeroOrBetween(100, 1<<30)},
	{name: "retention.dlq_max_age", def: "0s", doc: "how long dead letters are kept, 0 for ever", field: func(c *Config) any { return &c.Retention.DLQMaxAge },
		check: zeroOr(time.Second, 100*365*24*time.Hour)},
	{name: "ephemeral_ttl", def: "1h", doc: "how long records of nothing but deltas are kept, 0 as the others", field: func(c *Config) any { return &c.EphemeralTTL },
		check: zeroOr(time.Second, 100*365*24*time.Hour)},
	{name: "max_input_bytes", def: "32MiB", doc: "largest prompt, steer or follow-up", field: func(c *Config) any { return &c.MaxInputBytes },
		check: bytesBetween(1024, 1<<30)},
	{name: "mcp", doc: "MCP servers by name, each with `command`, `args`, `env` (NAME or NAME=value) and `dir`, or `url` and `headers`; and `timeout` of a call", field: func(c *Config) any { return &c.MCP }},
	{name: "log.level", def: "info", flag: "log-level", scope: ForWorker, doc: "least level that is logged", field: func(c *Config) any { return &c.Log.Level },
		check: oneOf("debug", "info", "warn", "error")},
	{name: "log.format", def: "text", flag: "log-format", scope: ForWorker, doc: "form of the log on stderr", field: func(c *Config) any { return &c.Log.Format },
		check: oneOf("text", "json")},
	{name: "http.listen", flag: "http", scope: ForWorker, doc: "address of /metrics, /healthz and /readyz, such as :8080; none: no port is opened", field: func(c *Config) any { return &c.HTTP.Listen },
		check: address(false)},
	{name: "http.debug_listen", flag: "http-debug", scope: ForWorker, doc: "loopback address of /debug/pprof and /log/level, such as 127.0.0.1:6060; none: no port is opened", field: func(c *Config) any { return &c.HTTP.DebugListen },
		check: address(true)},
	{name: "trace.content", def: "false", doc: "messages, arguments and results in OpenTelemetry spans; where spans go is said by the standard OTEL_… variables", field: func(c *Config) any { return &c.Trace.Content }},
}

// profileKeys are relative to "defaults." and "agents.<name>.".
var profileKeys = []key[Profile]{
	{name: "model", def: "gpt-5-mini", flag: "model", scope: ForWorker, doc: "model id", field: func(p *Profile) any { return &p.Model }, check: notEmpty()},
	{name: "models", doc: "further models that a prompt may pick", field: func(p *Profile) any { return &p.Models }},
	{name: "base_url", def: defaultBaseURL, flag: "base-url", scope: ForWorker, sensitive: holdsURL, doc: "endpoint, with /v1", field: func(p *Profile) any { return &p.BaseURL }, check: endpoint()},
	{name: "api", def: "completions", flag: "api", scope: ForWorker, doc: "which of the two OpenAI APIs", field: func(p *Profile) any { return &p.API }, check: oneOf("completions", "responses")},
	{name: "api_key_env", def: defaultKeyEnv, doc: "variable that holds the key", sensitive: mayBeKey, field: func(p *Profile) any { return &p.APIKeyEnv },
		check: matches(`[A-Za-z_][A-Za-z0-9_]*|`, "the name of an environment variable, not a key")},
	{name: "api_key_file", doc: "file that holds the key, read at each use; preferred to api_key_env", field: func(p *Profile) any { return &p.APIKeyFile }},
	{name: "headers", doc: "further HTTP headers", field: func(p *Profile) any { return &p.Headers }},
	{name: "system_prompt", doc: "text before every conversation", field: func(p *Profile) any { return &p.SystemPrompt }},
	{name: "system_prompt_file", doc: "file that holds it", field: func(p *Profile) any { return &p.SystemPromptFile }},
	{name: "tools", def: "read,ls", doc: "names of tools; the model sees them sorted; [] for none", field: func(p *Profile) any { return &p.Tools }},
	{name: "tool_execution", def: "parallel", doc: "calls of one answer side by side or one by one", field: func(p *Profile) any { return &p.ToolExecution }, check: oneOf("parallel", "sequential")},
	{name: "bash.private", doc: "commands see the workspace and a read-only system without homes, temporary folders, /run, other sessions and key files; unset: yes, unless there is a wrapper", field: func(p *Profile) any { return &p.Bash.Private }},
	{name: "bash.network", doc: "commands reach the network; unset: only with a wrapper, otherwise no more than their own loopback", field: func(p *Profile) any { return &p.Bash.Network }},
	{name: "bash.wrapper", doc: "command line before the shell's, such as bwrap; `{workspace}` is the folder", field: func(p *Profile) any { return &p.Bash.Wrapper }},
	{name: "bash.timeout", def: "2m", doc: "deadline of a command that names none", field: func(p *Profile) any { return &p.Bash.Timeout }, check: durations(time.Second, 24*time.Hour)},
	{name: "bash.max_timeout", def: "30m", doc: "longest deadline that a command may ask for", field: func(p *Profile) any { return &p.Bash.MaxTimeout }, check: durations(time.Second, 24*time.Hour)},
	{name: "bash.env", def: "PATH,LANG,LC_ALL,LC_CTYPE,TZ,TERM=dumb", doc: "whole environment of commands besides HOME and TMPDIR: NAME passes the worker's on, NAME=value sets it", field: func(p *Profile) any { return &p.Bash.Env },
		check: each(matches(`[A-Za-z_][A-Za-z0-9_]*(=[^\x00]*)?`, "NAME or NAME=value"))},
	{name: "bash.max_file", def: "4GiB", doc: "largest file that a command may write, 0 no limit", field: func(p *Profile) any { return &p.Bash.MaxFile }},
	{name: "bash.max_memory", def: "0", doc: "address space of each process of a command, 0 no limit", field: func(p *Profile) any { return &p.Bash.MaxMemory }},
	{name: "bash.max_processes", def: "0", doc: "processes of the worker's user, counted over all sessions, 0 no limit; the kernel does not hold root to it", field: func(p *Profile) any { return &p.Bash.MaxProcesses }, check: atLeast[int64](0)},
	outsideKeys[0], outsideKeys[1], outsideKeys[2], outsideKeys[3], outsideKeys[4],
	{name: "reasoning", def: "off", doc: "reasoning effort", field: func(p *Profile) any { return &p.Reasoning }, check: oneOf(reasoningLevels...)},
	{name: "max_reasoning", def: "high", doc: "most that a prompt may ask for", field: func(p *Profile) any { return &p.MaxReasoning }, check: oneOf(reasoningLevels...)},
	{name: "reasoning_model", doc: "whether the model can reason; unset: if its name is known to, or reasoning is not off", field: func(p *Profile) any { return &p.ReasoningModel }},
	{name: "input", doc: "what the model takes: text, image; unset both", field: func(p *Profile) any { return &p.Input }, check: each(oneOf("text", "image"))},
	{name: "compaction", def: "true", doc: "summarise a context that has become too long for the model", field: func(p *Profile) any { return &p.Compaction }},
	{name: "max_tokens", def: "0", doc: "most tokens of one answer, 0 the endpoint's", field: func(p *Profile) any { return &p.MaxTokens }, check: atLeast[int64](0)},
	{name: "temperature", doc: "0 to 2, none leaves it out", field: func(p *Profile) any { return &p.Temperature }, check: floatBetween(0, 2)},
	{name: "context_window", def: "0", doc: "the model's window in tokens, 0 unknown", field: func(p *Profile) any { return &p.ContextWindow }, check: atLeast[int64](0)},
	{name: "price.input", def: "0", doc: "US dollars per million tokens", field: func(p *Profile) any { return &p.Price.Input }, check: atLeast(0.0)},
	{name: "price.output", def: "0", doc: "US dollars per million tokens", field: func(p *Profile) any { return &p.Price.Output }, check: atLeast(0.0)},
	{name: "price.cache_read", def: "0", doc: "US dollars per million tokens", field: func(p *Profile) any { return &p.Price.CacheRead }, check: atLeast(0.0)},
	{name: "price.cache_write", def: "0", doc: "US dollars per million tokens", field: func(p *Profile) any { return &p.Price.CacheWrite }, check: atLeast(0.0)},
	{name: "limits.turns", def: "200", doc: "turns of a run, 0 no limit", field: func(p *Profile) any { return &p.Limits.Turns }, check: atLeast(0)},
	{name: "limits.tool_calls", def: "1000", doc: "tool calls of a run, 0 no limit", field: func(p *Profile) any { return &p.Limits.ToolCalls }, check: atLeast(0)},
	{name: "limits.identical_calls", def: "20", doc: "calls of a run with the same name and arguments, 0 no limit", field: func(p *Profile) any { return &p.Limits.IdenticalCalls }, check: atLeast(0)},
	{name: "limits.wall_time", def: "2h", doc: "time of a run, 0 no limit", field: func(p *Profile) any { return &p.Limits.WallTime }, check: atLeast[time.Duration](0)},
	{name: "limits.tokens", def: "0", doc: "tokens of a run, in and out, 0 no limit", field: func(p *Profile) any { return &p.Limits.Tokens }, check: atLeast[int64](0)},
	{name: "limits.cost", def: "0", doc: "US dollars of a run by price, 0 no limit", field: func(p *Profile) any { return &p.Limits.Cost }, check: atLeast(0.0)},
	{name: "limits.tree_tokens", def: "0", doc: "tokens of a run and all runs below it, 0 no limit", field: func(p *Profile) any { return &p.Limits.TreeTokens }, check: atLeast[int64](0)},
	{name: "limits.tree_cost", def: "0", doc: "US dollars of a run and all runs below it, 0 no limit", field: func(p *Profile) any { return &p.Limits.TreeCost }, check: atLeast(0.0)},
	{name: "retry.max", def: "3", doc: "further attempts of a failed request", field: func(p *Profile) any { return &p.Retry.Max }, check: between(0, 100)},
	{name: "retry.base_delay", def: "500ms", doc: "first delay, doubled each time", field: func(p *Profile) any { return &p.Retry.BaseDelay }, check: durations(0, time.Hour)},
	{name: "retry.max_delay", def: "8s", doc: "longest computed delay", field: func(p *Profile) any { return &p.Retry.MaxDelay }, check: durations(0, time.Hour)},
	{name: "retry.max_retry_after", def: "60s", doc: "longest Retry-After that is waited for", field: func(p *Profile) any { return &p.Retry.MaxRetryAfter }, check: durations(0, 24*time.Hour)},
	{name: "retry.mid_stream", def: "true", doc: "repeat answers that broke off half-way", field: func(p *Profile) any { return &p.Retry.MidStream }},
	{name: "timeouts.first_byte", def: "120s", doc: "until the answer begins, 0 no limit", field: func(p *Profile) any { return &p.Timeouts.FirstByte }, check: atLeast[time.Duration](0)},
	{name: "timeouts.silence", def: "150s", doc: "between two pieces of the answer, 0 no limit", field: func(p *Profile) any { return &p.Timeouts.Silence }, check: atLeast[time.Duration](0)},
	{name: "timeouts.total", def: "0s", doc: "of one request, 0 no limit", field: func(p *Profile) any { return &p.Timeouts.Total }, check: atLeast[time.Duration](0)},
	{name: "compat.endpoint", doc: "kind of endpoint; none means by its URL", field: func(p *Profile) any { return &p.Compat.Endpoint }, check: oneOf(append([]string{""}, Endpoints...)...)},
	{name: "compat.supports_store", doc: "takes `store`", field: func(p *Profile) any { return &p.Compat.SupportsStore }},
	{name: "compat.supports_developer_role", doc: "takes the role developer", field: func(p *Profile) any { return &p.Compat.SupportsDeveloperRole }},
	{name: "compat.supports_reasoning_effort", doc: "takes `reasoning_effort`", field: func(p *Profile) any { return &p.Compat.SupportsReasoningEffort }},
	{name: "compat.supports_usage_in_streaming", doc: "takes `stream_options`", field: func(p *Profile) any { return &p.Compat.SupportsUsageInStreaming }},
	{name: "compat.supports_strict_mode", doc: "takes `strict` in tools", field: func(p *Profile) any { return &p.Compat.SupportsStrictMode }},
	{name: "compat.max_tokens_field", doc: "name of the field", field: func(p *Profile) any { return &p.Compat.MaxTokensField }, check: oneOf("", "max_tokens", "max_completion_tokens")},
	{name: "compat.requires_tool_result_name", doc: "tool results carry the tool's name", field: func(p *Profile) any { return &p.Compat.RequiresToolResultName }},
	{name: "compat.requires_assistant_after_tool_result", doc: "no user message right after a tool result", field: func(p *Profile) any { return &p.Compat.RequiresAssistantAfterToolResult }},
	{name: "compat.requires_thinking_as_text", doc: "thinking goes back as text", field: func(p *Profile) any { return &p.Compat.RequiresThinkingAsText }},
	{name: "compat.requires_reasoning_content", doc: "assistant messages carry reasoning_content", field: func(p *Profile) any { return &p.Compat.RequiresReasoningContentOnAssistantMessages }},
	{name: "compat.thinking_format", doc: "how thinking is switched", field: func(p *Profile) any { return &p.Compat.ThinkingFormat },
		check: oneOf("", "openai", "openrouter", "deepseek", "zai", "qwen", "qwen-chat-template")},
	{name: "compat.cache_control_format", doc: "how cache breakpoints are marked", field: func(p *Profile) any { return &p.Compat.CacheControlFormat }, check: oneOf("", "anthropic")},
	{name: "compat.no_terminal", doc: "answers may end without finish reason and [DONE]", field: func(p *Profile) any { return &p.Compat.NoTerminal }},
}

// Keys lists every key, in the order of the documentation. Those of profiles
// appear once, as "agents.<name>.…"; each exists as "defaults.…" too.
func Keys() []Key {
	out := make([]Key, 0, len(keys)+len(profileKeys))
	for _, k := range keys {
		out = append(out, public(k, "", new(Config)))
	}
	for _, k := range profileKeys {
		out = append(out, public(k, "agents.<name>.", new(Profile)))
	}
	return out
}

func public[T any](k key[T], prefix string, zero *T) Key {
	field := k.field(zero)
	env := strings.ReplaceAll(envName(prefix+k.name), "<NAME>", "<name>")
	_, secret := field.(*Secret)
	return Key{Name: prefix + k.name, Env: env, Flag: k.flag, Default: k.def, Allowed: k.allowed(field), Doc: k.doc, Secret: secret}
}

// allowed says what may be written: the check's text, or the type's.
func (k key[T]) allowed(field any) string {
	if k.check.allowed != "" {
		return k.check.allowed
	}
	return typeText(field)
}

func envName(key string) string {
	return "PI_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

func oneOf[T comparable](values ...T) check {
	words := make([]string, 0, len(values))
	for _, v := range values {
		if w := fmt.Sprint(v); w != "" {
			words = append(words, w)
		}
	}
	return check{"one of " + strings.Join(words, ", "), func(v any) bool {
		t, ok := v.(T)
		return ok && slices.Contains(values, t)
	}}
}

// each checks every item of a list.
func each(item check) check {
	return check{"a list of " + item.allowed, func(v any) bool {
		list, ok := v.([]string)
		return ok && !slices.ContainsFunc(list, func(s string) bool { return !item.ok(s) })
	}}
}

func matches(pattern, allowed string) check {
	re := regexp.MustCompile(`^(?:` + pattern + `)$`)
	return check{allowed, func(v any) bool { s, ok := v.(string); return ok && re.MatchString(s) }}
}

// address allows "" and host:port; with loopback only a host that nobody else
// reaches.
func address(loopback bool) check {
	allowed := "host:port, or :port for all addresses"
	if loopback {
		allowed = "host:port with a loopback host, such as 127.0.0.1:6060"
	}
	return check{allowed, func(v any) bool {
		s, ok := v.(string)
		if s == "" || !ok {
			return ok
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return false
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return false
		}
		return !loopback || host == "localhost" || net.ParseIP(host).IsLoopback()
	}}
}

func notEmpty() check {
	return check{"text, not empty", func(v any) bool { s, ok := v.(string); return ok && strings.TrimSpace(s) != "" }}
}

func between(low, high int) check {
	return check{fmt.Sprintf("a whole number from %d to %d", low, high), func(v any) bool { n, ok := v.(int); return ok && low <= n && n <= high }}
}

func zeroOrBetween(low, high int) check {
	return check{fmt.Sprintf("0, or a whole number from %d to %d", low, high), func(v any) bool {
		n, ok := v.(int)
		return ok && (n == 0 || low <= n && n <= high)
	}}
}

func floatBetween(low, high float64) check {
	return check{fmt.Sprintf("a number from %g to %g", low, high), func(v any) bool { n, ok := v.(float64); return ok && low <= n && n <= high }}
}

func bytesBetween(low, high Bytes) check {
	return check{fmt.Sprintf("a size from %s to %s, such as 32MiB", low, high), func(v any) bool { n, ok := v.(Bytes); return ok && low <= n && n <= high }}
}

func durations(low, high time.Duration) check {
	return check{fmt.Sprintf("a duration from %s to %s, such as 1m30s", short(low), short(high)), func(v any) bool { d, ok := v.(time.Duration); return ok && low <= d && d <= high }}
}

func zeroOr(low, high time.Duration) check {
	return check{fmt.Sprintf("0, or a duration from %s to %s", short(low), short(high)), func(v any) bool {
		d, ok := v.(time.Duration)
		return ok && (d == 0 || low <= d && d <= high)
	}}
}

func atLeast[T int | int64 | float64 | time.Duration](low T) check {
	var zero T
	return check{typeText(&zero) + ", at least " + fmt.Sprint(low), func(v any) bool { n, ok := v.(T); return ok && n >= low }}
}
