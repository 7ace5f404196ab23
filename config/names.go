package config

import (
	"os"
	"regexp"
	"strings"
)

// relative splits a profile's key from its prefix, "defaults." or
// "agents.<name>.".
func relative(name string) (prefix, rest string, ok bool) {
	if rest, ok = strings.CutPrefix(name, "defaults."); ok {
		return "defaults.", rest, true
	}
	agent, ok := strings.CutPrefix(name, "agents.")
	if !ok {
		return "", "", false
	}
	agent, rest, ok = strings.Cut(agent, ".")
	return "agents." + agent + ".", rest, ok
}

func isKey(name string) bool {
	if _, rest, ok := relative(name); ok {
		return hasKey(profileKeys, rest)
	}
	return hasKey(keys, name)
}

func hasKey[T any](table []key[T], name string) bool {
	for _, k := range table {
		if k.name == name {
			return true
		}
	}
	return false
}

// isGroup says whether there are keys below the name.
func isGroup(name string) bool {
	if name == "defaults" {
		return true
	}
	if _, rest, ok := relative(name); ok {
		return hasBelow(profileKeys, rest)
	}
	return hasBelow(keys, name)
}

func hasBelow[T any](table []key[T], name string) bool {
	for _, k := range table {
		if strings.HasPrefix(k.name, name+".") {
			return true
		}
	}
	return false
}

// nearestKey gives the key that was probably meant, "" if none is near.
func nearestKey(name string) string {
	var names []string
	prefix, rest, ok := relative(name)
	if ok {
		for _, k := range profileKeys {
			names = append(names, k.name)
		}
		if near := nearest(rest, names); near != "" {
			return prefix + near
		}
		return ""
	}
	names = []string{"agents", "defaults"}
	for _, k := range keys {
		names = append(names, k.name)
		if group, _, ok := strings.Cut(k.name, "."); ok {
			names = append(names, group)
		}
	}
	return nearest(name, names)
}

// envGroups are the beginnings of variables that can only be ours. Others
// that begin with PI_ may belong to pi itself.
var envGroups = []string{"PI_NATS_", "PI_WORKER_", "PI_AGENTS_", "PI_DEFAULTS_", "PI_RETENTION_", "PI_LOG_"}

// serviceVar are the variables that Kubernetes sets for a service: one that
// is called pi-worker makes PI_WORKER_PORT and more.
var serviceVar = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_|$)|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_|$)|$)`)

// unknownEnv gives an error for each variable of ours that no key has.
func unknownEnv(known map[string]string) []error {
	var errs []error
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if value == "" || known[name] != "" || serviceVar.MatchString(name) || !hasAnyPrefix(name, envGroups) {
			continue
		}
		names := make([]string, 0, len(known))
		for n := range known {
			names = append(names, n)
		}
		errs = append(errs, &KeyError{Key: name, Origin: Origin{Layer: FromEnv, Where: name}, Err: ErrUnknownKey, Allowed: nearest(name, sorted(names))})
	}
	return errs
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
