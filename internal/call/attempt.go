package call

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/redact"
	"example.com/msgpush/internal/transport"
)

// A call is a call in progress, which its attempts share. It is the transport of the loop of
// go-retryablehttp: each request of the loop is an attempt.
type call struct {
	*Caller
	loop    retryablehttp.Client
	client  http.Client // of the loop
	request Request
	query   string      // of the request, which may contain secrets
	keys    redact.Keys // access keys of the call, for redaction

	attempts    int           // number of attempts started
	key         string        // of the current attempt
	rejectedKey string        // the key that the source had to replace; empty: none
	lastFailure *Outcome      // the latest failure that was not caused by the end of the context
	borrowed    int           // quota tokens taken for the next or current retry
	wait        time.Duration // before the next attempt; 0 if it begins immediately
	end         *Outcome      // how the call ends; nil if another attempt follows
}

// RoundTrip makes an attempt. The loop always gets the same response: it asks checkRetry and
// backoff what follows.
func (c *call) RoundTrip(req *http.Request) (*http.Response, error) {
	c.end = c.attempt(req.Context(), req)
	return loopResponse, nil
}

var loopResponse = &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}

func (c *call) checkRetry(context.Context, *http.Response, error) (bool, error) {
	return c.end == nil, nil
}

func (c *call) backoff(time.Duration, time.Duration, int, *http.Response) time.Duration {
	return c.wait
}

// attempt makes one attempt, layer by layer. It returns how the call ends, or nil if another
// attempt follows after c.wait. req has no header.
func (c *call) attempt(ctx context.Context, req *http.Request) (end *Outcome) {
	c.key, end = c.ready(ctx) // access key, rate limiter, and the access key again
	if end != nil {
		return end
	}
	c.attempts++
	o := c.newOutcome()
	o.Start = time.Now()
	c.exchange(ctx, req, o) // timeout, transport and envelope
	o.Duration = time.Since(o.Start)
	end = c.decide(ctx, o) // rejected key, retry policy and quota
	if c.Report != nil {
		o.Wait = c.wait
		c.Report(ctx, o, end) // logger and observer
	}
	return end
}

func (c *call) newOutcome() *Outcome {
	return &Outcome{Attempt: Attempt{
		Request:  &c.request,
		Attempts: c.attempts,
		Query:    c.query,
		Keys:     &c.keys,
	}}
}

// stop returns how the call ends without another attempt, because of err or because its context has
// ended. step, which may be empty, names the step of the call.
func (c *call) stop(ctx context.Context, step string, err error) *Outcome {
	o := c.newOutcome()
	o.Kind, o.Step, o.Cause, o.Previous = NoResponse, step, err, c.lastFailure
	if errs.OfContext(ctx) != nil {
		o.Cause = errs.WithCause(ctx)
	}
	return o
}

// ready returns the access key for an attempt, after a wait for the rate limiter, or how the call
// ends.
//
// It gets the key before the wait, so that a call whose key is being fetched takes no slot of the
// limiter, and so that the source learns of a rejection immediately. It gets the key again after
// the wait, since the key may have been replaced meanwhile.
//
// If that takes long and returns another key, many calls may have waited for it, and would now send
// at the same time. So the call waits for a second slot. It then sends the key that it has: getting
// the key once more could take long again.
func (c *call) ready(ctx context.Context) (key string, end *Outcome) {
	first, end := c.nextKey(ctx)
	if end != nil || c.Limiter == nil {
		return first, end
	}
	if end = c.waitForSlot(ctx); end != nil {
		return "", end
	}
	begin := time.Now()
	key, end = c.nextKey(ctx)
	isSlotStale := key != first && time.Since(begin) >= staleAfter
	if end != nil || !isSlotStale {
		return key, end
	}
	return key, c.waitForSlot(ctx)
}

// staleAfter is the time after which a slot of the rate limiter is stale. A source that returns a
// key in less time has not fetched it.
const staleAfter = 50 * time.Millisecond

func (c *call) waitForSlot(ctx context.Context) (end *Outcome) {
	if err := c.Limiter.Wait(ctx); err != nil {
		return c.stop(ctx, "waiting for the rate limiter: ", err)
	}
	return nil
}

// nextKey gets the access key from its source. If the source returns the rejected key again, the
// call ends with its last failure, and a remark that says so.
func (c *call) nextKey(ctx context.Context) (key string, end *Outcome) {
	if errs.OfContext(ctx) != nil {
		return "", c.stop(ctx, "", nil)
	}
	key, err := c.Source(ctx, c.rejectedKey)
	if err == nil && !c.keys.Has(key) {
		err = httpspec.CheckHeaderValue("the key", key)
	}
	c.keys.Add(key)
	if err != nil || errs.OfContext(ctx) != nil {
		return "", c.stop(ctx, "access key: ", err)
	}
	if key == c.rejectedKey {
		c.lastFailure.remark("the key source returned the rejected key again")
		return "", c.lastFailure
	}
	return key, nil
}

// exchange sends the request and reads the response, within the timeout of an attempt. It completes
// o.
func (c *call) exchange(ctx context.Context, req *http.Request, o *Outcome) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, c.timeoutErr)
	defer cancel()
	resp := c.send(ctx, req, o) //nolint:bodyclose // receive closes it
	if resp != nil {
		c.receive(ctx, resp, o)
	}
}

// send returns the response, or completes o if there is none.
func (c *call) send(ctx context.Context, req *http.Request, o *Outcome) *http.Response {
	conn := newConnection()
	req = req.WithContext(httptrace.WithClientTrace(ctx, &conn.trace))
	req.Header = c.newHeader(c.request, c.key)
	responsesBefore := c.responses.Load()
	resp, err := transport.RoundTrip(c.Transport, c.Jar, req)
	if err != nil {
		c.closeForgotten(ctx, conn, responsesBefore)
		o.setNoResponse("the request to "+c.Base.String()+" failed: ", c.timeoutOr(ctx, err))
		o.NotSent = !conn.used.Load() && transport.DialFailed(err)
		return nil
	}
	c.responses.Add(1)
	return resp
}

// receive completes o with the response. ctx ends with the timeout of the attempt, or before. A
// response with another status than 200 is used as far as its body can be read.
func (c *call) receive(ctx context.Context, resp *http.Response, o *Outcome) {
	o.Status, o.Header = resp.StatusCode, resp.Header
	body, err := c.readBody(ctx, resp)
	if err == nil && !c.KeepsInput {
		defer buffers.Put(body) // not after an error: the reader of the body may still write to it
	}
	o.Size = body.Len()
	if o.Status != http.StatusOK {
		c.setUnsuccessful(o, body.Bytes(), nil)
		if transport.IsInvalidGzip(err) {
			o.remark("the body is not the gzip that its header promises")
		}
		return
	}
	if err != nil {
		o.setNoResponse("reading the response from "+c.Base.String()+": ", err)
		return
	}
	leftOut, err := c.request.Decode(body.Bytes(), c.Unmarshal)
	if err != nil {
		c.setUnsuccessful(o, body.Bytes(), err)
		return
	}
	o.Kind, o.IsEnvelope, o.Code = Success, true, CodeSuccess
	if leftOut != nil {
		o.Body, o.Cause = bytes.Clone(body.Bytes()), leftOut
	}
}

// timeoutOr returns the error of the timeout if err is not nil and ctx ended by the timeout of the
// attempt, and err otherwise. Not every transport returns the cause of a context.
func (c *Caller) timeoutOr(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == c.timeoutErr { //nolint:errorlint // not an error that wraps it
		return c.timeoutErr
	}
	return err
}
