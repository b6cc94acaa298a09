package msgpush

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// An AccessKeySource returns the access key of each attempt. The API document does
// not specify how to obtain a key or how long a key is valid. A source must be safe
// for concurrent use.
type AccessKeySource interface {
	// AccessKey returns the key to send. It is called before each attempt, so a slow source
	// should cache the key, as [CachedAccessKey] does. With a rate limiter, it is called
	// before the wait for the limiter, so that the source learns of a rejection immediately,
	// and again after the wait, since the key may have been replaced; see [WithRateLimiter].
	//
	// rejected is the key that the service has rejected in this call, or empty if
	// it has rejected none. A source that already has another key should return it
	// without a new fetch. If the source returns the rejected key again, the call
	// returns the error of its last attempt, normally the [*APIError] of the
	// rejection. If the source returns an error, the call fails with a
	// [*RequestError] that wraps the error, without a retry. If it also
	// returns a key, the key is redacted in the text of the error.
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

// CachedAccessKey returns a source that caches the key that fetch returns, until the
// key expires or is rejected. A zero expiry means that the key does not expire. The
// source is safe for concurrent use; concurrent callers share one call of fetch.
//
// early is how long before its expiry a key is renewed: if early is a minute, then in the last
// minute of a key, the next call starts fetch in the background. Until fetch returns or the
// old key expires, calls get the old key. If fetch fails, the next call starts it again. There
// is no timer: early should be longer than the time between two calls. early should also be
// shorter than the validity of a key: otherwise, a call starts fetch whenever no fetch is
// running. A negative early means 0.
//
// A rejection causes at most one call of fetch. The caller waits for a fetch, unless another
// key is cached already. If fetch returns the rejected key again, the key is cached like any
// other. If fetch returns an error, all waiting callers return it, and the next caller
// without a valid key causes another fetch: fetch itself should retry transient failures. If
// fetch panics, all waiting callers panic; if no caller waits, the next caller panics, even
// if the old key is valid.
//
// If no caller waits, no caller gets the error of fetch: log or count errors in fetch itself.
//
// The context of fetch ends after [AccessKeyTimeout], or when fetch returns. After the timeout,
// the waiting callers return an error that says so, even if fetch does not return. So do
// later callers that need a new key, until fetch returns. The context has the values of the
// caller that starts fetch, but does not end with the context of a caller, since the fetch is
// shared.
func CachedAccessKey(fetch func(context.Context) (key string, expires time.Time, err error), early time.Duration) AccessKeySource {
	return AccessKeyFunc((&keyCache{fetch: fetch, early: early}).accessKey) // a function, so that fmt cannot print the key
}

type keyCache struct {
	fetch func(context.Context) (string, time.Time, error)
	early time.Duration

	mu      sync.Mutex
	key     string // empty: none
	expires time.Time
	current *keyFetch // in progress, or with a panic that no caller has seen
}

// A keyFetch is one call of fetch, for which several callers may wait.
type keyFetch struct {
	rejected string          // of the caller that started the fetch
	ctx      context.Context // of fetch

	done  chan struct{} // closed when the fields below are set
	key   string
	err   error
	panic any // not nil if fetch panicked
}

func (cache *keyCache) accessKey(ctx context.Context, rejected string) (string, error) {
	if cache.fetch == nil {
		return "", errors.New("CachedAccessKey: fetch is nil")
	}
	for {
		key, f := cache.get(ctx, rejected)
		if f == nil {
			return key, nil
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return "", ctx.Err()
		case <-f.ctx.Done():
			if err := f.ctx.Err(); errors.Is(err, context.DeadlineExceeded) { // fetch may ignore its context
				return "", fetchTimeout(err)
			}
			<-f.done
		}
		if f.panic != nil {
			cache.mu.Lock()
			if cache.current == f {
				cache.current = nil
			}
			cache.mu.Unlock()
			panic(f.panic)
		}
		// A fetch that began before the rejection may return the rejected key: fetch again.
		if f.err != nil || f.key != rejected || f.rejected == rejected {
			return f.key, f.err
		}
	}
}

// get returns the key or the fetch to wait for.
func (cache *keyCache) get(ctx context.Context, rejected string) (string, *keyFetch) {
	cache.mu.Lock()
	defer cache.mu.Unlock()
	if cache.key == rejected {
		cache.key = "" // other callers must not get it either
	}
	valid := cache.key != "" && !cache.expiresWithin(0)
	if cache.current == nil && (!valid || cache.expiresWithin(cache.early)) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), AccessKeyTimeout)
		cache.current = &keyFetch{rejected: rejected, ctx: ctx, done: make(chan struct{}), err: errors.New("fetch did not return")}
		go cache.run(cache.current, cancel)
	}
	if valid && (cache.current == nil || cache.current.panic == nil) {
		return cache.key, nil
	}
	return "", cache.current
}

func (cache *keyCache) expiresWithin(d time.Duration) bool {
	return !cache.expires.IsZero() && time.Until(cache.expires) <= d
}

// run calls fetch. It stores the result in f and, unless it is an error, in the cache.
func (cache *keyCache) run(f *keyFetch, cancel context.CancelFunc) {
	defer cancel()
	var expires time.Time
	defer func() { // runs even if fetch panics or calls runtime.Goexit
		v := recover()
		cache.mu.Lock()
		defer cache.mu.Unlock()
		if f.panic = v; v == nil {
			cache.current = nil
		}
		if f.err == nil {
			cache.key, cache.expires = f.key, expires
		}
		close(f.done)
	}()
	f.key, expires, f.err = cache.fetch(f.ctx)
	if f.err == nil {
		f.err = checkHeaderValue("the key", f.key)
	} else if errors.Is(f.ctx.Err(), context.DeadlineExceeded) {
		f.err = fetchTimeout(f.err)
	}
}

// fetchTimeout wraps cause, which by its text would look like the timeout of a caller.
func fetchTimeout(cause error) error {
	return fmt.Errorf("fetch did not return within %v, the timeout of CachedAccessKey: %w", AccessKeyTimeout, cause)
}
