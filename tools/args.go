package tools

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/pi-worker/pi-worker/loop"
)

// number is an optional numeric argument.
type number = *float64

// wholeNumber checks an optional count: a whole number of at least 1. absent
// is the value when it is not given.
func wholeNumber(name string, n number, absent int) (int, error) {
	switch {
	case n == nil:
		return absent, nil
	case *n != math.Trunc(*n) || *n < 1:
		return 0, fmt.Errorf("%s must be a whole number of at least 1, not %s", name, formatNumber(*n))
	case *n > math.MaxInt32:
		return math.MaxInt32, nil
	}
	return int(*n), nil
}

func unmarshalArgs[T any](args json.RawMessage) (T, error) {
	var in T
	if err := json.Unmarshal(args, &in); err != nil {
		return in, fmt.Errorf("arguments: %w", err)
	}
	return in, nil
}

func textResult(text string, details any) loop.ToolResult {
	r := loop.TextResult(text)
	if details != nil {
		r.Details = mustJSON(details)
	}
	return r
}

// emptyDetails are those of a result that has nothing to say.
var emptyDetails = json.RawMessage("{}")
