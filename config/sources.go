package config

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Outside names the tools of others that a profile takes, by name or pattern
// with * and ?.
type Outside struct {
	Remote []string // of NATS services
	MCP    []string // of MCP servers, <server>_<tool>
}

// Approval says which calls a person must allow first.
type Approval struct {
	Ask    []string      // names of tools, or name(argument), with * and ?
	Policy string        // "wait", "deny_after" or "halt_after"
	After  time.Duration // patience of the policy
}

// MCPServers are the MCP servers by name.
type MCPServers map[string]MCPServer

// MCPServer is one MCP server: a command or a URL.
type MCPServer struct {
	Command string
	Args    []string
	Env     []string // NAME passes the worker's on, NAME=value sets it
	Dir     string
	URL     string
	Headers map[string]Secret
	Timeout time.Duration // of one call; 0 means 5 min
}

// String lists the servers; values that may be secret are left out.
func (m MCPServers) String() string {
	parts := make([]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		s := m[name]
		if s.URL != "" {
			parts = append(parts, name+" ("+MaskURL(s.URL)+")")
		} else {
			parts = append(parts, name+" ("+s.Command+")")
		}
	}
	return strings.Join(parts, ", ")
}

// mcpServers reads the section mcp.
func mcpServers(raw any) (MCPServers, error) {
	section, ok := raw.(map[string]any)
	if !ok {
		return nil, errType
	}
	out := MCPServers{}
	for name, raw := range section {
		members, ok := raw.(map[string]any)
		if !ok {
			return nil, errType
		}
		var s MCPServer
		fields := map[string]any{
			"command": &s.Command, "args": &s.Args, "env": &s.Env, "dir": &s.Dir,
			"url": &s.URL, "headers": &s.Headers, "timeout": &s.Timeout,
		}
		for key, value := range members {
			field, ok := fields[key]
			if !ok {
				return nil, fmt.Errorf("%w: mcp.%s.%s", errType, name, key)
			}
			if key == "args" { // words may repeat, and be empty
				value = words(value)
			}
			if _, err := assign(field, value); err != nil {
				return nil, err
			}
		}
		if (s.Command == "") == (s.URL == "") {
			return nil, errType
		}
		out[name] = s
	}
	return out, nil
}

// words turns a list into what assign keeps as it is.
func words(raw any) any {
	list, ok := raw.([]any)
	if !ok {
		return nil
	}
	out := make(wordList, 0, len(list))
	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			return nil
		}
		out = append(out, s)
	}
	return out
}

// wordList is a list of texts that was checked already.
type wordList []string

// takes says whether the profile has the tool of another, by its name.
func (o Outside) takes(name string) bool {
	return slices.ContainsFunc(append(slices.Clip(o.MCP), o.Remote...), func(p string) bool {
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
}

// narrow keeps of each list what the names ask for.
func (o Outside) narrow(names []string) Outside {
	only := func(patterns []string) (out []string) {
		for _, n := range names {
			if (Outside{Remote: patterns}).takes(n) {
				out = append(out, n)
			}
		}
		return out
	}
	return Outside{Remote: only(o.Remote), MCP: only(o.MCP)}
}

// toolPattern is a name of tools with * and ?.
func toolPattern() check {
	return matches(`[A-Za-z0-9_*?-]{1,64}`, "a tool's name, * and ? stand for any letters and any one")
}

var outsideKeys = []key[Profile]{
	{name: "remote_tools", doc: "tools of NATS services that the profile takes, by name or pattern", field: func(p *Profile) any { return &p.Outside.Remote }, check: each(toolPattern())},
	{name: "mcp_tools", doc: "tools of the section mcp that the profile takes, `<server>_<tool>`, by name or pattern", field: func(p *Profile) any { return &p.Outside.MCP }, check: each(toolPattern())},
	{name: "approval.ask", doc: "calls that a person must allow first: names of tools, or `bash(rm *)` by argument", field: func(p *Profile) any { return &p.Approval.Ask },
		check: each(matches(`[A-Za-z0-9_*?-]{1,64}(\(.*\))?`, "a tool's name, or name(argument), with * and ?"))},
	{name: "approval.policy", def: "wait", doc: "what becomes of a call that nobody answers for: it waits; after approval.after it is not run; or the run ends then", field: func(p *Profile) any { return &p.Approval.Policy },
		check: oneOf("wait", "deny_after", "halt_after")},
	{name: "approval.after", def: "1h", doc: "patience of deny_after and halt_after", field: func(p *Profile) any { return &p.Approval.After }, check: durations(time.Second, 365*24*time.Hour)},
}
