package wire

import (
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/pi-worker/pi-worker/config"
)

// soundsSecret matches names of variables whose values are to be masked.
var soundsSecret = regexp.MustCompile(`(?i)key|token|secret|passw|credential`)

// Secrets are the values that neither events nor logs may have. A key that
// cannot be read now is added when a run needs it.
func Secrets(cfg *config.Config) []string {
	out := []string{cfg.NATS.Password.Reveal(), cfg.NATS.Token.Reveal()}
	for part := range strings.SplitSeq(cfg.NATS.URL.Reveal(), ",") {
		out = append(out, userInfo(strings.TrimSpace(part))...)
	}
	for _, p := range cfg.Agents {
		if key, err := p.APIKey(); err == nil {
			out = append(out, key.Reveal())
		}
		for _, h := range p.Headers {
			out = append(out, h.Reveal())
		}
	}
	for _, s := range cfg.MCP {
		for _, h := range s.Headers {
			out = append(out, h.Reveal())
		}
		for _, v := range s.Env {
			if name, value, ok := strings.Cut(v, "="); ok && soundsSecret.MatchString(name) {
				out = append(out, value)
			}
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		for pair := range strings.SplitSeq(os.Getenv(name), ",") {
			_, value, _ := strings.Cut(pair, "=")
			plain, _ := url.PathUnescape(value) // refused elsewhere if it is none
			out = append(out, value, plain)
		}
	}
	return out
}

// userInfo is the password in a URL, or the token in the place of a name.
func userInfo(text string) []string {
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return nil
	}
	if password, ok := u.User.Password(); ok {
		raw, _, _ := strings.Cut(u.User.String(), ":")
		return []string{password, strings.TrimPrefix(u.User.String(), raw+":")}
	}
	return []string{u.User.Username()}
}
