package loop

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	defaultBaseDelay     = 500 * time.Millisecond
	defaultMaxDelay      = 8 * time.Second
	defaultMaxRetryAfter = time.Minute
)

// retrier counts the attempts of one answer.
type retrier struct {
	policy *RetryPolicy
	count  int           // retries so far
	pauses int           // waits for a key that others had used up; they are no retries
	wish   time.Duration // of the provider, longer than the policy honours
}

// maxPauses bounds the waits for a key that rests, in one answer.
const maxPauses = 20

// next says whether the attempt that gave msg is to be repeated, and after
// what delay.
func (t *retrier) next(ctx context.Context, msg *AssistantMessage, started bool) (time.Duration, bool) {
	t.wish = 0
	if msg.StopReason != StopError || ctx.Err() != nil {
		return 0, false
	}
	me, ok := errors.AsType[*ModelError](msg.Err)
	if !ok || !me.Retryable || (started && !t.policy.MidStream) {
		return 0, false
	}
	longest := or(t.policy.MaxRetryAfter, defaultMaxRetryAfter)
	if me.RetryAfter > longest {
		t.wish = me.RetryAfter
		return 0, false
	}
	if me.Paused && t.policy.MaxRetries > 0 && t.pauses < maxPauses {
		t.pauses++
		return max(me.RetryAfter+me.Jitter, time.Millisecond), true
	}
	if t.count >= t.policy.MaxRetries {
		t.wish = me.RetryAfter
		return 0, false
	}
	t.count++
	if me.RetryAfter > 0 {
		return me.RetryAfter + me.Jitter, true
	}
	return t.backoff(), true
}

// backoff doubles with each retry up to the cap; a quarter of it is random,
// so that many sessions don't come back at once.
func (t *retrier) backoff() time.Duration {
	d, limit := or(t.policy.BaseDelay, defaultBaseDelay), or(t.policy.MaxDelay, defaultMaxDelay)
	for range t.count - 1 {
		if d >= limit/2 {
			d = limit
			break
		}
		d *= 2
	}
	d = min(d, limit)
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}

func (t *retrier) start(msg *AssistantMessage, delay time.Duration) *AutoRetryStart {
	ev := &AutoRetryStart{
		Attempt: t.count, MaxAttempts: t.policy.MaxRetries,
		Delay: delay, ErrorMessage: msg.ErrorMessage,
	}
	if me, ok := errors.AsType[*ModelError](msg.Err); ok {
		ev.Class = me.Class
	}
	return ev
}

func (t *retrier) end(msg *AssistantMessage) *AutoRetryEnd {
	return &AutoRetryEnd{
		Success: msg.StopReason != StopError && msg.StopReason != StopAborted,
		Attempt: t.count, FinalError: msg.ErrorMessage, RetryAfter: t.wish,
	}
}

func or(d, zero time.Duration) time.Duration {
	if d == 0 {
		return zero
	}
	return d
}

// sleep waits; false means that ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
