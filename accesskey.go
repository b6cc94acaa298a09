package msgpush

import (
	"context"
	"errors"
	"time"

	"example.com/msgpush/internal/keycache"
)

// An AccessKeySource returns the access key of each attempt. It must be safe for concurrent use.
type AccessKeySource interface {
	// AccessKey returns the key to send. It is called before each attempt, so a slow source should
	// cache the key, as [CachedAccessKey] does. With a rate limiter, it is called before and after
	// the wait; see [WithRateLimiter].
	//
	// rejected is the key that the service has rejected in this call, or empty. A source that
	// already has another key should return it without a new fetch. If the source returns the
	// rejected key again, the call returns the error of its last attempt. If the source returns an
	// error, the call fails with a [*RequestError] that wraps the error. If it also returns a key,
	// the key is redacted in the text of the error.
	AccessKey(ctx context.Context, rejected string) (key string, err error)
}

// An AccessKeyFunc is a function used as an [AccessKeySource].
type AccessKeyFunc func(ctx context.Context, rejected string) (key string, err error)

// AccessKey calls f. If f is nil, it returns an error.
func (f AccessKeyFunc) AccessKey(ctx context.Context, rejected string) (string, error) {
	if f == nil {
		return "", errors.New("the AccessKeyFunc is nil")
	}
	return f(ctx, rejected)
}

// AccessKeyTimeout is the timeout of each fetch of [CachedAccessKey].
const AccessKeyTimeout = 30 * time.Second

// CachedAccessKey returns a source that caches the key that fetch returns, until the key expires or
// is rejected. A zero expiry means that the key does not expire. The source is safe for concurrent
// use; concurrent callers share one call of fetch.
//
// early is how long before its expiry a key is renewed: with a minute, the next call in the last
// minute of a key starts fetch in the background, while calls get the old key. It should be longer
// than the time between two calls, and shorter than the validity of a key. A negative early means
// 0.
//
// If fetch fails, the waiting callers get its error, and the next caller that needs a key starts
// fetch again: fetch itself should retry transient failures, and log them, since perhaps no caller
// waits. If fetch panics, the waiting callers panic or, if there are none, the next caller.
//
// The context of fetch has the values of the caller that starts it, and ends after
// [AccessKeyTimeout], not with a caller. From then on, callers that need a key get an error, until
// fetch returns.
func CachedAccessKey(
	fetch func(context.Context) (key string, expires time.Time, err error),
	early time.Duration,
) AccessKeySource {
	cache := keycache.New(fetch, early, AccessKeyTimeout)
	return AccessKeyFunc(cache.AccessKey) // a function: fmt would print the fields of the cache
}

var opAccessKeyObtain = Operation{Name: "AccessKeyObtain", Title: "access key: obtain"}

// AccessKeyObtain is not implemented. Experimental: will change.
func (c *Client) AccessKeyObtain(context.Context) error { return opAccessKeyObtain.stub() }
