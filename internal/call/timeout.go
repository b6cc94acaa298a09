package call

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// attemptTimeout begins an attempt, and ends it after its timeout, or at the end of the call.
func (c *Caller) attemptTimeout(next http.RoundTripper) http.RoundTripper {
	return roundTripFunc(func(req *http.Request) (*http.Response, error) {
		s := stateOf(req.Context())
		timeout, timeoutErr := c.timeoutOfAttempt(s)
		if s.endErr() != nil { // otherwise, the timeout is positive
			return nil, contextEnded
		}
		s.attempts++
		s.start = time.Now()
		s.resp, s.size = nil, 0
		c.closeIdleAfterTimeout()
		ctx, cancel := withTimeout(s.ctx, timeout, timeoutErr)
		defer cancel() // the body has been read
		if ctx != s.ctx {
			req = req.WithContext(ctx)
		}
		resp, err := next.RoundTrip(req)
		if err == nil {
			return resp, nil
		}
		// A deadline of the caller counts, too: it often ends before the timeout of an attempt. Its cause may be
		// any error.
		if s.resp == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.hasTimedOut.Store(true)
		}
		if context.Cause(ctx) == timeoutErr { //nolint:errorlint // not an error that wraps it
			return nil, timeoutErr // not every transport returns the cause of a context
		}
		return nil, err
	})
}

// timeoutOfAttempt returns the timeout of the attempt that begins, and its error. If the call
// ends before, they are the timeout and the error of the call.
func (c *Caller) timeoutOfAttempt(s *state) (time.Duration, error) {
	left := time.Until(s.deadline)
	if s.hasTimeout() && left < c.AttemptTimeout {
		return left, c.timeoutErr
	}
	return c.AttemptTimeout, c.attemptTimeoutErr
}

// closeIdleAfterTimeout closes the idle connections of the transport before an attempt that follows a
// timeout: a balancer may have forgotten them, or they are from before the machine slept. It does so at most
// once in the timeout of an attempt, since other clients that share the transport lose theirs, too. An HTTP/2
// connection with another request in progress is not idle: its pings end it.
func (c *Caller) closeIdleAfterTimeout() {
	if !c.hasTimedOut.Load() {
		return
	}
	now, last := time.Now(), c.closedAt.Load()
	if last != nil && now.Sub(*last) < c.AttemptTimeout {
		return
	}
	if c.closedAt.CompareAndSwap(last, &now) { // otherwise, another attempt closes them
		c.hasTimedOut.Store(false)
		c.CloseIdleConnections()
	}
}

// withTimeout returns a context that ends after d because of cause. If ctx ends before, it returns
// ctx, which needs no further timer.
func withTimeout(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	deadline, hasDeadline := ctx.Deadline()
	if hasDeadline && time.Until(deadline) <= d {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, cause)
}
