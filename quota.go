package msgpush

import (
	"math"
	"sync"
	"time"
)

// A retryQuota is a bucket of tokens for the retries of all calls of a client.
type retryQuota struct {
	mu          sync.Mutex
	tokens, max int
	perCall     int   // max grows to this number of tokens per concurrent call; 0: max is fixed
	calls       int   // that run now
	refilled    int64 // the Unix second of the last refill; see refillSeconds
}

// A retry takes tokensPerRetry, and returns them unless it fails transiently. A call adds
// tokensPerCall, unless its first attempt fails transiently or its context ends. The first such
// call of a second also adds a part of max, 1/refillSeconds, in whole retries. While all attempts
// fail transiently, only a higher number of concurrent calls adds tokens, since it raises max.
const tokensPerRetry, tokensPerCall, refillSeconds = 10, 1, 20

// The default quota. Fewer retries per concurrent call would not outlast a short outage;
// more would multiply the load of a long one.
const minQuota, quotaPerCall = 1000, 8

// newRetryQuota returns a full bucket for a number of retries. If the number is 0, the
// bucket has the default size, which grows with the number of concurrent calls. If it is
// negative, the bucket has the largest possible size.
func newRetryQuota(retries int) *retryQuota {
	q := &retryQuota{}
	if retries == 0 {
		retries, q.perCall = minQuota, quotaPerCall*tokensPerRetry
	}
	q.max = int(min(uint(retries), math.MaxInt/tokensPerRetry-1)) * tokensPerRetry // as a uint, a negative number is larger than any int
	q.tokens = q.max
	return q
}

// add adds n, which may be negative, to the number of calls that run, and returns tokens that
// were taken.
func (q *retryQuota) add(n, tokens int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls += n
	growth := max(0, q.calls*q.perCall-q.max)
	q.max += growth
	q.tokens = min(q.tokens+growth+tokens, q.max)
}

// take takes n tokens if there are that many, and reports whether it did.
func (q *retryQuota) take(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	enough := q.tokens >= n
	if enough {
		q.tokens -= n
	}
	return enough
}

// earn adds the tokens of a call whose first attempt did not fail transiently.
func (q *retryQuota) earn() {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := tokensPerCall
	if q.tokens < q.max {
		if second := time.Now().Unix(); second != q.refilled {
			q.refilled = second
			n += q.max / tokensPerRetry / refillSeconds * tokensPerRetry // whole retries
		}
	}
	q.tokens += min(n, q.max-q.tokens)
}
