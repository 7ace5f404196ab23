package config

import (
	"log/slog"
	"net/url"
	"regexp"
	"strings"
)

// Secret is a text that is never shown: printed, marshalled or logged it is
// "***" (and "" when it is empty). [Secret.Reveal] gives the text.
type Secret string

const masked = "***"

// Reveal gives the text itself, for the one place that needs it.
func (s Secret) Reveal() string { return string(s) }

// String is the mask.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return masked
}

// GoString is the mask as well, for %#v.
func (s Secret) GoString() string { return `config.Secret("` + s.String() + `")` }

// MarshalText is the mask, for JSON, YAML and whatever else asks for text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is the mask.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// URL is the address of a broker, or several with commas. It may hold a
// password, so that it is shown masked; [URL.Reveal] gives the text.
type URL string

// Reveal gives the text itself, for the one place that connects.
func (u URL) Reveal() string { return string(u) }

// String is the text without user information, see [MaskURL].
func (u URL) String() string { return MaskURL(string(u)) }

// GoString is masked as well, for %#v.
func (u URL) GoString() string { return `config.URL("` + u.String() + `")` }

// MarshalText is masked.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// LogValue is masked.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MaskURL hides user names, passwords and tokens in one URL or several
// separated by commas. Of a text that does not parse it hides everything up
// to the last @: it may still hold a password.
func MaskURL(s string) string {
	parts := strings.Split(s, ",")
	for i, part := range parts {
		u, err := url.Parse(strings.TrimSpace(part))
		switch {
		case err != nil, u.User == nil && strings.Contains(part, "@"), u.User != nil && u.Host == "":
			return unparsed.ReplaceAllString(s, "${1}"+masked+"@")
		case u.User != nil:
			u.User = nil
			parts[i] = strings.Replace(u.String(), "//", "//"+masked+"@", 1)
		}
	}
	return strings.Join(parts, ",")
}

var unparsed = regexp.MustCompile(`(?s)^([a-zA-Z0-9+]*://)?.*@`)
