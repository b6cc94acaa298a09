package msgpush

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// Call sends a request for which [Client] has no method, with the access key, to
// the host of the base URL. It returns the same errors as the methods of Client.
//
// T is the type of Data in the [Envelope] of the response: a struct, a pointer, a slice, a
// string, a number, a [Page], or [json.RawMessage]. If the data is missing or null, Call
// returns the zero T. With T struct{}, the data is ignored. If T is a [Page], data that is
// missing, or not a page, is a [*DecodeError], as for the methods of Client.
func Call[T any](ctx context.Context, c *Client, r Request) (T, error) {
	var zero T
	if err := r.check(); err != nil {
		return zero, fmt.Errorf("msgpush: Call: %w", err)
	}
	op := Operation{Group: r.Method, Name: r.Path} // for its text, "GET /path"
	r.Path = escapePath(r.Path)
	if _, ok := any(zero).(struct{}); ok {
		_, err := callRequest[json.RawMessage](ctx, c, op, r, false)
		return zero, err
	}
	data, err := callRequest[T](ctx, c, op, r, false)
	if data == nil {
		data = &zero
	}
	return *data, err
}

// callOperation calls an operation that only reads and always returns data. T is a
// type of this package.
func callOperation[T any](ctx context.Context, c *Client, op Operation, query, body any) (*T, error) {
	r := Request{Method: op.Method, Path: op.Path, Query: query, Body: body, Idempotent: true}
	return callRequest[T](ctx, c, op, r, true)
}

// callRequest makes a call. If known is set, T is a type of this package. Then, and if T
// is a page, the data is required. Otherwise, the result is nil if the data is missing.
func callRequest[T any](ctx context.Context, c *Client, op Operation, r Request, known bool) (*T, error) {
	if c == nil || c.transport == nil {
		return nil, fmt.Errorf("msgpush: %v: the client was not made by NewClient", op)
	}
	var data *T
	k := &call{client: c, operation: op, request: r, stake: tokensPerCall}
	k.decode = func(body []byte) (err error) {
		data, err = decode[T](body, c.unmarshal, known)
		return err
	}
	if err := k.run(ctx); err != nil {
		return nil, err
	}
	return data, nil
}

// A call is one call of a method of Client, or of Call. Its attempts share this state.
type call struct {
	client    *Client
	operation Operation
	request   Request
	decode    func(body []byte) error // stores the data of the response for callRequest

	rawQuery string
	attempts int
	key      Secret        // of the last attempt
	rejected Secret        // the key that the service rejected in this call
	failure  failure       // of the last attempt that failed, but not because its context ended
	ended    error         // why an attempt was not made
	wait     time.Duration // before the next attempt
	stake    int           // tokens that settle returns to the retry quota, or drops

	redactor redactor // of all keys that the call got
	setTexts func()   // sets the redacted texts of the last failure from the original ones
}

// run makes attempts until one succeeds or is not retried. The loop of
// go-retryablehttp calls attempt and then mayRetry, and waits.
func (k *call) run(ctx context.Context) error {
	k.redactKey(k.client.staticKey())
	req, err := k.client.newRequest(ctx, k.request)
	if err != nil {
		return k.invalid(err)
	}
	k.rawQuery = req.URL.RawQuery
	loop := retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: roundTripper(k.attempt)},
		CheckRetry:   k.mayRetry,
		RetryMax:     math.MaxInt, // mayRetry decides
		Backoff:      func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return k.wait },
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	k.client.quota.add(1)
	defer k.client.quota.add(-1)
	defer k.settle(false)
	_, err = loop.Do(req) //nolint:bodyclose // attempt returns no body
	if _, ok := errors.AsType[failure](err); err != nil && !ok {
		return k.stopped(ctx, "", err) // the context ended while the loop waited
	}
	return err
}

// attempt makes one attempt. It is the transport of the loop: req has no header yet.
func (k *call) attempt(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	key, err := k.ready(ctx)
	if err != nil {
		k.ended = err
		return nil, err
	}
	if k.rejected != "" && k.rejected == k.key {
		k.logRetry(ctx, "the access key was rejected")
	}
	k.key = key
	k.attempts++
	started := time.Now()
	resp, failed := k.send(ctx, req)
	k.logAttempt(ctx, started, resp, failed)
	if failed != nil {
		return nil, failed
	}
	return succeeded, nil
}

// succeeded is the response of attempt, which has already read the real one.
var succeeded = &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}

// A roundTripper is a function used as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// ready gets the access key for an attempt and waits for the rate limiter. An error ends
// the call.
//
// It gets the key before the wait, so that a call whose key is being fetched takes no
// slot of the limiter, and so that the source learns of a rejection immediately. It gets the
// key again after the wait, in which the key may have been replaced. If getting it again
// takes long, many calls may be waiting for the same key, and would send together: the
// slot is stale, and the call waits for another one, but only once.
func (k *call) ready(ctx context.Context) (Secret, error) {
	key, err := k.nextKey(ctx)
	for slots := 0; err == nil && k.client.limiter != nil && slots < 2; slots++ {
		if err := k.client.limiter.Wait(ctx); err != nil {
			return "", k.stopped(ctx, "waiting for the rate limiter: ", err)
		}
		granted, before := time.Now(), key
		key, err = k.nextKey(ctx)
		if unused := time.Since(granted); unused <= staleSlot && (key == before || unused <= staleNewKey) {
			break
		}
	}
	return key, err
}

// A slot of the rate limiter is stale if getting the key after the wait takes longer than
// staleSlot. If that key is a new one, other calls may have got it at the same moment, so
// the shorter staleNewKey applies.
const staleSlot, staleNewKey = 100 * time.Millisecond, 20 * time.Millisecond

// nextKey gets the access key from its source. If the source returns the rejected key
// again, the error is the failure of the last attempt.
func (k *call) nextKey(ctx context.Context) (Secret, error) {
	if ctx.Err() != nil {
		return "", k.stopped(ctx, "", nil)
	}
	key, err := k.client.source(ctx, string(k.rejected))
	k.redactKey(key)
	if err == nil {
		err = checkHeaderValue("the key", key)
	}
	if err != nil || contextEnded(ctx) {
		return "", k.stopped(ctx, "access key: ", err)
	}
	if key == string(k.rejected) {
		return "", k.failure
	}
	return Secret(key), nil
}

// send sends the request and reads the response, within the timeout of an attempt, and
// decodes the response.
func (k *call) send(ctx context.Context, req *http.Request) (response, failure) {
	c := k.client
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > c.timeout { // otherwise the context ends before the timeout
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, &timeoutError{c.timeout})
		defer cancel()
		req = req.WithContext(ctx)
	}
	trace := &connTrace{}
	if !k.request.Idempotent || req.URL.Scheme == "https" {
		req = trace.observe(req, c.transport)
	}
	req.Header = c.newHeader(k.request, k.key)
	resp, err := c.roundTrip(req)
	if err != nil {
		failed := k.requestError("the request to "+c.base.String()+" failed: ", timeoutOr(ctx, err), excerpt)
		failed.connected, failed.notSent = trace.connected.Load(), trace.notSent(err)
		return response{}, failed
	}
	r := readResponse(ctx, resp, c.maxResponseBytes)
	// A reader that returned an error may still write to the buffer.
	if r.err == nil && !c.keepsInput {
		defer buffers.Put(r.buffer)
	}
	if r.status == http.StatusOK && r.err == nil {
		if err = k.decode(r.body); err == nil {
			return r, nil
		}
	}
	return r, k.responseError(&r, err)
}

// mayRetry decides after each attempt whether to retry, and sets the wait. An error
// ends the call.
func (k *call) mayRetry(ctx context.Context, _ *http.Response, err error) (bool, error) {
	failed, ok := errors.AsType[failure](err)
	if k.ended != nil || !ok {
		return false, k.ended
	}
	interrupted := contextEnded(ctx) && (errors.Is(failed, context.Cause(ctx)) || errors.Is(failed, ctx.Err()))
	k.settle(failed.transient() && !interrupted)
	if !interrupted {
		k.failure = failed // if the context ended the attempt, RequestError.Last is the failure before it
	}
	if contextEnded(ctx) {
		return false, k.stopped(ctx, "", nil)
	}
	if apiErr, ok := errors.AsType[*APIError](failed); ok && apiErr.KeyRejected && k.rejected == "" {
		k.rejected, k.wait = k.key, 0
		return true, nil
	}
	policy, attempts := k.client.retry, k.attempts-min(1, len(k.rejected)) // the replacement of a key does not count
	requestErr, ok := errors.AsType[*RequestError](failed)
	if !failed.transient() || attempts >= policy.MaxAttempts || !k.request.Idempotent && (!ok || !requestErr.notSent) {
		return false, failed
	}
	wait, fits := policy.wait(failed, attempts)
	deadline, hasDeadline := ctx.Deadline()
	switch {
	case !fits:
		failed.stop(fmt.Sprintf("Retry-After is longer than MaxWait, %v", policy.MaxWait))
	case hasDeadline && time.Until(deadline) <= wait:
		failed.stop("no time for a retry before the deadline")
	case !k.client.quota.take(tokensPerRetry):
		failed.stop("the retry quota is used up")
	default:
		k.stake, k.wait = tokensPerRetry, wait
		k.logRetry(ctx, logReason(failed))
		return true, nil
	}
	return false, failed
}

// settle returns the stake of an attempt to the retry quota, unless its failure was
// transient. It also returns the stake of a retry that was not made, or that panicked.
func (k *call) settle(transient bool) {
	if !transient && k.attempts > 0 {
		k.client.quota.put(k.stake)
	}
	k.stake = 0
}

// contextEnded reports whether ctx has ended. An operation that observes the deadline
// itself, such as dialing, may fail before the timer of ctx fires.
func contextEnded(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) <= 0
}
