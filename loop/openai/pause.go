package openai

import (
	"crypto/sha256"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// Limiter lets a key rest that a provider has told to wait: all requests of
// the process with the same endpoint and key are held back then, not only the
// one that was told. A request that is held back fails at once with a
// [loop.ModelError] that is Paused, so that the wait is the loop's and is seen.
// The zero value is ready; it may be used by any number of models. Between
// processes nothing is shared: each learns of the limit by its own first 429.
type Limiter struct {
	mu    sync.Mutex
	until map[limitKey]time.Time
}

// limitKey is an endpoint and a key's digest: the key itself is kept nowhere.
type limitKey struct {
	baseURL string
	key     [sha256.Size]byte
}

// processLimiter is shared by the models that have no Limiter of their own.
var processLimiter Limiter

func newLimitKey(baseURL, key string) limitKey {
	return limitKey{baseURL, sha256.Sum256([]byte(key))}
}

// rest notes an answer that says how long to wait.
func (l *Limiter) rest(k limitKey, e *loop.ModelError) {
	if e.Status != http.StatusTooManyRequests || e.RetryAfter <= 0 {
		return
	}
	until := time.Now().Add(e.RetryAfter)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until == nil {
		l.until = map[limitKey]time.Time{}
	}
	if until.After(l.until[k]) {
		l.until[k] = until
	}
}

// paused is the error of a request that must not be sent now, nil if it may.
// Those that wait come back one after the other, within a tenth of the wait
// and at least 100 ms, so that they are not the next burst.
func (l *Limiter) paused(k limitKey) *loop.ModelError {
	l.mu.Lock()
	until, ok := l.until[k]
	left := time.Until(until)
	if ok && left <= 0 {
		delete(l.until, k)
	}
	l.mu.Unlock()
	if left <= 0 {
		return nil
	}
	spread := max(left/10, 100*time.Millisecond)
	return &loop.ModelError{
		Class: classRateLimited, Status: http.StatusTooManyRequests, Retryable: true, Paused: true,
		RetryAfter: left + time.Duration(rand.Int64N(int64(spread))),
		Message:    "429 not sent: the provider has told another request with this key to wait",
	}
}
