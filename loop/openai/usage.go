package openai

import (
	"math"

	"github.com/pi-worker/pi-worker/loop"
)

// chatUsage reads the usage object of Chat Completions.
func chatUsage(raw []byte, price loop.Price) loop.Usage {
	var u loop.Usage
	in := get(raw, "prompt_tokens_details")
	cached := get(in, "cached_tokens")
	if isNull(cached) {
		cached = get(raw, "prompt_cache_hit_tokens")
	}
	u.CacheRead = tokens(cached)
	u.CacheWrite = tokens(get(in, "cache_write_tokens"))
	u.Input = max(0, tokens(get(raw, "prompt_tokens"))-u.CacheRead-u.CacheWrite)
	u.Output = tokens(get(raw, "completion_tokens"))
	u.Reasoning = tokens(get(raw, "completion_tokens_details", "reasoning_tokens"))
	u.TotalTokens = u.Input + u.Output + u.CacheRead + u.CacheWrite
	u.Cost = cost(&u, price, 1)
	stated(&u.Cost, get(raw, "cost"))
	return u
}

// responsesUsage reads the usage object of Responses.
func responsesUsage(raw []byte, price loop.Price, factor float64) loop.Usage {
	var u loop.Usage
	u.CacheRead = tokens(get(raw, "input_tokens_details", "cached_tokens"))
	u.Input = max(0, tokens(get(raw, "input_tokens"))-u.CacheRead)
	u.Output = tokens(get(raw, "output_tokens"))
	u.Reasoning = tokens(get(raw, "output_tokens_details", "reasoning_tokens"))
	u.TotalTokens = tokens(get(raw, "total_tokens"))
	u.Cost = cost(&u, price, factor)
	stated(&u.Cost, get(raw, "cost"))
	return u
}

func tokens(raw []byte) int64 {
	return min(max(integer(raw), 0), math.MaxInt64/8)
}

// cost is what the tokens cost; factor is the service tier's.
func cost(u *loop.Usage, p loop.Price, factor float64) loop.Cost {
	c := loop.Cost{
		Input:      p.Input / 1e6 * float64(u.Input) * factor,
		Output:     p.Output / 1e6 * float64(u.Output) * factor,
		CacheRead:  p.CacheRead / 1e6 * float64(u.CacheRead) * factor,
		CacheWrite: p.CacheWrite / 1e6 * float64(u.CacheWrite) * factor,
	}
	c.Total = c.Input + c.Output + c.CacheRead + c.CacheWrite
	return c
}

// stated takes the provider's own figure for the total.
func stated(c *loop.Cost, raw []byte) {
	if len(raw) == 0 || raw[0] == 'n' || raw[0] == '"' {
		return
	}
	if f := number(raw); f >= 0 && (f > 0 || raw[0] == '0') {
		c.Total, c.Stated = f, true
	}
}

// tierFactor is what a service tier makes of the price.
func tierFactor(tier string) float64 {
	switch tier {
	case "flex":
		return 0.5
	case "priority":
		return 2
	}
	return 1
}

// estimate fills in usage that was not sent: four bytes of the request or the
// answer make about a token.
func (m *Model) estimate(msg *loop.AssistantMessage, requestBytes int) {
	out := 0
	for _, b := range msg.Content {
		switch b := b.(type) {
		case *loop.Text:
			out += len(b.Text)
		case *loop.Thinking:
			out += len(b.Thinking)
		case *loop.ToolCall:
			out += len(b.Name) + len(b.Arguments)
		}
	}
	u := loop.Usage{Input: int64(requestBytes+3) / 4, Output: int64(out+3) / 4, Estimated: true}
	u.TotalTokens = u.Input + u.Output
	u.Cost = cost(&u, m.cfg.Info.Price, 1)
	msg.Usage = u
}
