package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/pi-worker/pi-worker/loop"
)

// ErrPattern says that a pattern of calls cannot be read.
var ErrPattern = errors.New("tools: a pattern is a tool's name, or name(argument), with * and ?")

// Calls is a list of patterns that match calls of tools:
//
//	bash            every call of bash
//	bash(rm *)      commands that begin with rm, or have such a part
//	write(*.env)    calls with an argument that matches
//	files_*         every call of a tool whose name matches
//
// In a pattern * stands for any text and ? for any letter. A command is also
// matched part by part, as ;, &, |, lines and brackets divide it. That helps
// against slips and not against intent: a shell has endless ways to say rm.
// Where it matters, name the tool alone. The zero value matches nothing.
type Calls struct{ patterns []callPattern }

type callPattern struct {
	name     *regexp.Regexp
	argument *regexp.Regexp // nil: any
}

// ParseCalls reads patterns; the error is [ErrPattern].
func ParseCalls(patterns ...string) (Calls, error) {
	var c Calls
	for _, p := range patterns {
		name, argument, has := strings.Cut(p, "(")
		if name == "" || has && !strings.HasSuffix(argument, ")") {
			return Calls{}, fmt.Errorf("%w: %.80q", ErrPattern, p)
		}
		cp := callPattern{name: wildcard(name)}
		if has {
			cp.argument = wildcard(strings.TrimSuffix(argument, ")"))
		}
		c.patterns = append(c.patterns, cp)
	}
	return c, nil
}

// wildcard compiles a pattern; every one compiles.
func wildcard(p string) *regexp.Regexp {
	p = strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(p))
	return regexp.MustCompile(`(?s)^` + p + `$`)
}

// Match says whether one of the patterns matches the call.
func (c Calls) Match(call loop.Call) bool {
	for _, p := range c.patterns {
		if !p.name.MatchString(call.Name) {
			continue
		}
		if p.argument == nil || matchesText(p.argument, call) {
			return true
		}
	}
	return false
}

// commandParts is where a shell may begin another command.
var commandParts = regexp.MustCompile("[;&|\n`(){}]+")

// matchesText tries all texts among the arguments, however deep. Arguments
// that cannot be read match: nobody can say that they are harmless.
func matchesText(re *regexp.Regexp, call loop.Call) bool {
	var args any
	if json.Unmarshal(call.Args, &args) != nil {
		return true
	}
	var found func(v any) bool
	found = func(v any) bool {
		switch v := v.(type) {
		case string:
			if re.MatchString(v) {
				return true
			}
			if call.Name != "bash" {
				return false
			}
			for _, part := range commandParts.Split(v, -1) {
				if re.MatchString(strings.TrimSpace(part)) {
					return true
				}
			}
		case []any:
			for _, e := range v {
				if found(e) {
					return true
				}
			}
		case map[string]any:
			for _, e := range v {
				if found(e) {
					return true
				}
			}
		}
		return false
	}
	return found(args)
}
