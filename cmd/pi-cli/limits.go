package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pi-worker/pi-worker/client"
)

// limitFields are the limits that a prompt may lower, by the names of the
// configuration.
func limitFields(l *client.Limits) map[string]any {
	return map[string]any{
		"turns": &l.Turns, "tool_calls": &l.ToolCalls, "identical_calls": &l.IdenticalCalls, "wall_time": &l.WallTime,
		"tokens": &l.Tokens, "cost": &l.Cost, "tree_tokens": &l.TreeTokens, "tree_cost": &l.TreeCost,
	}
}

func limitNames() []string {
	var names []string
	for name := range limitFields(new(client.Limits)) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// parseLimits reads NAME=VALUE; nil if there is none.
func parseLimits(given []string) (*client.Limits, error) {
	if len(given) == 0 {
		return nil, nil
	}
	limits := new(client.Limits)
	fields := limitFields(limits)
	for _, text := range given {
		name, value, _ := strings.Cut(text, "=")
		field, ok := fields[name]
		if !ok {
			return nil, usageErrorf("--limit %q is no NAME=VALUE with one of %s", text, strings.Join(limitNames(), ", "))
		}
		if err := setLimit(field, value); err != nil {
			return nil, usageErrorf("--limit %s: %v", name, err)
		}
	}
	return limits, nil
}

func setLimit(field any, value string) (err error) {
	want := "a whole number above 0, such as 20"
	positive := false
	switch f := field.(type) {
	case *int:
		*f, err = strconv.Atoi(value)
		positive = *f > 0
	case *int64:
		*f, err = strconv.ParseInt(value, 10, 64)
		positive = *f > 0
	case *float64:
		want = "US dollars above 0, such as 0.50"
		*f, err = strconv.ParseFloat(value, 64)
		positive = *f > 0 && !math.IsInf(*f, 1)
	case *time.Duration:
		want = "a time above 0, such as 10m"
		*f, err = time.ParseDuration(value)
		positive = *f > 0
	}
	if err != nil || !positive {
		return fmt.Errorf("%q is not %s", value, want)
	}
	return nil
}
