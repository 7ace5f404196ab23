package otlp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// numbers are the SDK's own variables and the values that it can live with. It
// takes any: a negative size makes it panic, a huge one takes all memory, and of
// words it says something in a log of its own.
var numbers = []struct {
	name      string
	low, high int
}{
	{"OTEL_BSP_SCHEDULE_DELAY", 1, 3_600_000},
	{"OTEL_BSP_EXPORT_TIMEOUT", 1, 3_600_000},
	{"OTEL_BSP_MAX_QUEUE_SIZE", 1, 1_000_000},
	{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1, 1_000_000},
	// Below 0 is no limit.
	{"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", -1, 1 << 30},
	{"OTEL_ATTRIBUTE_COUNT_LIMIT", -1, 1 << 30},
	{"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", -1, 1 << 30},
	{"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", -1, 1 << 30},
	{"OTEL_SPAN_EVENT_COUNT_LIMIT", -1, 1 << 30},
	{"OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", -1, 1 << 30},
	{"OTEL_SPAN_LINK_COUNT_LIMIT", -1, 1 << 30},
	{"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", -1, 1 << 30},
}

var samplers = []string{"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"}

// checkSDK says which of the SDK's own variables it could not use.
func checkSDK(env func(string) string) (errs []error) {
	for _, n := range numbers {
		v := env(n.name)
		if v == "" {
			continue
		}
		if i, err := strconv.Atoi(v); err != nil || i < n.low || i > n.high {
			errs = append(errs, fmt.Errorf("%s is %q; it must be a whole number from %d to %d", n.name, v, n.low, n.high))
		}
	}
	sampler := strings.ToLower(strings.TrimSpace(env("OTEL_TRACES_SAMPLER")))
	if sampler == "" {
		return errs
	}
	if !slices.Contains(samplers, sampler) {
		return append(errs, fmt.Errorf("OTEL_TRACES_SAMPLER is %q; allowed are %s", sampler, strings.Join(samplers, ", ")))
	}
	arg := strings.TrimSpace(env("OTEL_TRACES_SAMPLER_ARG"))
	if arg == "" || !strings.HasSuffix(sampler, "traceidratio") {
		return errs
	}
	if r, err := strconv.ParseFloat(arg, 64); err != nil || !(r >= 0 && r <= 1) {
		errs = append(errs, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q; it must be a number from 0 to 1", arg))
	}
	return errs
}
