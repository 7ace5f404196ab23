package loop

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// Compaction replaces the older part of a context that has become too long by
// a summary. It happens before a request that would not leave enough room, and
// after one that the provider refused as too long; at most twice in a turn, and
// only if the context gets shorter by it. The messages themselves stay in the
// log: only what the model is sent changes.
type Compaction struct {
	// Window is the model's context in tokens; 0 means ModelInfo.ContextWindow.
	// If that is unknown too, only a refusal, or a server that is seen to drop
	// what it is sent, leads to a compaction.
	Window int64
	// Reserve is the part of the window that is kept free, in tokens; 0 means
	// 16384, but never more than a quarter of the window.
	Reserve int64
	// Keep is how much of the newest messages stays as it is, in tokens; 0 means
	// 20000, but never more than a quarter of the window.
	Keep int64
	// Summarize writes the summary of messages; nil asks Config.Model.
	Summarize func(ctx context.Context, messages []Message) (string, error)
}

const (
	defaultReserve = 16384
	defaultKeep    = 20000
	maxCompactions = 2 // in one turn
)

// The summary's message: what the model is told it is looking at.
const (
	summaryHead = "What happened so far in this conversation, in short, because it has become too long to be kept:\n\n<summary>\n"
	summaryTail = "\n</summary>"
)

// message is the summary as the context has it.
func (c *Compacted) message() *UserMessage {
	m := NewUserText(summaryHead + c.Summary + summaryTail)
	m.Timestamp = c.Timestamp
	return m
}

// summaryTime is when the summary that m is was written; 0 if it is none.
func summaryTime(m Message) int64 {
	u, ok := m.(*UserMessage)
	if !ok || len(u.Content) != 1 {
		return 0
	}
	if t, ok := u.Content[0].(*Text); ok && strings.HasPrefix(t.Text, summaryHead) {
		return u.Timestamp
	}
	return 0
}

// compactor compacts the context of one turn.
type compactor struct {
	*run
	count int
}

// window is how much the model takes, in tokens; 0 unknown.
func (c *compactor) window() (int64, CompactionReason) {
	window := c.cfg.Compaction.Window
	if window == 0 {
		window = c.cfg.Model.Info().ContextWindow
	}
	if silent := c.silentWindow(); silent > 0 && (window == 0 || silent < window) {
		return silent, CompactionTruncated
	}
	return window, CompactionThreshold
}

// part is a share of the window: as configured, at most a quarter of it.
func part(configured, zero, window int64) int64 {
	if configured == 0 {
		configured = zero
	}
	if window > 0 {
		configured = min(configured, window/4)
	}
	return configured
}

// ahead compacts before a request that would not leave enough room. not ok:
// the consumer has broken off.
func (c *compactor) ahead(ctx context.Context) (ok bool) {
	if c.cfg.Compaction == nil {
		return true
	}
	for c.count < maxCompactions && ctx.Err() == nil {
		window, reason := c.window()
		if window == 0 || c.contextSize() <= window-part(c.cfg.Compaction.Reserve, defaultReserve, window) {
			return true
		}
		if done, ok := c.compact(ctx, reason, window); !done || !ok {
			return ok
		}
	}
	return true
}

// overflowed says that msg is a refusal which a compaction may help against.
func (c *compactor) overflowed(ctx context.Context, msg *AssistantMessage) bool {
	if c.cfg.Compaction == nil || msg.StopReason != StopError || ctx.Err() != nil || c.count >= maxCompactions {
		return false
	}
	me, ok := errors.AsType[*ModelError](msg.Err)
	return ok && me.Class == "context_overflow"
}

// instead compacts in place of the attempt a, which was refused with msg, and
// takes back what was streamed of it. compacted: the request is to be made anew.
func (c *compactor) instead(ctx context.Context, a *attempt, msg *AssistantMessage) (compacted, ok bool) {
	if a.started {
		if !c.emit(&MessageDiscarded{Reason: msg.ErrorMessage}) {
			return false, false
		}
		a.started = false
	}
	window, _ := c.window()
	return c.compact(ctx, CompactionOverflow, window)
}

// compact summarises once. done: the context is shorter now. not ok: the
// consumer has broken off.
func (c *compactor) compact(ctx context.Context, reason CompactionReason, window int64) (done, ok bool) {
	before := c.fixedTokens() + EstimateTokens(c.context...)
	room := window
	if room == 0 || reason == CompactionOverflow {
		room = min(before, max(window, before/2)) // it did not fit, whatever the window is said to be
	}
	cut := c.cut(part(c.cfg.Compaction.Keep, defaultKeep, room))
	if cut == 0 {
		return false, true
	}
	c.count++
	if !c.emit(&CompactionStart{Reason: reason}) {
		return false, false
	}
	end := &CompactionEnd{Reason: reason}
	text, err := c.summarize(ctx, c.context[:cut], room, &end.Usage)
	if c.broken {
		return false, false
	}
	result := &Compacted{
		Summary: text, Kept: len(c.context) - cut, TokensBefore: before, Timestamp: time.Now().UnixMilli(),
	}
	shorter := append([]Message{result.message()}, c.context[cut:]...)
	result.TokensAfter = c.fixedTokens() + EstimateTokens(shorter...)
	switch {
	case err != nil:
		end.ErrorMessage, end.Aborted = err.Error(), ctx.Err() != nil
	case result.TokensAfter >= before:
		end.ErrorMessage = "the summary is not shorter than what it stands for"
	default:
		c.context = shorter
		end.Result, end.WillRetry = result, reason == CompactionOverflow
	}
	return end.Result != nil, c.emit(end)
}

// cut is where the kept part of the context begins: as early as it has at most
// keep tokens, never at a tool's result, whose call would be missing. 0: there
// is nothing to summarise.
func (c *compactor) cut(keep int64) int {
	var size int64
	at := 0
	for i, m := range slices.Backward(c.context) {
		size += EstimateTokens(m)
		if i == 0 || at != 0 && size > keep {
			break
		}
		if _, result := m.(*ToolResultMessage); !result {
			at = i
		}
	}
	if at == 1 && summaryTime(c.context[0]) > 0 {
		return 0 // a summary of the summary alone
	}
	return at
}
