package msgpush

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// Call sends a request for which [Client] has no method, with the access key, to
// the host of the base URL. It returns the same errors as the methods of Client.
//
// T is the type of Data in the [Envelope] of the response, such as a struct, a pointer, a slice,
// a map, a string, a number, a [Page] or [json.RawMessage]. If the data is missing or null, Call
// returns the zero T. With T struct{}, the data is ignored. If T is a [Page], data that is
// missing, or not a page, is a [*DecodeError], as for the methods of Client. A T that embeds
// a Page is an error, since the methods of the Page would hide the other fields: use a
// named field.
func Call[T any](ctx context.Context, c *Client, r Request) (T, error) {
	var zero T
	if err := r.check(); err != nil {
		return zero, fmt.Errorf("msgpush: Call: %w", err)
	}
	if embedsPage(reflect.TypeFor[T]()) {
		return zero, fmt.Errorf("msgpush: Call: %T embeds a Page, whose methods hide the other fields: use Page as the type, or as a named field", zero)
	}
	name := r.Method + " " + r.Path
	r.Path = escapePath(r.Path)
	if _, ok := any(zero).(struct{}); ok {
		_, err := do[json.RawMessage](ctx, c, name, r, false)
		return zero, err
	}
	data, err := do[T](ctx, c, name, r, false)
	if data == nil {
		data = &zero
	}
	return *data, err
}

// callOperation calls an operation that is idempotent and whose successes have data. T is a type
// of this package.
func callOperation[T any](ctx context.Context, c *Client, op Operation, query, body any) (*T, error) {
	return do[T](ctx, c, op.Name, Request{Method: op.Method, Path: op.Path, Query: query, Body: body, Idempotent: true}, true)
}

// do makes a call. Its result is nil if the data is missing and not required.
func do[T any](ctx context.Context, c *Client, name string, r Request, dataRequired bool) (*T, error) {
	if c == nil || c.transport == nil {
		return nil, fmt.Errorf("msgpush: %s: the client was not made by NewClient", name)
	}
	k := &call{client: c, name: name, request: r, decode: decode[T], dataRequired: dataRequired, redactor: c.redactor()}
	data, err := k.run(ctx)
	if err != nil {
		return nil, err
	}
	return data.(*T), nil
}

// A call is one call of a method of Client, or of Call. Its attempts share this state.
type call struct {
	client       *Client
	name         string // of the operation, in errors and logs
	request      Request
	decode       func(body []byte, unmarshal func([]byte, any) error, required bool) (data any, err error)
	dataRequired bool     // of a success; see decode
	redactor     redactor // of the keys that the call got

	attempts    int           // that began
	key         Secret        // of the current attempt
	rejectedKey Secret        // the key that the source had to replace; empty: none
	lastFailure *outcome      // the latest failure that was not caused by the end of the context
	borrowed    int           // tokens that the quota gets back unless the retry fails transiently
	wait        time.Duration // before the next attempt; 0 if it begins immediately
	end         *outcome      // how the call ends; nil if another attempt follows
}

// run makes attempts until the call ends, and returns the data of a success. The loop of
// go-retryablehttp calls RoundTrip, which sets end, or the wait before the loop calls it again.
func (k *call) run(ctx context.Context) (data any, err error) {
	req, err := k.client.newRequest(ctx, k.request)
	if err != nil {
		return nil, k.redactor.argumentError(k.name, err)
	}
	k.redactor.query = req.URL.RawQuery
	loop := retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: k},
		CheckRetry:   func(context.Context, *http.Response, error) (bool, error) { return k.end == nil, nil },
		RetryMax:     math.MaxInt, // CheckRetry ends the loop
		Backoff:      func(time.Duration, time.Duration, int, *http.Response) time.Duration { return k.wait },
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	quota := k.client.quota
	quota.add(1, 0)
	defer func() { quota.add(-1, k.borrowed) }()
	if _, err := loop.Do(req); err != nil { //nolint:bodyclose // RoundTrip returns no body
		k.end = k.stopped(ctx, "", err) // the context ended while the loop waited
	}
	return k.end.data, k.end.err(k.name, &k.redactor)
}

// RoundTrip makes one attempt: the call is the transport of the loop. req has no header yet.
// The loop always gets the same response.
func (k *call) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if k.key, k.end = k.ready(ctx); k.end != nil {
		return loopResponse, nil
	}
	k.attempts++
	start := time.Now()
	o := k.send(ctx, req)
	k.end = k.decide(ctx, o)
	k.report(ctx, start, o)
	return loopResponse, nil
}

var loopResponse = &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}

// ready returns the access key for an attempt, after a wait for the rate limiter, or how
// the call ends.
//
// It gets the key before the wait, so that a call whose key is being fetched takes no
// slot of the limiter, and so that the source learns of a rejection immediately. It gets the
// key again after the wait. If that is another key, the source may have blocked until it was
// fetched, and then released many calls, which would send together: the call waits for another
// slot.
//
// A source may return another key each time. So after ten repeated waits, ready keeps its slot,
// and the key that it got before the last wait: getting the key again could take long.
func (k *call) ready(ctx context.Context) (key Secret, end *outcome) {
	key, end = k.nextKey(ctx)
	for repeats := 0; end == nil && k.client.limiter != nil; repeats++ {
		if err := k.client.limiter.Wait(ctx); err != nil {
			return "", k.stopped(ctx, "waiting for the rate limiter: ", err)
		}
		if repeats == maxRepeatedWaits {
			break
		}
		before := key
		if key, end = k.nextKey(ctx); key == before {
			break
		}
	}
	return key, end
}

const maxRepeatedWaits = 10

// nextKey gets the access key from its source. If the source returns the rejected key
// again, the call ends with its last failure, which is not retried for this reason.
func (k *call) nextKey(ctx context.Context) (key Secret, end *outcome) {
	if ctx.Err() != nil {
		return "", k.stopped(ctx, "", nil)
	}
	got, err := k.client.source(ctx, string(k.rejectedKey))
	k.redactor.add(got)
	if err == nil {
		err = checkHeaderValue("the key", got)
	}
	if err != nil || contextEnded(ctx) {
		return "", k.stopped(ctx, "access key: ", err)
	}
	if key = Secret(got); key == k.rejectedKey {
		k.lastFailure.remarks = append(k.lastFailure.remarks, "the key source returned the rejected key again")
		return "", k.lastFailure
	}
	return key, nil
}

// send sends the request and reads the response, within the timeout of an attempt, and decodes
// the response.
func (k *call) send(ctx context.Context, req *http.Request) *outcome {
	c := k.client
	if timeLeft(ctx) > c.timeout { // otherwise the context ends before the timeout
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, c.timeoutErr)
		defer cancel()
		req = req.WithContext(ctx)
	}
	var connected *atomic.Bool // net/http had a connection, so the request may have been sent; nil for an idempotent request
	if !k.request.Idempotent {
		connected = new(atomic.Bool)
		trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
		req = req.WithContext(httptrace.WithClientTrace(ctx, trace))
	}
	req.Header = c.newHeader(k.request, k.key)
	o := &outcome{attempts: k.attempts}
	responsesBefore := c.responses.Load()
	resp, err := c.roundTripWithCookies(req)
	if err != nil {
		// If the client got no response meanwhile, a balancer may have forgotten the connection,
		// and the idle ones too. Otherwise the service is slow, and its connections are kept.
		if is(ctx.Err(), context.DeadlineExceeded) && c.responses.Load() == responsesBefore {
			closeIdleConnections(c.transport)
		}
		o.setLost("the request to "+c.base.String()+" failed: ", c.timeoutOr(ctx, err))
		o.notSent = connected != nil && !connected.Load() && dialFailed(err)
		return o
	}
	c.responses.Add(1)
	o.status, o.header = resp.StatusCode, resp.Header
	body, err := c.readBody(ctx, resp)
	if err == nil && !c.keepsInput {
		defer buffers.Put(body) // not after an error: the reader of the body may still write to it
	}
	o.size = body.Len()
	if err != nil && o.status == http.StatusOK {
		o.setLost("reading the response from "+c.base.String()+": ", err)
		return o
	}
	if o.status == http.StatusOK {
		if o.data, err = k.decode(body.Bytes(), c.unmarshal, k.dataRequired); err == nil {
			o.kind, o.isEnvelope, o.code = success, true, codeSuccess
			return o
		}
	}
	c.setFailure(o, body.Bytes(), err)
	return o
}

// decide returns how the call ends after the attempt o: with o, or with the end of the context. It
// returns nil if another attempt follows after k.wait.
func (k *call) decide(ctx context.Context, o *outcome) (end *outcome) {
	ended := o.kind != success && contextEnded(ctx)
	if ended && o.kind == noResponse && (is(o.cause, context.Cause(ctx)) || is(o.cause, cmp.Or(ctx.Err(), context.DeadlineExceeded))) {
		o.transient = false // not a failure of the service: it is not retried, and the quota gets its tokens back
	} else if o.kind != success {
		k.lastFailure = o
	}
	k.settleQuota(o, ended)
	k.wait = 0
	counted := k.attempts
	if k.rejectedKey != "" {
		counted-- // replacing the key allows one more attempt
	}
	replaceKey := o.keyRejected && k.rejectedKey == "" && k.client.hasSource
	mayRetry := o.transient && counted < k.client.retry.MaxAttempts && (k.request.Idempotent || o.notSent)
	switch {
	case ended && (o.kind == noResponse || replaceKey):
		return k.stopped(ctx, "", nil)
	case replaceKey: // independent of the policy: a rejected request is treated as not processed
		k.rejectedKey = k.key
		return nil
	case !mayRetry:
		return o
	}
	return k.reserveRetry(ctx, o, counted, ended)
}

// settleQuota gives back the tokens of a retry unless it failed transiently. A first attempt that
// did not fail transiently earns tokens, unless the context ended.
func (k *call) settleQuota(o *outcome, ended bool) {
	switch quota := k.client.quota; {
	case o.transient: // the failed retry keeps its tokens
	case k.attempts > 1:
		quota.add(0, k.borrowed)
	case !ended:
		quota.earn()
	}
	k.borrowed = 0
}

// reserveRetry takes a retry from the quota and sets the wait before it. Otherwise, it returns o,
// with the reason as a remark, or the end of the context. counted is the number of attempts, as
// MaxAttempts counts them.
func (k *call) reserveRetry(ctx context.Context, o *outcome, counted int, ended bool) (end *outcome) {
	policy := k.client.retry
	wait := o.requestedWait + min(policy.backoff(counted), math.MaxInt64-o.requestedWait)
	deadline, hasDeadline := ctx.Deadline()
	var stopReason string
	switch {
	case o.requestedWait > policy.MaxWait:
		stopReason = fmt.Sprintf("Retry-After is longer than MaxWait, %v", policy.MaxWait)
	case ended: // only a response that would be retried becomes the error of the context
		return k.stopped(ctx, "", nil)
	case hasDeadline && time.Until(deadline) <= wait:
		stopReason = "no time for a retry before the deadline"
	case !k.client.quota.take(tokensPerRetry):
		stopReason = "the retry quota is used up"
	default:
		k.borrowed, k.wait = tokensPerRetry, wait
		return nil
	}
	o.remarks = append(o.remarks, stopReason)
	return o
}

// stopped returns how the call ends without another attempt, because of err or because its
// context has ended. step, which may be empty, names the step of the call.
func (k *call) stopped(ctx context.Context, step string, err error) *outcome {
	if contextEnded(ctx) {
		err = contextError(ctx)
	}
	return &outcome{kind: noResponse, attempts: k.attempts, step: step, cause: err, previous: k.lastFailure}
}
