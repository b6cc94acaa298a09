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
	// cache the key, as [CachedAccessKey] does. With a rate limiter, it is called before the wait
	// and after it; see [WithRateLimiter].
	//
	// rejected is the key that the service has rejected in this call, or empty. A source that
	// already has another key should return it without a new fetch. If it returns the rejected key
	// again, the call returns the error of its last attempt. An error ends the call with a
	// [*RequestError], which wraps it unless the context has ended. A key that is returned with an
	// error is redacted.
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

func (f AccessKeyFunc) check() error {
	if f == nil {
		return errors.New("the AccessKeyFunc is nil")
	}
	return nil
}

// AccessKeyTimeout is the timeout of each fetch of [CachedAccessKey].
const AccessKeyTimeout = 30 * time.Second

// CachedAccessKey returns a source that caches the key that fetch returns, until the key expires or
// is rejected. A zero expiry means that the key does not expire.
//
// A call that comes less than early before the expiry of a key starts fetch in the background, at
// most once a second, and gets the old key. early should be longer than the time between two calls,
// and shorter than the validity of a key.
//
// After a rejection, fetch starts at most once a second: if the service rejects every key, a fetch for
// each call would be a burden, and may invalidate the keys of other programs. Until then, the source
// returns the rejected key again, so a call returns the response that rejected its key, after one
// attempt. The first fetch, and a fetch after an expiry, are not limited.
//
// If fetch fails, the callers that wait get its error, and the next caller that needs a key starts
// fetch again: fetch itself should retry transient failures. Its panic is re-raised in the waiting
// callers or, without any, in the next one.
//
// The context of fetch has the values of the caller that starts it. It ends with fetch, or after
// [AccessKeyTimeout]. After a timeout, callers that need a key get an error until fetch returns. The
// expiry is compared with the wall clock. If fetch is nil, [NewClient] returns an error.
func CachedAccessKey(
	fetch func(context.Context) (key string, expires time.Time, err error),
	early time.Duration,
) *AccessKeyCache {
	return &AccessKeyCache{keycache.New(fetch, early, AccessKeyTimeout)}
}

// An AccessKeyCache is the [AccessKeySource] that [CachedAccessKey] returns. It is safe for
// concurrent use; concurrent callers share one call of fetch.
type AccessKeyCache struct {
	cache *keycache.Cache
}

// AccessKey returns the cached key. Without a valid one, it waits for fetch.
func (c *AccessKeyCache) AccessKey(ctx context.Context, rejected string) (string, error) {
	if err := c.check(); err != nil {
		return "", err
	}
	return c.cache.AccessKey(ctx, rejected)
}

func (c *AccessKeyCache) check() error {
	if c == nil || c.cache == nil {
		return errors.New("the AccessKeyCache was not made by CachedAccessKey")
	}
	return c.cache.Check()
}

// Set replaces the cached key, such as by one that another process fetched. Callers that wait for a
// fetch get it, too. It ignores a key that has expired, that no header can hold, or that was
// rejected last.
func (c *AccessKeyCache) Set(key string, expires time.Time) {
	if c != nil && c.cache != nil { // otherwise, AccessKey returns an error
		c.cache.Set(key, expires)
	}
}

// SetMinInterval sets the minimum time between two fetches that a rejection causes. The default is one
// second. 0 is for a fetch that waits itself, such as one that shares keys with other processes. Call
// SetMinInterval before the cache is used.
func (c *AccessKeyCache) SetMinInterval(d time.Duration) {
	if c != nil && c.cache != nil {
		c.cache.MinInterval = d
	}
}
