package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// errType is an answer of assign: the value is of another kind.
var errType = errors.New("not of the key's type")

// typeText says what a field's type allows, for people.
func typeText(field any) string {
	switch field.(type) {
	case *string, *Secret, *URL:
		return "text"
	case *bool, **bool:
		return "true or false"
	case *int, *int64:
		return "a whole number"
	case *float64, **float64:
		return "a number"
	case *time.Duration:
		return "a duration such as 5s or 1m30s"
	case *Bytes:
		return "a size such as 512KiB or 32MiB"
	case *[]string, *Words:
		return "a list of texts (in a variable: separated by commas)"
	case *MCPServers:
		return "servers by name, each a command or a url (in the file only)"
	case *map[string]Secret:
		return "names with texts (in a variable: name=text, separated by commas)"
	}
	return "a value"
}

// assign parses a raw value, a string from a variable, flag or default or
// what YAML made of it, into the field, and gives the parsed value.
func assign(field, raw any) (any, error) {
	switch f := field.(type) {
	case *string:
		return set(f, raw, text)
	case *Secret:
		return set(f, raw, func(raw any) (Secret, error) { s, err := text(raw); return Secret(s), err })
	case *URL:
		return set(f, raw, func(raw any) (URL, error) { s, err := text(raw); return URL(s), err })
	case *bool:
		return set(f, raw, boolean)
	case **bool:
		return setPtr(f, raw, boolean)
	case *int:
		return set(f, raw, func(raw any) (int, error) { n, err := whole(raw); return int(n), err })
	case *int64:
		return set(f, raw, whole)
	case *float64:
		return set(f, raw, number)
	case **float64:
		return setPtr(f, raw, number)
	case *time.Duration:
		return set(f, raw, duration)
	case *Bytes:
		return set(f, raw, size)
	case *[]string:
		return set(f, raw, list)
	case *Words:
		v, err := commandLine(raw)
		if err == nil {
			*f = v
		}
		return v, err
	case *MCPServers:
		return set(f, raw, mcpServers)
	case *map[string]Secret:
		return set(f, raw, secrets)
	}
	return nil, fmt.Errorf("config: no parser for %T", field)
}

func set[T any](f *T, raw any, parse func(any) (T, error)) (any, error) {
	v, err := parse(raw)
	if err == nil {
		*f = v
	}
	return v, err
}

func setPtr[T any](f **T, raw any, parse func(any) (T, error)) (any, error) {
	v, err := parse(raw)
	if err == nil {
		*f = &v
	}
	return v, err
}

func text(raw any) (string, error) {
	s, ok := raw.(string)
	if !ok {
		return "", errType
	}
	return s, nil
}

func boolean(raw any) (bool, error) {
	switch v := raw.(type) {
	case bool:
		return v, nil
	case string:
		switch strings.ToLower(v) {
		case "true", "1", "yes", "on":
			return true, nil
		case "false", "0", "no", "off":
			return false, nil
		}
	}
	return false, errType
}

func whole(raw any) (int64, error) {
	switch v := raw.(type) {
	case int:
		return int64(v), nil
	case int64:
		return v, nil
	case string:
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil {
			return 0, errType
		}
		return n, nil
	}
	return 0, errType
}

func number(raw any) (float64, error) {
	switch v := raw.(type) {
	case float64:
		return finite(v)
	case string:
		n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		if err != nil {
			return 0, errType
		}
		return finite(n)
	}
	n, err := whole(raw)
	return float64(n), err
}

func finite(v float64) (float64, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, errType
	}
	return v, nil
}

// duration takes no bare number but 0: its unit would be a guess.
func duration(raw any) (time.Duration, error) {
	if n, ok := raw.(int); ok && n == 0 {
		return 0, nil
	}
	s, err := text(raw)
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil {
		return 0, errType
	}
	return d, nil
}

var units = []struct {
	suffix string
	size   Bytes
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

func size(raw any) (Bytes, error) {
	s, err := text(raw)
	if err != nil {
		n, err := whole(raw)
		if n < 0 {
			err = errType
		}
		return Bytes(n), err
	}
	s, unit := strings.TrimSpace(s), Bytes(1)
	for _, u := range units {
		if n := len(s) - len(u.suffix); n > 0 && strings.EqualFold(s[n:], u.suffix) {
			s, unit = strings.TrimSpace(s[:n]), u.size
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || Bytes(n) > math.MaxInt64/unit {
		return 0, errType
	}
	return Bytes(n) * unit, nil
}

// String gives the size in the largest unit of 1024 that divides it.
func (b Bytes) String() string {
	for _, u := range []int{3, 2, 1, 0} {
		if unit := units[u]; b != 0 && b%unit.size == 0 {
			return strconv.FormatInt(int64(b/unit.size), 10) + unit.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// commandLine is list for a command, whose words may be repeated.
func commandLine(raw any) ([]string, error) {
	all, ok := raw.([]any)
	if !ok {
		return list(raw)
	}
	out := make([]string, 0, len(all))
	for _, e := range all {
		s, err := text(e)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func list(raw any) ([]string, error) {
	switch v := raw.(type) {
	case string:
		out := []string{}
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
		return out, nil
	case wordList:
		return v, nil
	case []any:
		out := make([]string, 0, len(v))
		for _, e := range v {
			s, err := text(e)
			if err != nil || s == "" || slices.Contains(out, s) {
				return nil, errType
			}
			out = append(out, s)
		}
		return out, nil
	}
	return nil, errType
}

func secrets(raw any) (map[string]Secret, error) {
	out := map[string]Secret{}
	switch v := raw.(type) {
	case map[string]any:
		for name, e := range v {
			s, err := text(e)
			if err != nil {
				return nil, err
			}
			out[name] = Secret(s)
		}
		return out, nil
	case string:
		parts, _ := list(v)
		for _, part := range parts {
			name, value, ok := strings.Cut(part, "=")
			if !ok {
				return nil, errType
			}
			out[strings.TrimSpace(name)] = Secret(value)
		}
		return out, nil
	}
	return nil, errType
}

// brokers allows one URL, or several with commas, of these schemes.
func brokers(schemes ...string) check {
	return check{
		"a URL that begins with " + strings.Join(schemes, "://, ") + "://",
		func(v any) bool {
			s, ok := v.(URL)
			for part := range strings.SplitSeq(s.Reveal(), ",") {
				u, err := url.Parse(strings.TrimSpace(part))
				ok = ok && err == nil && u.Host != "" && slices.Contains(schemes, u.Scheme)
			}
			return ok
		},
	}
}

// endpoint allows a base URL. User information in it would be published: the
// base URL is part of the answers' metadata.
func endpoint() check {
	return check{
		"a URL that begins with http:// or https://, without user and password",
		func(v any) bool {
			s, _ := v.(string)
			u, err := url.Parse(s)
			return err == nil && u.Host != "" && u.User == nil && (u.Scheme == "http" || u.Scheme == "https")
		},
	}
}

// short is the duration without its zero parts: 1h, not 1h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
