// Package keycache caches one access key for concurrent callers, and replaces it when it expires or
// is rejected. It knows neither requests nor where keys come from.
package keycache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/msgpush/internal/httpspec"
)

// A Cache implements msgpush.CachedAccessKey, whose documentation states its behaviour.
type Cache struct {
	// MinInterval is the minimum time between the beginnings of two fetches because of a rejection.
	MinInterval time.Duration

	fetch   func(context.Context) (key string, expires time.Time, err error)
	early   time.Duration
	timeout time.Duration

	mu     sync.Mutex
	*state // guarded by mu
}

// A state is a separate struct, behind a pointer, so that fmt cannot print the keys of a Cache in
// an unexported field: with a verb such as %s, it prints the struct that a pointer in the field
// points to, but a pointer in that struct as an address.
type state struct {
	key          string        // empty: none
	expires      time.Time     // without a monotonic clock, which stops while the machine sleeps; zero: never
	isRejected   bool          // key was rejected
	rejected     string        // the key that was rejected last
	renewAfter   time.Time     // no renewal begins before this time
	replaceAfter time.Time     // no fetch because of a rejection begins before this time
	current      *pendingFetch // in progress, or with a panic that no caller has seen
}

// renewalPause is the minimum time from a fetch to the next renewal of a valid key. Without it,
// each call would begin a renewal while fetch fails.
const renewalPause = time.Second

// defaultMinInterval is the MinInterval of a new cache. Without it, each call would begin a fetch
// while the service rejects every key.
const defaultMinInterval = time.Second

// New returns a cache of the keys that fetch returns. timeout limits each call of fetch.
func New(
	fetch func(context.Context) (key string, expires time.Time, err error),
	early, timeout time.Duration,
) *Cache {
	return &Cache{
		MinInterval: defaultMinInterval,
		fetch:       fetch,
		early:       early,
		timeout:     timeout,
		state:       new(state),
	}
}

// Check returns an error if the cache cannot get a key.
func (c *Cache) Check() error {
	if c.fetch == nil {
		return errors.New("CachedAccessKey: fetch is nil")
	}
	return nil
}

// A pendingFetch is a call of fetch, for which several callers may wait.
type pendingFetch struct {
	rejected string          // the rejected key of the caller that started the fetch
	ctx      context.Context // of fetch

	// These are guarded by mu of the cache.
	replaced bool          // Set has cached a key since: the result is not cached
	set      chan struct{} // closed, and replaced by another one, when a key is set

	done  chan struct{} // closed when the fields below are set
	key   string
	err   error
	panic any // not nil if fetch panicked
}

// AccessKey implements msgpush.AccessKeySource.
func (c *Cache) AccessKey(ctx context.Context, rejected string) (string, error) {
	for {
		key, fetching := c.get(ctx, rejected)
		if fetching == nil {
			return key, nil
		}
		key, err := c.wait(ctx, fetching, rejected)
		if key != "" || err != nil {
			return key, err
		}
		if fetching.panic != nil {
			c.forget(fetching)
			panic(fetching.panic)
		}
		// A fetch that began before the rejection may return the rejected key. Or it returns an older
		// one: then, the rejected key was set during the fetch. In both cases, fetch again.
		beganBefore := fetching.rejected != rejected
		isOutdated := beganBefore && (fetching.key == rejected || fetching.replaced)
		if fetching.err != nil || !isOutdated {
			return fetching.key, fetching.err
		}
	}
}

// Set implements msgpush.AccessKeyCache.Set.
func (c *Cache) Set(key string, expires time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	expires = expires.Round(0)
	hasExpired := !expires.IsZero() && time.Until(expires) <= 0
	if hasExpired || key == c.rejected || httpspec.CheckHeaderValue("the key", key) != nil {
		return
	}
	c.setKey(key, expires)
	if c.current != nil {
		c.current.replaced = true
		close(c.current.set)
		c.current.set = make(chan struct{})
	}
}

// setKey is called with mu held.
func (c *Cache) setKey(key string, expires time.Time) {
	c.key, c.expires = key, expires.Round(0)
	c.isRejected = key == c.rejected
}

// replacement returns the cached key, or "" if none was set during f, if the cached key is rejected
// or has expired, or if fetch panicked. During f, set is closed when the next key is set.
func (c *Cache) replacement(f *pendingFetch, rejected string) (key string, set <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isRejected := c.isRejected || c.key == rejected
	isUnusable := isRejected || c.expiresWithin(0) || f.panic != nil
	if !f.replaced || isUnusable {
		return "", f.set
	}
	return c.key, f.set
}

// wait waits until f is done, or until a key is set, which it returns. It fails if ctx ends, and
// after the timeout of fetch, even if fetch goes on.
func (c *Cache) wait(ctx context.Context, f *pendingFetch, rejected string) (key string, err error) {
	for {
		key, set := c.replacement(f, rejected)
		if key != "" {
			return key, nil
		}
		select {
		case <-set:
		case <-f.done:
			key, _ = c.replacement(f, rejected)
			return key, nil
		case <-ctx.Done():
			return "", ctx.Err()
		case <-f.ctx.Done():
			if err := f.ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
				return "", c.timeoutError(err)
			}
			<-f.done // fetch has returned: run closes done, then ends its context
			key, _ = c.replacement(f, rejected)
			return key, nil
		}
	}
}

// forget removes a call with a panic, which its callers re-raise.
func (c *Cache) forget(f *pendingFetch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == f {
		c.current = nil
	}
}

// get returns the key, or the call of fetch to wait for. It starts one if one is needed. If the key
// is rejected, and another fetch may not begin yet, it returns the rejected key.
func (c *Cache) get(ctx context.Context, rejected string) (string, *pendingFetch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rejected != "" && !c.isRejected { // otherwise, an older key may be rejected late
		c.rejected = rejected
		c.isRejected = c.key == rejected // other callers must not get it either
	}
	isPresent := c.key != "" && !c.expiresWithin(0)
	isValid := isPresent && !c.isRejected
	panicked := c.current != nil && c.current.panic != nil
	if isValid && c.current == nil && c.isRenewalDue() {
		c.start(ctx, rejected)
	}
	if isValid && !panicked {
		return c.key, nil
	}
	if c.current != nil {
		return "", c.current
	}
	if isPresent { // but rejected
		now := time.Now()
		if now.Before(c.replaceAfter) {
			return cmp.Or(rejected, c.key), nil
		}
		c.replaceAfter = now.Add(c.MinInterval)
	}
	c.start(ctx, rejected)
	return "", c.current
}

// isRenewalDue reports whether a valid key must be replaced before it expires.
func (c *Cache) isRenewalDue() bool {
	return c.expiresWithin(c.early) && !time.Now().Before(c.renewAfter)
}

func (c *Cache) expiresWithin(d time.Duration) bool {
	return !c.expires.IsZero() && time.Until(c.expires) <= d
}

// start starts a call of fetch in the background. Its context does not end with the caller's, since
// other callers wait for it, too.
func (c *Cache) start(ctx context.Context, rejected string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	c.current = &pendingFetch{
		rejected: rejected,
		ctx:      ctx,
		set:      make(chan struct{}),
		done:     make(chan struct{}),
		err:      errors.New("fetch did not return"),
	}
	go c.run(c.current, cancel)
}

// run calls fetch. It stores the result in f. It also caches the key, unless fetch failed or Set
// cached another.
func (c *Cache) run(f *pendingFetch, cancel context.CancelFunc) {
	defer cancel()
	var expires time.Time
	defer func() { // runs even if fetch panics or calls runtime.Goexit
		value := recover()
		c.mu.Lock()
		defer c.mu.Unlock()
		f.panic = value
		if value == nil {
			c.current = nil
		}
		if f.err == nil && !f.replaced {
			c.setKey(f.key, expires)
		}
		c.renewAfter = time.Now().Add(renewalPause)
		close(f.done)
	}()
	f.key, expires, f.err = c.fetch(f.ctx)
	if f.err == nil {
		f.err = httpspec.CheckHeaderValue("the key", f.key)
	} else if errors.Is(f.ctx.Err(), context.DeadlineExceeded) {
		f.err = c.timeoutError(f.err)
	}
}

// timeoutError wraps cause. Without more text, it would look like the timeout of a caller.
func (c *Cache) timeoutError(cause error) error {
	return fmt.Errorf("fetch did not return within %v, the timeout of CachedAccessKey: %w", c.timeout, cause)
}
