package call

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/redact"
)

// An Attempt is what Report learns of an attempt. Its texts may contain secrets.
type Attempt struct {
	Request  *Request
	Keys     *redact.Keys // of the call so far
	Number   int          // 1 for the first attempt of the call
	Start    time.Time
	Duration time.Duration
	Response *http.Response // nil: none; its body has been read
	Size     int            // of the body, as far as it was read
	Failure  *Failure       // of the attempt; nil: success
	LeftOut  *Failure       // the part that is left out of a success; nil: none
	Final    *Failure       // of the call; nil: it succeeds, or another attempt follows
	Retry    bool           // another attempt follows
}

// checkRetry judges an attempt, reports it, and returns whether another attempt follows. If none
// follows a failure, it returns the *Failure with which the call ends.
func (c *Caller) checkRetry(ctx context.Context, resp *http.Response, err error) (retry bool, end error) {
	s := stateOf(ctx)
	resp, err = fromClient(resp, err)     //nolint:bodyclose // Do closes it
	if stop, ok := err.(*stopError); ok { //nolint:errorlint // of the chain, which does not wrap it
		return false, s.failureOf(stop)
	}
	failure := c.judge(s, resp, err)
	duration := time.Since(s.start)
	var final *Failure
	if failure == nil {
		c.quota.giveBack()
	} else {
		final = c.decide(s, failure)
	}
	retry = failure != nil && final == nil
	if c.Report != nil {
		c.Report(s, Attempt{
			Request:  &s.request,
			Keys:     &s.keys,
			Number:   s.attempts,
			Start:    s.start,
			Duration: duration,
			Response: s.resp,
			Size:     s.size,
			Failure:  failure,
			LeftOut:  s.leftOut,
			Final:    final,
			Retry:    retry,
		})
	}
	if final == nil { // not in one return: end would be an error that is not nil
		return retry, nil
	}
	return false, final
}

// decide returns the final failure of the call after the failure f of an attempt, or nil if another
// attempt follows.
func (c *Caller) decide(s *state, f *Failure) (final *Failure) {
	hasEnded := errs.OfContext(s) != nil
	if hasEnded && f.Kind == NoResponse {
		if !isEndOf(s, f.Cause) { // otherwise, f says nothing about the service
			s.last = f
		}
		return s.failureOf(contextEnded)
	}
	s.last = f
	replacesKey := f.KeyRejected && !s.hasReplacedKey() && c.CanReplaceKey
	if replacesKey { // independent of the policy: a rejected request is treated as not processed
		return c.replaceKey(s)
	}
	if !c.isRetryable(s, f) {
		return f
	}
	if hasEnded {
		return s.failureOf(contextEnded)
	}
	deadline, hasDeadline := s.Deadline()
	if hasDeadline && time.Until(deadline) <= c.longestWait(s.attempts, f.RequestedWait) {
		f.remark("no time for a retry before the deadline")
		return f
	}
	if !c.quota.take() {
		f.remark("the retry quota is used up")
		return f
	}
	return nil
}

// isEndOf reports whether err is the error or the cause of ctx, which has ended.
func isEndOf(ctx context.Context, err error) bool {
	return errors.Is(err, context.Cause(ctx)) || errors.Is(err, errs.OfContext(ctx))
}

// isRetryable reports whether the policy and the request allow a retry after the failure f. A remark
// says why not, unless f or the number of attempts shows it.
func (c *Caller) isRetryable(s *state, f *Failure) bool {
	if !f.Transient || s.counted() >= c.Retry.MaxAttempts {
		return false
	}
	if !s.request.Idempotent && !f.NotSent {
		f.remark("not retried, since the request is not idempotent")
		return false
	}
	if f.RequestedWait > c.Retry.MaxWait {
		f.remark(fmt.Sprintf("Retry-After is longer than MaxWait, %v", c.Retry.MaxWait))
		return false
	}
	return true
}

// replaceKey gets the key that replaces the rejected one. It returns the final failure of the call if
// there is no other key: the next attempt could not send one.
func (c *Caller) replaceKey(s *state) (final *Failure) {
	s.rejectedKey = s.key
	err := c.nextKey(s)
	if stop, ok := err.(*stopError); ok { //nolint:errorlint // nextKey does not wrap it
		return s.failureOf(stop)
	}
	return nil
}

// backoff returns the wait before the next attempt: the wait that the response requests, and a random
// wait between half of a bound and the bound. It is random so that callers do not retry at the same
// time, and at least half so that the waits of a call cannot all be close to 0.
//
// go-retryablehttp passes no context, and after an error no response. So backoff cannot compare its
// wait with the deadline: decide has done so, with the longest wait.
func (c *Caller) backoff(_, _ time.Duration, retries int, resp *http.Response) time.Duration {
	requested := time.Duration(0)
	if resp != nil {
		last := stateOf(resp.Request.Context()).last
		if last.KeyRejected { // and now replaced
			return 0
		}
		requested = last.RequestedWait
	}
	bound := c.longestWait(retries+1, 0)
	random := bound/2 + rand.N(bound-bound/2) // bound is positive, as MinWait and MaxWait are
	return requested + min(random, math.MaxInt64-requested)
}

// longestWait returns the longest wait after a number of attempts. The bound of its random part
// doubles with each attempt, up to MaxWait.
func (c *Caller) longestWait(attempts int, requested time.Duration) time.Duration {
	bound, doublings := c.Retry.MaxWait, attempts-1
	if c.Retry.MinWait <= c.Retry.MaxWait>>doublings { // shifting MaxWait right cannot overflow
		bound = c.Retry.MinWait << doublings
	}
	return requested + min(bound, math.MaxInt64-requested)
}
