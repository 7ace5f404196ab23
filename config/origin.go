package config

import (
	"encoding"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Layer is where a value was written.
type Layer string

// The layers, each over the one before.
const (
	FromDefault Layer = "default"
	FromFile    Layer = "file"
	FromEnv     Layer = "env"
	FromFlag    Layer = "flag"
)

// Origin is where a value came from.
type Origin struct {
	Layer Layer
	// Where is path:line, the variable's name or the flag; "" for defaults.
	Where string
	// Inherited is the key of `defaults:` that a profile took the value from.
	Inherited string
}

func (o Origin) String() string {
	s := string(o.Layer)
	if o.Where != "" {
		s += " " + o.Where
	}
	if o.Inherited != "" {
		s += " by " + o.Inherited
	}
	return s
}

// Setting is one effective value.
type Setting struct {
	Key    string
	Value  string // masked where it is secret
	Origin Origin
}

// Effective lists every key with its value, masked, and its origin, in the
// order of [Keys], with those of defaults and of each profile at the end.
func (c *Config) Effective() []Setting { return slices.Clone(c.settings) }

// show is the text of a parsed field, masked.
func show(field any, how sensitivity) string {
	switch f := field.(type) {
	case *string:
		if how == holdsURL {
			return MaskURL(*f)
		}
		return *f
	case *time.Duration:
		return short(*f)
	case *[]string:
		return strings.Join(*f, ", ")
	case *map[string]Secret:
		parts := make([]string, 0, len(*f))
		for _, name := range slices.Sorted(maps.Keys(*f)) {
			parts = append(parts, name+"="+(*f)[name].String())
		}
		return strings.Join(parts, ", ")
	case **bool:
		return showPtr(*f)
	case **float64:
		return showPtr(*f)
	case *bool:
		return fmt.Sprint(*f)
	case *int:
		return fmt.Sprint(*f)
	case *int64:
		return fmt.Sprint(*f)
	case *float64:
		return fmt.Sprint(*f)
	case fmt.Stringer:
		return f.String()
	case encoding.TextMarshaler:
		b, _ := f.MarshalText()
		return string(b)
	}
	return masked
}

func showPtr[T any](p *T) string {
	if p == nil {
		return ""
	}
	return fmt.Sprint(*p)
}

// showRaw is the text of a value that was refused.
func showRaw(field, raw any, how sensitivity) string {
	switch field.(type) {
	case *Secret, *map[string]Secret, *MCPServers:
		return masked
	}
	s := fmt.Sprint(raw)
	switch how {
	case holdsURL:
		return MaskURL(s)
	case mayBeKey:
		return masked
	}
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return s
}
