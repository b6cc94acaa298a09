package call

import (
	"math"
	"sync"
	"time"
)

// A retryQuota is a bucket of tokens for the retries of all calls of a client.
//
// A retry takes tokensPerRetry, and gives them back unless it fails transiently or at its deadline.
// A call adds tokensPerCall, unless its first attempt fails transiently or is interrupted by the
// end of its context. After a second in which at least half of the first attempts did not fail
// transiently, max/refillSeconds tokens are added, but at least the tokens of one retry. Without
// this condition, the bucket would be refilled in a lasting partial outage. While all attempts fail
// transiently, only a new maximum of concurrent calls adds tokens, since it raises max.
type retryQuota struct {
	mu          sync.Mutex
	tokens, max int
	perCall     int // max grows to this number of tokens per concurrent call; 0: max is fixed
	calls       int // that run now

	// The Unix time of the latest refill. In this second, failed first attempts failed transiently;
	// succeeded ones did not.
	second            int64
	succeeded, failed int
}

const (
	tokensPerRetry = 10
	tokensPerCall  = 1
	refillSeconds  = 20

	// The default quota. Fewer retries per concurrent call would not outlast a short outage; more
	// would multiply the load of a long one.
	minQuota     = 1000
	quotaPerCall = 8
)

// newRetryQuota returns a full bucket for a number of retries. If the number is 0, the bucket has
// the default size, which grows with the number of concurrent calls. If it is negative, the bucket
// has the largest possible size.
func newRetryQuota(retries int) *retryQuota {
	q := &retryQuota{}
	if retries == 0 {
		retries, q.perCall = minQuota, quotaPerCall*tokensPerRetry
	}
	const most = math.MaxInt / tokensPerRetry / 2 // so that no sum overflows
	if retries < 0 || retries > most {
		retries = most
	}
	q.max = retries * tokensPerRetry
	q.tokens = q.max
	return q
}

// begin counts a call that begins, which may raise max.
func (q *retryQuota) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls++
	growth := max(0, q.calls*q.perCall-q.max)
	q.max += growth
	q.tokens += growth
}

// end counts a call that ends, and gives back the tokens of a retry that it has not made.
func (q *retryQuota) end(tokens int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls--
	q.add(tokens)
}

// giveBack is add for callers that do not hold mu.
func (q *retryQuota) giveBack(tokens int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(tokens)
}

// add is called with mu held.
func (q *retryQuota) add(tokens int) { q.tokens = min(q.tokens+tokens, q.max) }

// take takes n tokens if there are that many, and reports whether it did.
func (q *retryQuota) take(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refill()
	if q.tokens < n {
		return false
	}
	q.tokens -= n
	return true
}

// count counts the first attempt of a call. failed means that it failed transiently; otherwise, the
// call adds its tokens.
func (q *retryQuota) count(failed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refill()
	if failed {
		q.failed++
		return
	}
	q.succeeded++
	q.add(tokensPerCall)
}

// refill adds the tokens of the second of its latest call, once that second is over.
func (q *retryQuota) refill() {
	now := time.Now().Unix()
	if now == q.second {
		return
	}
	if q.succeeded > 0 && q.succeeded >= q.failed {
		q.add(max(tokensPerRetry, q.max/refillSeconds))
	}
	q.second, q.succeeded, q.failed = now, 0, 0
}
