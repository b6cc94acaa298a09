package msgpush

import (
	"context"
	"errors"
	"sync"
	"time"
)

// An AccessKeySource returns the access key of each attempt. The API document does
// not specify how to obtain a key or how long a key is valid. A source must be safe
// for concurrent use.
type AccessKeySource interface {
	// AccessKey returns the key to send. It is called before each attempt, after the
	// wait for the rate limiter. With a limiter, it is also called before that wait if
	// the service has just rejected the key, so that queued calls get the new key.
	//
	// rejected is the key that the service has rejected in this call, or empty if
	// it has rejected none. A source that already has another key should return it
	// without a new fetch. If the source returns the rejected key again, the call
	// returns the error of its last attempt, normally the [*APIError] of the
	// rejection. If the source returns an error, the call fails with a
	// [*RequestError] that wraps the error.
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

// CachedAccessKey returns a source that caches the key that fetch returns, until the
// key expires or is rejected. A zero expiry means that the key does not expire. The
// source is safe for concurrent use; concurrent callers share one call of fetch.
//
// early is how long before its expiry a key is renewed: the first call in that time
// starts fetch in the background. Until fetch returns or the old key expires, calls
// get the old key. If fetch fails, the next call starts it again. There is no
// timer: early should be longer than the time between two calls. A negative early
// means 0. early should be much shorter than the validity of a key, since otherwise
// every call starts a fetch.
//
// A rejection causes at most one call of fetch. Callers whose key is rejected while
// fetch runs wait for its result. If fetch returns the rejected key again, later
// calls get that key, and only another rejection causes another fetch. If fetch
// returns an error, all waiting callers return it, and the next caller causes another
// fetch. If fetch panics, all waiting callers panic; if no caller waits, the next
// caller panics.
//
// The context of fetch ends after [DefaultTimeout]. It does not end with the context
// of a caller, since the fetch is shared.
func CachedAccessKey(fetch func(context.Context) (key string, expires time.Time, err error), early time.Duration) AccessKeySource {
	c := &keyCache{fetch: fetch, early: early}
	return AccessKeyFunc(c.accessKey) // a function, so that fmt cannot print the key
}

type keyCache struct {
	fetch func(context.Context) (string, time.Time, error)
	early time.Duration

	mu      sync.Mutex
	key     string // empty: none
	expires time.Time
	current *keyFetch // in progress, or with a panic that no caller has seen
}

// A keyFetch is one call of fetch.
type keyFetch struct {
	rejected string // the rejected key that caused the fetch, if any

	done  chan struct{} // closed when the fields below are set
	key   string
	err   error
	panic any // not nil if fetch panicked
}

func (c *keyCache) accessKey(ctx context.Context, rejected string) (string, error) {
	if c.fetch == nil {
		return "", errors.New("CachedAccessKey: fetch is nil")
	}
	for {
		key, f := c.get(ctx, rejected)
		if f == nil {
			return key, nil
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if f.panic != nil {
			c.mu.Lock()
			if c.current == f {
				c.current = nil
			}
			c.mu.Unlock()
			panic(f.panic)
		}
		// A fetch that began before the rejection may return the rejected key.
		if f.err != nil || f.key != rejected || f.rejected == rejected {
			return f.key, f.err
		}
	}
}

// get returns the key or the fetch to wait for.
func (c *keyCache) get(ctx context.Context, rejected string) (string, *keyFetch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key == rejected {
		c.key = "" // other callers must not get it either
	}
	valid := c.key != "" && !c.expiresWithin(0)
	if c.current != nil && c.current.panic != nil {
		return "", c.current
	}
	if c.current == nil && (!valid || c.expiresWithin(c.early)) {
		c.current = &keyFetch{rejected: rejected, done: make(chan struct{}), err: errors.New("fetch did not return")}
		go c.run(context.WithoutCancel(ctx), c.current)
	}
	if valid {
		return c.key, nil
	}
	return "", c.current
}

func (c *keyCache) expiresWithin(d time.Duration) bool {
	return !c.expires.IsZero() && time.Until(c.expires) <= d
}

// run calls fetch and stores its result.
func (c *keyCache) run(ctx context.Context, f *keyFetch) {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	defer func() { // runs even if fetch panics or calls runtime.Goexit
		v := recover()
		c.mu.Lock()
		defer c.mu.Unlock()
		f.panic = v
		if f.panic == nil {
			c.current = nil
		}
		close(f.done)
	}()
	key, expires, err := c.fetch(ctx)
	if err == nil {
		err = checkHeaderValue("the key", key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.key, f.err = key, err
	if err == nil {
		c.key, c.expires = key, expires
	}
}
