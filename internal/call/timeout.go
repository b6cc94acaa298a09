package call

import (
	"context"
	"net/http"
	"time"
)

// attemptTimeout begins an attempt, and ends it after its timeout.
func (c *Caller) attemptTimeout(next http.RoundTripper) http.RoundTripper {
	return roundTripFunc(func(req *http.Request) (*http.Response, error) {
		s := stateOf(req.Context())
		s.attempts++
		s.start = time.Now()
		s.notSent, s.resp, s.size = false, nil, 0
		ctx, cancel := withTimeout(req.Context(), c.AttemptTimeout, c.attemptTimeoutErr)
		defer cancel() // the body has been read
		if ctx != req.Context() {
			req = req.WithContext(ctx)
		}
		resp, err := next.RoundTrip(req)
		if err != nil && context.Cause(ctx) == c.attemptTimeoutErr { //nolint:errorlint // not an error that wraps it
			return nil, c.attemptTimeoutErr // not every transport returns the cause of a context
		}
		return resp, err
	})
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
