// Package keycache caches one access key for concurrent callers. It knows neither requests nor where keys
// come from.
//
// The cache fetches a key if it has none that is valid, and after a caller has reported the key as rejected,
// but then at most once in each MinInterval. The key that fetch returns is valid, even if it is the same one;
// if fetch fails, the old key stays in use until it expires.
package keycache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/redact"
)

// A Config has the settings of a cache, as in msgpush.CachedAccessKey.
type Config struct {
	Fetch       func(context.Context) (key string, expires time.Time, err error)
	Early       time.Duration
	MinInterval time.Duration // 0 means none
	Timeout     time.Duration // of a fetch
	OnError     func(error)
}

// A Cache implements msgpush.AccessKeyCache, whose documentation states its behaviour.
type Cache struct {
	Config

	mu     sync.Mutex
	*state // guarded by mu
}

// A state is a separate struct, behind a pointer, so that fmt cannot print the keys of a Cache in an
// unexported field: with a verb such as %s, it prints the struct that a pointer in the field points to, but a
// pointer in that struct as an address.
type state struct {
	key          string        // empty: none
	keyNumber    int           // of the fetch of key; for a key of Set, of the latest fetch before Set
	expires      time.Time     // without a monotonic clock, which stops while the machine sleeps; zero: never
	renewAfter   time.Time     // no renewal begins before this time
	replaceAfter time.Time     // no fetch because of a rejection begins before this time
	begun        time.Time     // when the latest fetch began
	hasFailed    bool          // the latest fetch that has ended
	current      *pendingFetch // nil: none
	started      int           // number of fetches so far
	running      int           // number of fetches that have not returned
}

// renewalPause is the minimum time from a fetch to the next renewal of a valid key. Without it, each call
// would begin a renewal while fetch fails.
const renewalPause = time.Second

// failurePause is the minimum time from the begin of a fetch that failed to the next one. Without it, a
// service that makes a thousand calls a second would call a key service that is down as often.
const failurePause = 100 * time.Millisecond

// MaxRunning is the maximum number of fetches that have not returned: each of them has a goroutine.
const MaxRunning = 10

// New returns a cache without a key.
func New(config Config) *Cache { return &Cache{Config: config, state: new(state)} }

// A pendingFetch is a call of fetch, for which several callers may wait.
//
// It is the current one from its start until it returns, exceeds its timeout, or Set is called. Meanwhile, no
// other fetch starts. A fetch may ignore its context and return later. Then its key is stored, unless there
// is a newer one, and nothing else happens.
type pendingFetch struct {
	number   int           // 1 for the first fetch
	replaced string        // the key that was reported as rejected; empty: none
	done     chan struct{} // closed after OnError has returned, when key and err are set
	key      string        // also after an error, whose text may contain it
	err      error
}

// fetchOf is the key of a value of the context of fetch.
type fetchOf struct{ *Cache }

var errOwnKey = errors.New("fetch of CachedAccessKey makes a call that needs the key it fetches: " +
	"make that call with another client")

// AccessKey implements msgpush.AccessKeySource.
func (c *Cache) AccessKey(ctx context.Context, rejected string) (string, error) {
	key, f, err := c.get(ctx, rejected)
	if f == nil {
		return key, err
	}
	if ctx.Value(fetchOf{c}) != nil {
		return "", errOwnKey
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if p, ok := f.err.(*errs.Panic); ok { //nolint:errorlint // not wrapped
		panic(p.Value) // OnError has got its stack
	}
	key, err = f.key, f.err
	if err != nil {
		key, err = c.keyAfterFailure(f)
	}
	// A fetch that began before the rejection, such as a renewal, may leave the rejected key. Now a fetch for
	// the rejection may begin.
	predatesRejection := f.replaced != rejected
	if err == nil && predatesRejection && key == rejected {
		return c.AccessKey(ctx, rejected)
	}
	return key, err
}

// keyAfterFailure returns the key that is still valid after a fetch that failed or, if there is none, the
// outcome of the fetch.
func (c *Cache) keyAfterFailure(f *pendingFetch) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isValid() {
		return c.key, nil
	}
	return f.key, f.err
}

// isValid reports whether there is a key that has not expired.
func (c *Cache) isValid() bool { return c.key != "" && !endsWithin(0, c.expires) }

// endsWithin reports whether a key expires within a duration. The zero time stands for never.
func endsWithin(d time.Duration, expires time.Time) bool {
	return !expires.IsZero() && time.Until(expires) <= d
}

// get returns the key, or the call of fetch to wait for. It starts one if one is needed. It returns an error
// if there is no key, and too many fetches have not returned.
func (c *Cache) get(ctx context.Context, rejected string) (string, *pendingFetch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isValid, now := c.isValid(), time.Now()
	isRejected := isValid && c.key == rejected
	if f := c.current; f != nil {
		isUsable := isValid && !isRejected && c.key != f.replaced
		if isUsable {
			return c.key, nil, nil
		}
		return "", f, nil
	}
	if c.running == MaxRunning {
		if isValid {
			return c.key, nil, nil
		}
		return "", nil, c.timeoutError(context.DeadlineExceeded)
	}
	isRenewalDue := endsWithin(c.Early, c.expires) && !now.Before(c.renewAfter)
	switch {
	case !isValid:
		return "", c.start(ctx, rejected), nil
	case isRejected && !now.Before(c.replaceAfter):
		c.replaceAfter = now.Add(c.MinInterval)
		return "", c.start(ctx, rejected), nil
	case !isRejected && isRenewalDue:
		c.start(ctx, "") // the caller does not wait for it
	}
	return c.key, nil, nil
}

// start starts a call of fetch in the background. Its context does not end with the caller's, since other
// callers wait for it, too.
func (c *Cache) start(ctx context.Context, replaced string) *pendingFetch {
	ctx = context.WithValue(context.WithoutCancel(ctx), fetchOf{c}, true)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	c.started++
	c.running++
	f := &pendingFetch{number: c.started, replaced: replaced, done: make(chan struct{})}
	c.current = f
	stop := context.AfterFunc(ctx, func() { // fetch may ignore its context
		c.end(f, "", c.timeoutError(ctx.Err()))
	})
	pause := time.Duration(0)
	if c.hasFailed {
		pause = max(0, time.Until(c.begun.Add(failurePause)))
	}
	c.begun = time.Now().Add(pause)
	go func() {
		defer cancel()
		defer stop()
		time.Sleep(pause)
		c.run(ctx, f)
	}()
	return f
}

// run calls fetch, and stores its key even if f has exceeded its timeout: the key may be good.
func (c *Cache) run(ctx context.Context, f *pendingFetch) {
	key, expires, err := "", time.Time{}, errors.New("fetch did not return")
	defer func() { // runs even if fetch panics or calls runtime.Goexit
		if p := errs.Recovered(recover()); p != nil {
			err = p
		}
		c.store(f, key, expires, err)
		c.end(f, key, err)
		c.returned()
	}()
	key, expires, err = c.Fetch(ctx)
	if err == nil {
		err = checkKey(key, expires)
	} else if ctx.Err() != nil {
		err = c.timeoutError(err)
	}
}

// checkKey returns an error for a key that a header cannot have, or that has expired.
func checkKey(key string, expires time.Time) error {
	if err := httpspec.CheckKey("the key", key); err != nil {
		return err
	}
	if endsWithin(0, expires.Round(0)) {
		return fmt.Errorf("the key expired at %v", expires)
	}
	return nil
}

// returned counts a fetch whose OnError has returned, too: it may block.
func (c *Cache) returned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
}

// store stores the key of f, unless there is a newer one.
func (c *Cache) store(f *pendingFetch, key string, expires time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isNewest := f.number > c.keyNumber
	if err == nil && isNewest {
		c.key, c.keyNumber, c.expires = key, f.number, expires.Round(0)
	}
}

// end ends f as the current fetch, once: its timeout, its result and Set race. It reports an error, and
// returns the outcome to the callers that wait for f.
func (c *Cache) end(f *pendingFetch, key string, err error) {
	if !c.leave(f, err) {
		return
	}
	f.key, f.err = key, err
	if err != nil {
		f.err = c.report(err, key)
	}
	close(f.done)
}

// leave makes f no longer the current fetch, and reports whether it was.
func (c *Cache) leave(f *pendingFetch, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != f {
		return false
	}
	c.current = nil
	c.hasFailed = err != nil
	c.renewAfter = time.Now().Add(renewalPause)
	return true
}

// report passes an error to OnError, and returns it for the callers, both without keys in its text. A panic
// stays one.
func (c *Cache) report(err error, key string) error {
	var keys redact.Keys
	keys.Add(key)
	c.mu.Lock()
	keys.Add(c.key)
	c.mu.Unlock()
	text := keys.Text(err.Error())
	if c.OnError != nil {
		c.OnError(errs.Hide("access key: "+text, err))
	}
	if _, isPanic := err.(*errs.Panic); isPanic { //nolint:errorlint // not wrapped
		return err
	}
	return errs.Hide(text, err)
}

// Set implements msgpush.AccessKeyCache.Set.
func (c *Cache) Set(key string, expires time.Time) error {
	if err := checkKey(key, expires); err != nil {
		return err
	}
	c.mu.Lock()
	c.key, c.keyNumber, c.expires = key, c.started, expires.Round(0)
	f := c.current
	c.mu.Unlock()
	if f != nil {
		c.end(f, key, nil)
	}
	return nil
}

// timeoutError wraps cause. Without more text, it would look like the timeout of a caller.
func (c *Cache) timeoutError(cause error) error {
	return fmt.Errorf("fetch did not return within %v, the timeout of CachedAccessKey: %w", c.Timeout, cause)
}
