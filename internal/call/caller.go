// Package call makes a call: a [retryablehttp.Client] calls prepare before each attempt (prepare.go), makes
// the attempt (attempt.go), and asks checkRetry (retry.go) whether another one follows. The package knows no
// type of package msgpush: a call returns a [Failure], from which that package makes its errors.
package call

import (
	"context"
	"errors"
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
	Base             *url.URL // without a trailing slash
	Transport        http.RoundTripper
	Jar              http.CookieJar // nil: none
	Timeout          time.Duration  // of a call; 0: none
	AttemptTimeout   time.Duration
	UserAgent        string
	Retry            RetryPolicy
	Limiter          interface{ Wait(context.Context) error } // nil: none
	MaxResponseBytes int64
	KeepsInput       bool     // Decode of a Spec may keep references to its input
	SecretNames      []string // of members of records, in small letters
	RejectedKeyCodes []int
	RetryableCodes   []int
	Source           func(ctx context.Context, rejected string) (key string, err error)
	HasKeySource     bool                           // Source may return another key for a rejected one
	ErrNoAccessKey   error                          // is wrapped if Source fails
	Report           func(context.Context, Attempt) // called after each attempt; nil: not called
}

// A RetryPolicy is a msgpush.RetryPolicy. Its fields are set, except that a Quota of 0 means the default.
type RetryPolicy struct {
	MaxAttempts int
	MinWait     time.Duration
	MaxWait     time.Duration
	Quota       int
}

// A Caller makes the calls of a client, which share its retry quota. It is safe for concurrent use.
type Caller struct {
	Config
	// FixedKeys returns the key of a client without a key source. It is a function, since fmt and test
	// libraries print unexported fields.
	FixedKeys func() redact.Keys

	quota       *quota
	hasTimedOut atomic.Bool // an attempt has timed out since closeIdleAfterTimeout last closed connections
	// closedAt is when closeIdleAfterTimeout last closed connections; nil: never. It is a time.Time, whose
	// monotonic clock does not go back when the clock of the machine is set.
	closedAt          atomic.Pointer[time.Time]
	timeoutErr        error // of each call that takes longer than Timeout
	attemptTimeoutErr error // of each attempt that takes longer than AttemptTimeout
}

// NewCaller returns a caller. keys are its FixedKeys.
func NewCaller(config Config, keys redact.Keys) *Caller {
	keys.Prepare() // once: each call copies the result
	return &Caller{
		Config:            config,
		FixedKeys:         func() redact.Keys { return keys },
		quota:             newQuota(config.Retry.Quota),
		timeoutErr:        timeoutError("no success within %v (see WithTimeout)", config.Timeout),
		attemptTimeoutErr: timeoutError("no complete response within %v (see WithAttemptTimeout)", config.AttemptTimeout),
	}
}

// timeoutError returns an error that matches [context.DeadlineExceeded].
func timeoutError(format string, d time.Duration) error {
	return errs.Hide(fmt.Sprintf(format, d), context.DeadlineExceeded)
}

// A Spec describes the request of a call, and how its response is decoded.
type Spec struct {
	Operation  string // the name for errors, logs and metrics
	Method     string
	Path       string // escaped
	Query      any    // as in msgpush.Request
	Body       any    // as in msgpush.Request
	Idempotent bool
	// Decode decodes the body of a response with HTTP status 2xx, and returns an error unless it is a
	// success. omitted is not nil if the response is a success and a part of it is left out.
	Decode func(body []byte) (omitted, err error)
}

// A Result holds the results of a call.
type Result struct {
	Progress
	Failure *Failure // nil: success
	Omitted *Failure // of a success; nil: nothing
}

// Do makes a call. An error means that no HTTP request can be made from the arguments. Its text may contain a
// secret.
func (c *Caller) Do(ctx context.Context, spec Spec) (Result, error) {
	s := &state{spec: spec, keys: c.FixedKeys()}
	err := c.run(ctx, s)
	return Result{s.progress(), s.final, s.omitted}, err
}

func (c *Caller) run(ctx context.Context, s *state) error {
	if ctx == nil {
		return errors.New("the context is nil")
	}
	end := c.begin(ctx, s)
	defer end()
	req, err := c.newRequest(s)
	if err != nil {
		return err
	}
	s.query = req.URL.RawQuery
	c.quota.begin()
	defer c.quota.end()
	s.final = c.prepare(s)
	if s.final != nil {
		return nil
	}
	resp, err := c.newRetrier(s).Do(req)
	if err == nil { // otherwise, there is no response, or it was closed before a retry
		_ = resp.Body.Close()
	}
	if err != nil && s.final == nil { // the context ended during the wait before a retry
		s.final = s.ended("")
	}
	return nil
}

// errFinal makes the retrier stop. The call returns the final failure of its state.
var errFinal = errors.New("the call has a final failure")

// newRetrier returns the client that makes the attempts of a call.
func (c *Caller) newRetrier(s *state) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport:     roundTripFunc(func(r *http.Request) (*http.Response, error) { return c.attempt(s, r) }),
			Jar:           c.Jar,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		RetryMax: math.MaxInt, // checkRetry counts the attempts: replacing a key allows one more
		CheckRetry: func(_ context.Context, resp *http.Response, err error) (bool, error) {
			return c.checkRetry(s, resp, err), nil
		},
		Backoff: func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return time.Until(s.retryAt) },
		PrepareRetry: func(r *http.Request) error {
			// http.Client adds the cookies of the jar again. A transport may still read the old header.
			r.Header = http.Header{}
			s.final = c.prepare(s)
			if s.final != nil {
				return errFinal
			}
			return nil
		},
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// CloseIdleConnections closes the idle connections of the transport, if it has that method.
func (c *Caller) CloseIdleConnections() {
	(&http.Client{Transport: c.Transport}).CloseIdleConnections()
}
