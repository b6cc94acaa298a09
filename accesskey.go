package msgpush

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"example.com/msgpush/internal/call"
	"example.com/msgpush/internal/keycache"
)

// An AccessKeySource returns the access key of each attempt. It must be safe for concurrent use.
type AccessKeySource interface {
	// AccessKey returns the key to send. It is called before each attempt, so a slow source should cache the
	// key, as [CachedAccessKey] does. With a rate limiter, it is called before the wait and after it; see
	// [WithRateLimiter].
	//
	// rejected is the key that the service has rejected in this call, or empty. A source that already has
	// another key should return it without a new fetch. If it returns the rejected key again, the call
	// returns the error of its last attempt. An error ends the call with a [*RequestError], which wraps
	// it, except for the error of a context that has ended. A key that is returned with an error is
	// redacted.
	AccessKey(ctx context.Context, rejected string) (key string, err error)
}

// An AccessKeyFunc is a function used as an [AccessKeySource].
type AccessKeyFunc func(ctx context.Context, rejected string) (key string, err error)

// AccessKey implements [AccessKeySource]. It returns an error if f is nil.
func (f AccessKeyFunc) AccessKey(ctx context.Context, rejected string) (string, error) {
	if err := f.check(); err != nil {
		return "", err
	}
	return f(ctx, rejected)
}

func (f AccessKeyFunc) check() error {
	if f == nil {
		return errors.New("the AccessKeyFunc is nil")
	}
	return nil
}

// keyFileWait is how long a source of [AccessKeyFile] waits for another content of its file.
const keyFileWait = 10 * time.Second

// AccessKeyFile returns a source that reads the key from a file, such as a mounted secret, before each
// attempt. Spaces, line breaks and a byte order mark around the key are left out. Replace the file by
// renaming another one: a part of a key would be sent.
//
// If the file cannot be read or is empty, or still has the rejected key, calls wait for up to ten seconds:
// a secret may be mounted after a program has started, and replaced after the key of the service. Then
// they end with the error of the file, or with the response that rejected the key. Later calls do not
// wait, until the file has changed.
//
// [NewClient] returns an error for an empty path.
func AccessKeyFile(path string) AccessKeySource { return &keyFile{path: path} }

// A keyFile is the source of [AccessKeyFile].
type keyFile struct {
	path string

	mu     sync.Mutex
	unfit  string    // the key that calls do not want, or "" if the file has none
	waitTo time.Time // for another one; zero: no call has waited
}

func (f *keyFile) check() error {
	if f.path == "" {
		return errors.New("the path of AccessKeyFile is empty")
	}
	return nil
}

// AccessKey implements [AccessKeySource].
func (f *keyFile) AccessKey(ctx context.Context, rejected string) (string, error) {
	for {
		key, err := readKey(f.path)
		isFit := err == nil && key != "" && key != rejected
		if isFit {
			f.forgetOther(key)
			return key, nil
		}
		if !time.Now().Before(f.waitEnd(key)) {
			return key, err
		}
		select {
		case <-ctx.Done():
			return key, err
		case <-time.After(time.Second):
		}
	}
}

// waitEnd returns the end of the wait that all calls share.
func (f *keyFile) waitEnd(unfit string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waitTo.IsZero() || unfit != f.unfit {
		f.unfit, f.waitTo = unfit, time.Now().Add(keyFileWait)
	}
	return f.waitTo
}

// forgetOther ends the memory of a wait for another key than the one that the file has.
func (f *keyFile) forgetOther(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if key != f.unfit {
		f.waitTo = time.Time{}
	}
}

func readKey(path string) (string, error) {
	content, err := os.ReadFile(path)
	key := strings.TrimPrefix(string(content), call.ByteOrderMark)
	return strings.TrimSpace(key), err
}

// AccessKeyTimeout is the timeout of each fetch of [CachedAccessKey].
const AccessKeyTimeout = 30 * time.Second

// AccessKeyCacheOptions are the settings of [CachedAccessKey]. The zero value is usable.
type AccessKeyCacheOptions struct {
	// Early is the time before the expiry of a key in which a call starts fetch in the background, at most
	// once a second. It should be longer than the time between two calls, and shorter than the validity of
	// a key. 0 means that fetch starts after the expiry.
	Early time.Duration
	// MinInterval is the minimum time between the beginnings of two fetches because of rejections. 0 means a
	// second. A negative value means none, for a fetch that limits itself, such as one that shares keys with
	// other processes.
	MinInterval time.Duration
	// OnError is called with the error of each fetch that fails, including renewals in the background,
	// whose errors no call returns. Keys are redacted in the text of the error. After a panic of fetch,
	// the text has its stack. nil logs the error at level Warn with [slog.Default].
	//
	// Callers wait until OnError returns, so it must not use this cache, nor a client with it. It must be
	// safe for concurrent use.
	OnError func(error)
}

// ErrNoAccessKey is wrapped by the [*RequestError] of a call whose [AccessKeySource] returned an error, or a
// key that no header can have. It shows that the source failed, and not the service.
var ErrNoAccessKey = errors.New("msgpush: no access key")

// CachedAccessKey returns a source that caches the key that fetch returns. A zero expiry means that the key
// does not expire. If fetch is nil, [NewClient] returns an error.
//
// The cache calls fetch when it has no valid key, and when the service rejects the key:
//
//   - Without a valid key, callers wait for fetch. An error of fetch ends these calls, and the next call
//     starts fetch again. So fetch itself should retry transient failures. After an error, fetch begins again
//     at least 100 ms after it began.
//   - After a rejection, fetch is called at most once in each MinInterval, and callers wait for it.
//   - If fetch fails, returns the rejected key, or is not due yet, the call whose key was rejected returns
//     the response with the rejection. Later calls send the key until it expires: the rejection may be an
//     error of a gateway.
//
// The context of fetch has the values of the caller that starts it, and ends after [AccessKeyTimeout].
// Callers then stop waiting, even if fetch ignores its context, and another fetch may start. A key that a
// fetch returns later is cached, unless there is a newer one. While 10 fetches have not returned, no other
// one starts, and a call without a valid key fails.
//
// A call that fetch makes with the same client returns an error if it needs the key that is being fetched. A
// returned key that has expired is an error. The expiry is compared with the wall clock. A panic of fetch is
// re-raised in the callers that wait.
func CachedAccessKey(
	fetch func(context.Context) (key string, expires time.Time, err error),
	o AccessKeyCacheOptions,
) *AccessKeyCache {
	if o.OnError == nil {
		o.OnError = func(err error) { slog.Warn("msgpush: fetching an access key failed", "error", err) }
	}
	return &AccessKeyCache{keycache.New(keycache.Config{
		Fetch:       fetch,
		Early:       o.Early,
		MinInterval: max(0, cmp.Or(o.MinInterval, time.Second)),
		Timeout:     AccessKeyTimeout,
		OnError:     o.OnError,
	})}
}

// An AccessKeyCache is the [AccessKeySource] that [CachedAccessKey] returns. It is safe for concurrent use;
// concurrent callers share one call of fetch.
type AccessKeyCache struct {
	cache *keycache.Cache
}

// AccessKey returns the cached key. It waits for fetch if there is no valid key, or while fetch replaces a
// rejected one.
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
	if c.cache.Fetch == nil {
		return errors.New("CachedAccessKey: fetch is nil")
	}
	return nil
}

// Set replaces the cached key, such as by one that another process fetched. A zero expiry means that the key
// does not expire. The key is valid, even if it is the one that was rejected. Callers that wait for a fetch
// get it, too. Set returns an error for a key that has expired, or that no header can have, and then changes
// nothing.
func (c *AccessKeyCache) Set(key string, expires time.Time) error {
	err := c.check()
	if err == nil {
		err = c.cache.Set(key, expires)
	}
	if err != nil {
		return fmt.Errorf("msgpush: AccessKeyCache.Set: %w", err)
	}
	return nil
}
