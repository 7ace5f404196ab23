package openai

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	openaigo "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/pi-worker/pi-worker/loop"
)

// The two wires, as Config.API and the answers' API name them.
const (
	ChatCompletions = "openai-completions"
	Responses       = "openai-responses"
)

// DefaultBaseURL is the endpoint when none is given.
const DefaultBaseURL = "https://api.openai.com/v1"

// Config describes a model at an endpoint.
type Config struct {
	BaseURL string // "" means DefaultBaseURL; a query (Azure's api-version) is kept
	APIKey  string // "" sends none; nothing is read from the environment
	API     string // ChatCompletions ("" as well) or Responses
	// Info is the model. Empty API, Provider and BaseURL are filled in; an
	// empty Input means text and images.
	Info loop.ModelInfo
	// ThinkingLevelMap gives the provider's word for a level (minimal, low,
	// medium, high, xhigh, and off); nil means that the level is not
	// supported, a missing one that the word is the level's own.
	ThinkingLevelMap map[string]*string
	Compat           *Compat      // nil: the endpoint's profile
	HTTPClient       *http.Client // nil: a client of the model's own
	Timeouts         Timeouts
	Headers          map[string]string // sent with each request
	// EstimateUsage fills in usage that the provider did not send, from the
	// sizes of request and answer, and marks it.
	EstimateUsage bool
	// Limiter lets a rate-limited key rest for all its users; nil shares one
	// with all models of the process.
	Limiter *Limiter
	Logger  *slog.Logger // nil discards
}

// Timeouts bound a request. They are retryable errors.
type Timeouts struct {
	FirstByte time.Duration // until the answer's headers; 0 means 150 s, negative no limit
	Silence   time.Duration // between two bytes of the answer; 0 means 150 s, negative no limit
	Total     time.Duration // of the whole answer; 0 means no limit
}

const defaultSilence = 150 * time.Second

// Model is a model at an endpoint. It may be used by any number of goroutines.
type Model struct {
	cfg    Config
	compat compat
	client openaigo.Client
	http   *http.Client
	log    *slog.Logger

	limiter *Limiter
	// noUsage is set when the server refused the wish for usage.
	noUsage atomic.Bool
	// noThoughts is set when it refused earlier thinking.
	noThoughts atomic.Bool
}

var _ loop.Model = (*Model)(nil)

// New checks cfg and returns its model. Nothing is sent.
func New(cfg Config) (*Model, error) {
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	if cfg.API == "" {
		cfg.API = ChatCompletions
	}
	u, err := cfg.check()
	if err != nil {
		return nil, err
	}
	m := &Model{cfg: cfg, log: cfg.Logger, http: cfg.HTTPClient}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.http == nil {
		m.http = newHTTPClient()
	}
	m.fill()
	m.compat = resolve(cfg.BaseURL, m.cfg.Info.Provider, cfg.Info.ID, cfg.Compat)
	if m.cfg.Info.Provider == "" {
		m.cfg.Info.Provider = ProfileFor(cfg.BaseURL, "")
	}
	m.limiter = cfg.Limiter
	if m.limiter == nil {
		m.limiter = &processLimiter
	}
	m.client = m.newClient(u)
	return m, nil
}

func (c *Config) check() (*url.URL, error) {
	var errs []error
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		errs = append(errs, fmt.Errorf("openai: base URL %q is not an http or https URL", c.BaseURL))
	}
	if c.API != ChatCompletions && c.API != Responses {
		errs = append(errs, fmt.Errorf("openai: unknown API %q; there are %q and %q", c.API, ChatCompletions, Responses))
	}
	if c.Info.ID == "" {
		errs = append(errs, errors.New("openai: the model has no id"))
	}
	if strings.ContainsAny(c.APIKey, "\r\n") {
		errs = append(errs, errors.New("openai: the API key has a line break"))
	}
	return u, errors.Join(errs...)
}

func (m *Model) fill() {
	info := &m.cfg.Info
	info.API = m.cfg.API
	if info.Name == "" {
		info.Name = info.ID
	}
	if info.BaseURL == "" {
		info.BaseURL = m.cfg.BaseURL
	}
	if len(info.Input) == 0 {
		info.Input = []string{"text", "image"}
	}
	t := &m.cfg.Timeouts
	if t.FirstByte == 0 {
		t.FirstByte = defaultSilence
	}
	if t.Silence == 0 {
		t.Silence = defaultSilence
	}
}

// newHTTPClient is a client whose connections serve many streams at once.
func newHTTPClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	t.DisableCompression = true // a compressed stream arrives in lumps
	return &http.Client{Transport: t}
}

// newClient is the SDK's client without its retries and without what it would
// take from the environment.
func (m *Model) newClient(u *url.URL) openaigo.Client {
	base := *u
	base.RawQuery = ""
	opts := []option.RequestOption{
		option.WithBaseURL(base.String()),
		option.WithHTTPClient(m.http),
		option.WithMaxRetries(0),
		option.WithMiddleware(m.limitBody),
	}
	for name, values := range u.Query() {
		for _, v := range values {
			opts = append(opts, option.WithQueryAdd(name, v))
		}
	}
	return openaigo.Client{Options: opts}
}

// Info implements [loop.Model].
func (m *Model) Info() loop.ModelInfo { return m.cfg.Info }

// Close closes idle connections.
func (m *Model) Close() error {
	m.http.CloseIdleConnections()
	return nil
}

func (m *Model) sees() bool { return slices.Contains(m.cfg.Info.Input, "image") }

// levels in order; "off" is below all of them.
var levels = []string{"minimal", "low", "medium", "high", "xhigh"}

// effort is the provider's word for a thinking level, "" for off. A level that
// is not supported moves up to the next one that is, else down.
func (m *Model) effort(level string) string {
	want := slices.Index(levels, level)
	if want < 0 || !m.cfg.Info.Reasoning {
		return ""
	}
	for i := want; i < len(levels); i++ {
		if m.supports(levels[i]) {
			return m.word(levels[i])
		}
	}
	for i := want - 1; i >= 0; i-- {
		if m.supports(levels[i]) {
			return m.word(levels[i])
		}
	}
	return ""
}

func (m *Model) supports(level string) bool {
	word, ok := m.cfg.ThinkingLevelMap[level]
	if ok {
		return word != nil
	}
	return level != "xhigh"
}

func (m *Model) word(level string) string {
	if word := m.cfg.ThinkingLevelMap[level]; word != nil {
		return *word
	}
	return level
}

// off is the provider's word for no reasoning; set says whether the map has
// one, and refused that it says there is none.
func (m *Model) off() (word string, set, refused bool) {
	w, ok := m.cfg.ThinkingLevelMap["off"]
	if ok && w == nil {
		return "", false, true
	}
	if ok {
		return *w, true, false
	}
	return "none", false, false
}

// maxTokens is the limit of the answer; 0 sends none. Without a wish it is the
// model's own, at most 32000 as in pi.
func (m *Model) maxTokens(req *loop.Request) int64 {
	if req.Options.MaxTokens > 0 {
		return req.Options.MaxTokens
	}
	return min(m.cfg.Info.MaxTokens, 32000)
}
