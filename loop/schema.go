package loop

import (
	"maps"
	"slices"
	"strings"
)

// jsonTypes are the types that a schema may name.
var jsonTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// lenientSchema is a tool's schema without the keywords that are not what the
// standard says: "required": true on a property, a type that does not exist, a
// reference that leads nowhere. Such schemas come from other people's servers,
// and their tools would otherwise not be callable at all; what can be checked
// of them still is.
func lenientSchema(s *argSchema, v any) any {
	schema, ok := v.(map[string]any)
	if !ok {
		if _, ok := v.(bool); ok {
			return v
		}
		return map[string]any{}
	}
	out := make(map[string]any, len(schema))
	for key, value := range schema {
		if value, ok := lenientKeyword(s, key, value); ok {
			out[key] = value
		}
	}
	return out
}

// lenientKeyword gives the value of one keyword; not ok: it is left out.
func lenientKeyword(s *argSchema, key string, value any) (any, bool) {
	switch key {
	case "$schema", "$id", "id":
		return nil, false
	case "$ref":
		// One that leads out of the schema stays, and refuses the calls: nobody
		// knows what it asks for.
		ref, ok := value.(string)
		c := coercer{schema: s}
		return value, ok && (!strings.HasPrefix(ref, "#") || c.resolve(ref) != nil)
	case "type":
		return value, knownTypes(value)
	case "required":
		return value, allStrings(value)
	case "enum", "examples":
		_, ok := value.([]any)
		return value, ok
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		return lenientSchemas(s, value)
	case "allOf", "anyOf", "oneOf", "prefixItems":
		list, ok := value.([]any)
		return lenientList(s, list), ok && len(list) > 0
	case "items":
		if list, ok := value.([]any); ok {
			return lenientList(s, list), true
		}
		return lenientSchema(s, value), true
	case "additionalProperties", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames":
		return lenientSchema(s, value), true
	case "title", "description", "default", "const", "deprecated", "readOnly", "writeOnly":
		return value, true
	}
	switch value.(type) {
	case nil, bool, map[string]any, []any:
		return nil, false // draft 4's exclusiveMinimum: true, and the like
	}
	return value, true
}

func lenientSchemas(s *argSchema, value any) (any, bool) {
	byName, ok := value.(map[string]any)
	out := maps.Clone(byName)
	for name, sub := range byName {
		out[name] = lenientSchema(s, sub)
	}
	return out, ok
}

func lenientList(s *argSchema, list []any) []any {
	out := make([]any, len(list))
	for i, sub := range list {
		out[i] = lenientSchema(s, sub)
	}
	return out
}

func knownTypes(v any) bool {
	types := list(v)
	if t, ok := v.(string); ok {
		types = []any{t}
	}
	return len(types) > 0 && allStrings(types) && !slices.ContainsFunc(types, func(t any) bool {
		return !slices.Contains(jsonTypes, t.(string))
	})
}

func allStrings(v any) bool {
	items, ok := v.([]any)
	return ok && !slices.ContainsFunc(items, func(item any) bool {
		_, ok := item.(string)
		return !ok
	})
}
