package msgpush

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"
)

const redacted = "[redacted]"

// A Secret is a string that does not print: under the verbs of [fmt] and in
// [log/slog] a placeholder stands for it. JSON and URL queries carry its real
// value, so that a record survives a round trip; string(s) is the real value.
//
// What asks a value for nothing before it prints it is beyond its reach: %p, the
// unexported fields of a struct, and a struct or slice that log/slog encodes as
// JSON. A [MailChannel] that is logged by itself hides its password there too.
type Secret string

// String returns the placeholder.
func (Secret) String() string { return redacted }

// GoString returns the placeholder.
func (Secret) GoString() string { return redacted }

// Format writes the placeholder, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue returns the placeholder.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// EncodeValues adds the real value to a query, where go-querystring would
// otherwise print the placeholder into it.
func (s Secret) EncodeValues(key string, v *url.Values) error {
	v.Add(key, string(s))
	return nil
}

// An AccessKeySource gives a client its access key. The document shows neither
// how a key is obtained nor how long it is valid, so a source of one's own knows.
// It must be safe for concurrent use.
type AccessKeySource interface {
	// AccessKey returns the key to use. It is called before each call, with
	// rejected empty, and once more when the service has refused a key, which
	// rejected then is: a source that has another key by then returns it at
	// once. If it returns the rejected key again, the call fails with the
	// refusal. An error ends the call.
	AccessKey(ctx context.Context, rejected string) (key string, err error)
}

// fixedAccessKey returns a key that is always the same.
func fixedAccessKey(key string) func(context.Context, Secret) (Secret, error) {
	return func(context.Context, Secret) (Secret, error) { return Secret(key), nil }
}

// sourcedAccessKey returns the keys of a source.
func sourcedAccessKey(source AccessKeySource) func(context.Context, Secret) (Secret, error) {
	return func(ctx context.Context, rejected Secret) (Secret, error) {
		key, err := source.AccessKey(ctx, string(rejected))
		if err != nil {
			return "", err
		}
		if err := checkHeaderValue(key); err != nil {
			return "", fmt.Errorf("the key of the source %w", err)
		}
		return Secret(key), nil
	}
}

// CachedAccessKey returns a source that keeps the key that fetch returns until
// it expires or is refused; a zero time of expiry means until it is refused. It
// is safe for concurrent use, and fetch is called once for all who wait.
//
// From early before the expiry on, a new key is fetched while the old one is
// still handed out. Early should be short beside the time for which a key is
// valid: a key that is always about to expire is fetched at every use. A negative
// early is 0, and a nil fetch is an error of every call.
//
// A fetch that fails is an error for those who wait for it, and is tried again
// for the next caller. The context that fetch is given ends after
// [DefaultTimeout], not with the context of any one call: a fetch, once begun, is
// for all of them, and goes on if the call that began it is cancelled.
func CachedAccessKey(fetch func(context.Context) (key string, expires time.Time, err error), early time.Duration) AccessKeySource {
	c := &keyCache{fetch: fetch, early: early}
	return accessKeyFunc(c.accessKey)
}

// An accessKeyFunc is an AccessKeySource that does not print what it holds.
type accessKeyFunc func(ctx context.Context, rejected string) (string, error)

func (f accessKeyFunc) AccessKey(ctx context.Context, rejected string) (string, error) {
	return f(ctx, rejected)
}

type keyCache struct {
	fetch func(context.Context) (string, time.Time, error)
	early time.Duration

	mu      sync.Mutex
	key     string // empty before the first fetch
	expires time.Time
	current *keyFetch // in progress, nil for none
}

// A keyFetch is a call of fetch, for all who wait for it.
type keyFetch struct {
	done chan struct{} // closed when it has ended, and key and err are set
	key  string
	err  error
}

func (c *keyCache) accessKey(ctx context.Context, rejected string) (string, error) {
	if c.fetch == nil {
		return "", errors.New("CachedAccessKey: fetch is nil")
	}
	var key string
	var err error
	for range 2 {
		var f *keyFetch
		if key, f = c.look(ctx, rejected); f == nil {
			return key, nil
		}
		select {
		case <-f.done:
			key, err = f.key, f.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if err != nil || key != rejected {
			break
		}
		// The fetch may have begun before the key was refused. The next did not.
	}
	return key, err
}

// look returns the key or, if there is none to hand out, the fetch to wait for.
func (c *keyCache) look(ctx context.Context, rejected string) (string, *keyFetch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key == rejected {
		c.key = "" // nobody else is to be refused with it
	}
	valid := c.key != "" && !c.expiresWithin(0)
	if c.current == nil && (!valid || c.expiresWithin(c.early)) {
		c.current = &keyFetch{done: make(chan struct{}), err: errors.New("the fetch did not return")}
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

// run calls fetch.
func (c *keyCache) run(ctx context.Context, f *keyFetch) {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	defer func() { // deferred, in case fetch ends the goroutine
		c.mu.Lock()
		defer c.mu.Unlock()
		c.current = nil
		close(f.done)
	}()
	key, expires, err := c.fetch(ctx)
	if err == nil {
		err = checkHeaderValue(key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.key, f.err = key, err
	if err == nil {
		c.key, c.expires = key, expires
	}
}

var opAccessKeyObtain = Operation{Group: "access key", Name: "obtain"}

// AccessKeyObtain is not implemented: the document says only that an operation
// to obtain an access key exists (part 5). It returns an [*UnimplementedError].
func (c *Client) AccessKeyObtain(context.Context) error {
	return &UnimplementedError{opAccessKeyObtain}
}
