package openai

import (
	"crypto/sha256"
	"encoding/hex"
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
// The zero value is ready; it may be used by any number of models. Share and
// Rest let several processes know of each other's waits.
type Limiter struct {
	mu    sync.Mutex // guards what is below
	until map[string]time.Time
	told  func(id string, wait time.Duration)
}

// shortRest is for a provider that says "too many requests" and not for how
// long: the others would only find out the same.
const shortRest = time.Second

// processLimiter is shared by the models that have no Limiter of their own.
var processLimiter Limiter

// limitID names an endpoint and a key by their digest: the key itself is kept
// nowhere.
func limitID(baseURL, key string) string {
	sum := sha256.Sum256([]byte(baseURL + "\n" + key))
	return hex.EncodeToString(sum[:16])
}

// Share has told called whenever a provider told this process to wait. It must
// not block, nor call the Limiter. The id is a digest of endpoint and key, the
// same in every process.
func (l *Limiter) Share(told func(id string, wait time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = told
}

// Rest lets a key rest, as if a request of this process had been told to wait.
func (l *Limiter) Rest(id string, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restLocked(id, wait)
}

// restLocked reports whether the key rests longer now than before.
func (l *Limiter) restLocked(id string, wait time.Duration) bool {
	until := time.Now().Add(wait)
	if wait <= 0 || !until.After(l.until[id]) {
		return false
	}
	if l.until == nil {
		l.until = map[string]time.Time{}
	}
	l.until[id] = until
	return true
}

// rest notes an answer that says to wait.
func (l *Limiter) rest(id string, e *loop.ModelError) {
	wait := e.RetryAfter
	switch {
	case e.Status != http.StatusTooManyRequests && e.Class != classOverloaded, !e.Retryable:
		return
	case wait > 0:
		e.Jitter = jitter(wait)
	case e.Status == http.StatusTooManyRequests:
		wait = shortRest
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.restLocked(id, wait) && l.told != nil {
		l.told(id, wait)
	}
}

// paused is the error of a request that must not be sent now, nil if it may.
func (l *Limiter) paused(id string) *loop.ModelError {
	l.mu.Lock()
	until, ok := l.until[id]
	left := time.Until(until)
	if ok && left <= 0 {
		delete(l.until, id)
	}
	l.mu.Unlock()
	if left <= 0 {
		return nil
	}
	return &loop.ModelError{
		Class: classRateLimited, Status: http.StatusTooManyRequests, Retryable: true, Paused: true,
		RetryAfter: left, Jitter: jitter(left),
		Message: "429 not sent: the provider has told another request with this key to wait",
	}
}

// jitter spreads those that wait, within a tenth of the wait and at least 250
// ms, so that they are not the next burst.
func jitter(wait time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(max(wait/10, 250*time.Millisecond))))
}
