package loop

// Estimates that need no tokenizer: four bytes are about a token. They are made
// to notice that something is far too long, not to count.
const (
	bytesPerToken = 4
	imageTokens   = 1200
	messageTokens = 4 // what a message costs beside its content
)

// EstimateTokens is about how many tokens the messages take in a request.
func EstimateTokens(messages ...Message) int64 {
	var n int64
	for _, m := range messages {
		n += messageTokens
		switch m := m.(type) {
		case *UserMessage:
			n += blockTokens(m.Content)
		case *AssistantMessage:
			if m.StopReason != StopError && m.StopReason != StopAborted {
				n += blockTokens(m.Content)
			}
		case *ToolResultMessage:
			n += blockTokens(m.Content)
		case *CustomMessage:
			n += textTokens(len(m.Raw))
		}
	}
	return n
}

func textTokens(bytes int) int64 { return int64(bytes+bytesPerToken-1) / bytesPerToken }

func blockTokens(blocks []Block) (n int64) {
	for _, b := range blocks {
		switch b := b.(type) {
		case *Text:
			n += textTokens(len(b.Text))
		case *Thinking:
			n += textTokens(len(b.Thinking))
		case *Image:
			n += imageTokens
		case *ToolCall:
			n += textTokens(len(b.Name) + len(b.Arguments))
		}
	}
	return n
}

// fixedTokens is the part of a request that every turn has.
func (r *run) fixedTokens() int64 {
	n := textTokens(len(r.cfg.SystemPrompt))
	for _, s := range r.tools.specs {
		n += textTokens(len(s.Name) + len(s.Description) + len(s.Parameters))
	}
	return n
}

// contextSize is the larger of the loop's own estimate of the next request and
// of what the provider counted last, with what has come since.
func (r *run) contextSize() int64 {
	size := r.fixedTokens() + EstimateTokens(r.context...)
	if i, u := r.lastCount(); u != nil {
		size = max(size, u.TotalTokens+EstimateTokens(r.context[i+1:]...))
	}
	return size
}

// lastCount finds the newest answer whose usage the provider counted, and which
// was given for the context as it is now.
func (r *run) lastCount() (int, *Usage) {
	var since int64
	if len(r.context) > 0 {
		since = summaryTime(r.context[0])
	}
	for i := len(r.context) - 1; i >= 0; i-- {
		a, ok := r.context[i].(*AssistantMessage)
		if !ok || a.StopReason == StopError || a.StopReason == StopAborted || a.Usage.Estimated || a.Usage.TotalTokens == 0 {
			continue
		}
		if since > 0 && a.Timestamp <= since {
			break // it counts what the summary has replaced
		}
		return i, &a.Usage
	}
	return 0, nil
}

// A server that drops the head of a conversation without a word reports fewer
// tokens than it was sent. No tokenizer packs sixteen bytes into a token.
const (
	truncationFactor = 4
	truncationMin    = 8192 // tokens, estimated; below it nothing is concluded
)

// silentWindow is the window of a server that is seen to truncate, 0 if none is.
func (r *run) silentWindow() int64 {
	i, u := r.lastCount()
	if u == nil {
		return 0
	}
	sent, counted := r.fixedTokens()+EstimateTokens(r.context[:i]...), u.Input+u.CacheRead+u.CacheWrite
	if counted == 0 || sent < truncationMin || sent < truncationFactor*counted {
		return 0
	}
	return counted + u.Output
}
