package call

import (
	"math"
	"sync"
)

// A quota is a bucket of tokens for the retries of all calls of a client. A retry takes a token, but not the
// attempt with another key after a rejection, and each attempt that succeeds gives one back. So retries
// exceed the successful attempts by at most the size of the bucket.
//
// A permanent failure gives none back. If it did, a service that fails transiently and permanently in turn
// would get a retry for each call. Nor does a cancellation. If it did, the calls of callers that soon stop
// waiting for a silent service would be retried without limit.
type quota struct {
	mu      sync.Mutex
	tokens  int
	size    int
	perCall int // size grows to this number of tokens per concurrent call; 0: size is fixed
	calls   int // that run now
}

// The default quota. Fewer tokens per concurrent call would not outlast a short outage; more would multiply
// the load of a long one.
const (
	minQuota     = 1000
	quotaPerCall = 8
)

// newQuota returns a full bucket. If size is 0, it has the default size, which grows with the number of
// concurrent calls. If size is negative, the bucket is never empty.
func newQuota(size int) *quota {
	q := &quota{size: size}
	if size == 0 {
		q.size, q.perCall = minQuota, quotaPerCall
	}
	if size < 0 {
		q.size = math.MaxInt
	}
	q.tokens = q.size
	return q
}

// begin counts a running call. The bucket grows if it has fewer tokens than perCall for each running call.
func (q *quota) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls++
	growth := max(0, q.calls*q.perCall-q.size)
	q.size += growth
	q.tokens += growth
}

// end is called when a call ends, so that the next one does not make the quota grow.
func (q *quota) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls--
}

// take takes a token for a retry, and reports whether there was one.
func (q *quota) take() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tokens == 0 {
		return false
	}
	q.tokens--
	return true
}

func (q *quota) giveBack() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tokens < q.size {
		q.tokens++
	}
}
