// Package call makes a call: one attempt after another, each with an access key and a slot of the
// rate limiter, until one succeeds or must not be retried. It knows no type of package msgpush: it
// returns an [Outcome], plain data, from which that package makes its errors.
package call

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/redact"
)

// A Config has the settings of a client. They have been checked.
type Config struct {
	Base      *url.URL // without a trailing slash
	Transport http.RoundTripper
	Jar       http.CookieJar // nil: none
	Timeout   time.Duration  // of an attempt
	UserAgent string
	Retry     struct { // a msgpush.RetryPolicy, in which only Quota may be 0
		MaxAttempts int
		MinWait     time.Duration
		MaxWait     time.Duration
		Quota       int
	}
	Limiter          interface{ Wait(context.Context) error } // nil: none
	MaxResponseBytes int64
	Unmarshal        func([]byte, any) error
	KeepsInput       bool // Unmarshal may keep references to its input
	RejectedKeyCodes []int
	RetryableCodes   []int
	Source           func(ctx context.Context, rejected string) (key string, err error)
	CanReplaceKey    bool                                       // Source may return another key for a rejected one
	Report           func(ctx context.Context, o, end *Outcome) // called after each attempt; nil: not called
}

// A Caller makes the calls of a client, which share its retry quota. It is safe for concurrent use.
type Caller struct {
	Config
	// FixedKeys holds the key of a client without a key source. Copy it before use, since its methods
	// may change it.
	//
	// It is a pointer, so that fmt cannot print the key of a Client in an unexported field: with a
	// verb such as %s, fmt prints the Caller, but a pointer in the Caller as an address.
	FixedKeys *redact.Keys

	userAgent  []string
	quota      *retryQuota
	timeoutErr error        // of an attempt that took longer than its timeout
	responses  atomic.Int64 // number of responses so far
	closedAt   atomic.Int64 // the number of responses when idle connections were last closed; -1: never
}

// NewCaller returns a caller. keys becomes its FixedKeys.
func NewCaller(config Config, keys redact.Keys) *Caller {
	keys.Prepare() // once: each call copies the result
	timeoutText := fmt.Sprintf("no complete response within %v (see WithTimeout)", config.Timeout)
	c := &Caller{
		Config:     config,
		FixedKeys:  &keys,
		userAgent:  []string{config.UserAgent},
		quota:      newRetryQuota(config.Retry.Quota),
		timeoutErr: errs.Hide(timeoutText, context.DeadlineExceeded, nil),
	}
	c.closedAt.Store(-1)
	return c
}

// A Request has the content of an HTTP request, and the decoder of its response.
type Request struct {
	Operation  string // the name for errors and logs
	Method     string
	Path       string // escaped
	Query      any    // as in msgpush.Request
	Body       any    // as in msgpush.Request
	Idempotent bool
	// Decode decodes the body of an HTTP 200 response, and returns an error unless it is a success.
	// leftOut is not nil if the response is a success of which a part is left out.
	Decode func(body []byte, unmarshal func([]byte, any) error) (leftOut, err error)
}

// Do makes a call and returns how it ended. An error means that the request cannot be sent; its
// text may contain a secret.
//
// The loop of go-retryablehttp only rewinds the body, waits, and ends with the context: the method
// attempt sends the request, and decides what follows.
func (c *Caller) Do(ctx context.Context, r Request) (*Outcome, error) {
	req, err := c.newRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	current := &call{Caller: c, request: r, query: req.URL.RawQuery, keys: *c.FixedKeys}
	current.client.Transport = current
	current.loop = retryablehttp.Client{
		HTTPClient:   &current.client,
		RetryMax:     math.MaxInt, // checkRetry ends the loop
		CheckRetry:   current.checkRetry,
		Backoff:      current.backoff,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	c.quota.begin()
	defer func() { c.quota.end(current.borrowed) }()
	if _, err := current.loop.Do(req); err != nil { //nolint:bodyclose // RoundTrip returns no body
		return current.stop(ctx, "", err), nil // the context ended while the loop waited
	}
	return current.end, nil
}
