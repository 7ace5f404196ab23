package looptest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// differences adds a line for each place where two decoded JSON values differ.
func differences(found []string, path string, recorded, asked any) []string {
	switch old := recorded.(type) {
	case map[string]any:
		if now, ok := asked.(map[string]any); ok {
			names := maps.Clone(old)
			maps.Copy(names, now)
			for _, name := range slices.Sorted(maps.Keys(names)) {
				found = member(found, path+"."+name, old, now, name)
			}
			return found
		}
	case []any:
		if now, ok := asked.([]any); ok {
			for i := range max(len(old), len(now)) {
				at := fmt.Sprintf("%s[%d]", path, i)
				switch {
				case i >= len(old):
					found = append(found, at+": not recorded, asked "+brief(now[i]))
				case i >= len(now):
					found = append(found, at+": recorded "+brief(old[i])+", not asked")
				default:
					found = differences(found, at, old[i], now[i])
				}
			}
			return found
		}
	}
	if !reflect.DeepEqual(recorded, asked) {
		found = append(found, path+": recorded "+brief(recorded)+", asked "+brief(asked))
	}
	return found
}

func member(found []string, path string, old, now map[string]any, name string) []string {
	was, before := old[name]
	is, after := now[name]
	switch {
	case !before:
		return append(found, path+": not recorded, asked "+brief(is))
	case !after:
		return append(found, path+": recorded "+brief(was)+", not asked")
	}
	return differences(found, path, was, is)
}

// brief is a value as JSON, with at most 120 runes.
func brief(v any) string {
	text, _ := json.Marshal(v)
	if runes := []rune(string(text)); len(runes) > 120 {
		return string(runes[:120]) + "…"
	}
	return string(text)
}

type exchangeKey struct{}

func withExchange(ctx context.Context, ex *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, ex)
}

func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }
