package msgpush

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// Call sends a request for which [Client] has no method, with the access key, to
// the host of the base URL. It returns the same errors as the methods of Client.
//
// T is the type of the data in the envelope: a struct, a pointer, a slice, a string,
// a number, a [Page], or [json.RawMessage]. If the data is missing or null, Call
// returns the zero T. With T struct{}, the data is ignored.
func Call[T any](ctx context.Context, c *Client, r Request) (T, error) {
	var zero T
	if err := r.check(); err != nil {
		return zero, fmt.Errorf("msgpush: Call: %w", err)
	}
	operation := r.Method + " " + r.Path
	if _, ok := any(zero).(struct{}); ok {
		_, err := do[json.RawMessage](ctx, c, operation, r, false)
		return zero, err
	}
	data, err := do[T](ctx, c, operation, r, false)
	if err != nil || data == nil {
		return zero, err
	}
	return *data, nil
}

// specified calls an operation that the API document specifies. All of them only
// read, so they are idempotent, and all return data.
func specified[T any](ctx context.Context, c *Client, op Operation, query, body any) (*T, error) {
	r := Request{Method: op.Method, Path: op.Path, Query: query, Body: body, Idempotent: true}
	return do[T](ctx, c, op.String(), r, true)
}

// do makes a call. The data is nil if it is missing and not required.
func do[T any](ctx context.Context, c *Client, operation string, r Request, dataRequired bool) (*T, error) {
	if c == nil || c.http == nil {
		return nil, fmt.Errorf("msgpush: %s: the client was not made by NewClient", operation)
	}
	if ctx == nil {
		return nil, fmt.Errorf("msgpush: %s: the context is nil", operation)
	}
	var data *T
	k := &call{client: c, operation: operation, request: r, credit: tenthsPerCall}
	k.decode = func(body []byte) (err error) {
		data, err = decode[T](body, c.unmarshal, dataRequired)
		return err
	}
	if err := k.run(ctx); err != nil {
		return nil, err
	}
	return data, nil
}

// A call holds the state of one call.
type call struct {
	client    *Client
	operation string
	request   Request
	decode    func(body []byte) error // sets the data of the call
	trace     connTrace               // of all attempts; only used if the request is not idempotent

	attempts int
	started  time.Time // of the last attempt
	keys     []Secret  // the access keys that were sent, the newest last
	rejected Secret    // the key that the service rejected in this call

	response response      // of the last attempt, zero if there was none
	failure  failure       // of the last attempt that failed
	wait     time.Duration // before the next attempt
	// credit, in tenths of a retry, is added to the retry quota if the current
	// attempt has no retryable failure: 1 for the first attempt, 10 for a retry,
	// which took 10 from the quota.
	credit int

	cachedRedactor *redactor // for keys; nil until needed
}

// A failure is the error of an attempt: an *APIError, a *DecodeError or a
// *RequestError.
type failure interface {
	error
	summary() string
	setStopReason(reason string)
}

// run makes attempts until one succeeds or is not retried. It calls beforeAttempt
// for the first attempt; the loop of go-retryablehttp calls beforeAttempt before each
// retry. The loop calls handleResponse with each response. It calls afterAttempt when
// the HTTP client returns, and again when handleResponse returns.
func (c *call) run(ctx context.Context) error {
	if !c.request.Idempotent {
		ctx = c.trace.withTrace(ctx)
	}
	req, err := c.client.newRequest(ctx, c.request)
	if err != nil {
		return fmt.Errorf("msgpush: %s: %w", c.operation, err)
	}
	req.SetResponseHandler(c.handleResponse)
	loop := retryablehttp.Client{
		HTTPClient:   c.client.http,
		RetryMax:     math.MaxInt, // afterAttempt decides
		PrepareRetry: c.beforeAttempt,
		CheckRetry:   c.afterAttempt,
		Backoff:      func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return c.wait },
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	if err := c.beforeAttempt(req.Request); err != nil {
		return err
	}
	defer func() { c.client.quota.add(c.credit) }() // returns the quota of a retry that was not made or that panicked
	_, err = loop.Do(req)                           //nolint:bodyclose // handleResponse closes it
	if err == nil {
		c.finishAttempt(ctx, nil, false)
		return nil
	}
	if _, ok := errors.AsType[failure](err); !ok {
		return c.abandon(ctx, nil) // the context ended while the loop waited; all other errors are failures
	}
	return err
}

// beforeAttempt waits for the rate limiter and then gets the access key, so that a
// call does not send a key that was replaced while it waited. For a retry, req is a
// copy of the request. An error ends the call.
func (c *call) beforeAttempt(req *http.Request) error {
	ctx := req.Context()
	if contextEnded(ctx) {
		return c.abandon(ctx, nil)
	}
	justRejected := c.rejected != "" && c.rejected == c.keys[len(c.keys)-1]
	if c.client.limiter != nil {
		if justRejected {
			// Report the rejection to the source before the wait. Otherwise all calls
			// ahead in the queue of the limiter would send the rejected key.
			if _, err := c.accessKey(ctx); err != nil {
				return err
			}
		}
		if err := c.client.limiter.Wait(ctx); err != nil {
			return c.abandon(ctx, fmt.Errorf("waiting for the rate limiter: %w", err))
		}
	}
	key, err := c.accessKey(ctx)
	if err != nil {
		return err
	}
	if justRejected {
		c.logRetry(ctx, "the access key was rejected")
	}
	c.keys, c.cachedRedactor = append(c.keys, key), nil
	req.Header = c.client.newHeader(c.request, key)
	c.response = response{}
	c.attempts++
	c.started = time.Now()
	return nil
}

// accessKey returns the key for the next attempt. An error ends the call. If the
// source returns the rejected key again, the error is the failure of the last attempt.
func (c *call) accessKey(ctx context.Context) (Secret, error) {
	key, err := c.client.accessKey(ctx, string(c.rejected))
	if err == nil {
		err = checkHeaderValue("the key", key)
	}
	if err != nil || contextEnded(ctx) {
		return "", c.abandon(ctx, fmt.Errorf("access key: %w", err))
	}
	if key == string(c.rejected) {
		return "", c.failure
	}
	return Secret(key), nil
}

// handleResponse reads and decodes the response of an attempt. It returns a failure,
// or nil for a success.
func (c *call) handleResponse(resp *http.Response) error {
	buf := buffers.Get().(*bytes.Buffer)
	buf.Reset()
	c.response = readResponse(resp, buf, c.client.maxResponseBytes)
	// A reader that returned an error may still write to the buffer, and a decoder
	// other than encoding/json may keep references to it.
	if c.response.err == nil && c.client.unmarshal == nil {
		defer buffers.Put(buf)
	}
	var err error
	if c.response.status == http.StatusOK && c.response.err == nil {
		if err = c.decode(c.response.body); err == nil {
			return nil
		}
	}
	return c.responseError(&c.response, err)
}

// buffers holds buffers for response bodies. Results of calls do not refer to them.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// afterAttempt decides whether to retry, and sets the wait. err is the error of the
// HTTP client or of handleResponse. It is nil before the response is read and after a
// success; run finishes a successful attempt. A returned error ends the call.
func (c *call) afterAttempt(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if err == nil {
		return false, nil
	}
	previous := c.failure
	if resp == nil {
		c.failure = c.transportError(err)
	} else {
		errors.As(err, &c.failure) // handleResponse returns failures
	}
	interrupted := causedByContext(ctx, c.failure)
	c.finishAttempt(ctx, c.failure, isTransient(c.failure) && !interrupted)
	if interrupted {
		c.failure = previous // for Last: the new failure only reports the end of the context
	}
	if contextEnded(ctx) {
		return false, c.abandon(ctx, nil)
	}
	apiErr, ok := errors.AsType[*APIError](c.failure)
	if ok && apiErr.KeyRejected && c.rejected == "" {
		c.rejected, c.wait = c.keys[len(c.keys)-1], 0
		return true, nil
	}
	policy, attempts := c.client.retry, c.attempts
	if c.rejected != "" {
		attempts-- // the replacement of the key does not count
	}
	if !policy.allows(c.failure, c.request, attempts) {
		return false, c.failure
	}
	wait, fits := policy.wait(c.failure, attempts)
	deadline, hasDeadline := ctx.Deadline()
	switch {
	case !fits:
		c.failure.setStopReason(fmt.Sprintf("Retry-After is longer than MaxWait, %v", policy.MaxWait))
	case hasDeadline && time.Until(deadline) <= wait:
		c.failure.setStopReason("no time for a retry before the deadline")
	case !c.client.quota.add(-tenthsPerRetry):
		c.failure.setStopReason("the retry quota is used up")
	default:
		c.credit, c.wait = tenthsPerRetry, wait
		c.logRetry(ctx, logReason(c.failure))
		return true, nil
	}
	return false, c.failure
}

// finishAttempt logs an attempt and updates the retry quota. err is nil for a
// success.
func (c *call) finishAttempt(ctx context.Context, err failure, transient bool) {
	c.logAttempt(ctx, err)
	if !transient {
		c.client.quota.add(c.credit)
	}
	c.credit = 0
}

// abandon returns the error of a call that makes no further attempt, because of err
// or because its context has ended.
func (c *call) abandon(ctx context.Context, err error) error {
	if contextEnded(ctx) {
		err = cmp.Or(ctx.Err(), context.DeadlineExceeded) // see contextEnded
		if cause := context.Cause(ctx); errors.Is(cause, err) {
			err = cause
		} else if cause != nil {
			err = fmt.Errorf("%w: %w", err, cause)
		}
	}
	e := c.requestError(c.redactor().text(causeText(err)), err)
	if c.failure != nil {
		e.Last = c.failure
	}
	return e
}

// contextEnded reports whether ctx has ended. An operation that observes the deadline
// itself, such as dialing, may fail before the timer of ctx fires.
func contextEnded(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) <= 0
}

// causedByContext reports whether the end of ctx caused err.
func causedByContext(ctx context.Context, err error) bool {
	return contextEnded(ctx) && (errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err()))
}

// transportError returns the error of an attempt without a response. The error of
// http.Client quotes the URL of the request. The query, which may contain secrets, is
// removed from the URL and from the text.
func (c *call) transportError(err error) *RequestError {
	urlErr, _ := errors.AsType[*url.Error](err) // http.Client returns no other type
	_, query, hasQuery := strings.Cut(urlErr.URL, "?")
	urlErr.URL = c.client.baseURL + c.request.Path
	text := causeText(urlErr.Err)
	if hasQuery {
		text = strings.ReplaceAll(text, "?"+query, "")
	}
	e := c.incompleteError("the request to "+c.client.baseURL+" failed", err, text)
	e.notSent = !c.request.Idempotent && c.trace.notSent(err)
	return e
}

// incompleteError returns the error of an attempt without a complete response.
func (c *call) incompleteError(what string, err error, text string) *RequestError {
	return c.requestError(c.redactor().text(what)+": "+c.redactor().excerpt(text, maxCause), err)
}

// causeText returns the text of err. If err wraps the error of another call, such
// as the cause of the context of an errgroup, the text omits the operation and
// attempts of the other call, so that only the operation and attempts of this call
// appear.
func causeText(err error) string {
	text := err.Error()
	if other, ok := errors.AsType[failure](err); ok {
		text = strings.Replace(text, other.Error(), other.summary(), 1)
	}
	return strings.ReplaceAll(text, "msgpush: ", "")
}

// requestError returns a RequestError with text, which must already be redacted.
func (c *call) requestError(text string, err error) *RequestError {
	return &RequestError{
		Operation: c.redactor().text(c.operation),
		Attempts:  c.attempts,
		Err:       &opaqueError{shorten(text, maxCause), err},
	}
}

// redactor returns a redactor for the access keys that the call has sent.
func (c *call) redactor() *redactor {
	if c.cachedRedactor == nil {
		c.cachedRedactor = newRedactor(slices.Clone(c.keys)...)
	}
	return c.cachedRedactor
}
