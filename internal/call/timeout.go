package call

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"example.com/msgpush/internal/errs"
)

// attemptTimeout begins an attempt, and ends it after its timeout, or at the end of the call.
func (c *Caller) attemptTimeout(next http.RoundTripper) http.RoundTripper {
	return roundTripFunc(func(req *http.Request) (*http.Response, error) {
		s := stateOf(req.Context())
		s.attempts++
		s.start = time.Now()
		s.resp, s.size = nil, 0
		c.closeIdleAfterTimeout()
		d, cause := c.AttemptTimeout, c.attemptTimeoutErr
		if !s.deadline.IsZero() && time.Until(s.deadline) < d {
			d, cause = time.Until(s.deadline), c.timeoutErr
		}
		ctx, cancel := withTimeout(req.Context(), d, cause)
		defer cancel() // the body has been read
		if ctx != req.Context() {
			req = req.WithContext(ctx)
		}
		resp, err := next.RoundTrip(req)
		hasTimedOut := err != nil && s.resp == nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded)
		if hasTimedOut {
			c.hasTimedOut.Store(true)
		}
		if err != nil && context.Cause(ctx) == cause { //nolint:errorlint // not an error that wraps it
			return nil, cause // not every transport returns the cause of a context
		}
		return resp, err
	})
}

// closeIdleAfterTimeout closes the idle connections of the transport before an attempt that follows a timeout:
// a balancer may have forgotten them, or they are from before the machine slept. It does so at most once
// in the timeout of an attempt, since other clients that share the transport lose theirs, too. An HTTP/2
// connection with another request in progress is not idle: its pings end it.
func (c *Caller) closeIdleAfterTimeout() {
	if !c.hasTimedOut.Load() {
		return
	}
	last, now := c.closedAt.Load(), time.Now().UnixNano()
	if now-last >= int64(c.AttemptTimeout) && c.closedAt.CompareAndSwap(last, now) {
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

// A timeout is the timeout of a call. Most calls never wait for an access key or a rate limiter, and the
// timeout of an attempt ends with the call. So it has a timer only after something has called Done.
type timeout struct {
	deadline time.Time // zero: none, or the deadline of the caller is earlier
	err      error     // that ends the call

	mu       sync.Mutex
	ctx      context.Context // with the timer; nil: not needed so far
	cancel   context.CancelFunc
	hasEnded bool
}

func (s *state) setTimeout(d time.Duration, err error) {
	deadline, hasDeadline := s.Context.Deadline()
	own := time.Now().Add(d)
	if d > 0 && (!hasDeadline || own.Before(deadline)) {
		s.deadline, s.err = own, err
	}
}

// end stops the timer.
func (t *timeout) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hasEnded = true
	if t.cancel != nil {
		t.cancel()
	}
}

// Deadline returns the earlier one of the deadlines of the caller and of the timeout.
func (s *state) Deadline() (time.Time, bool) {
	if s.deadline.IsZero() {
		return s.Context.Deadline()
	}
	return s.deadline, true
}

// Done returns the channel of the context with the timer, which it makes if there is none.
func (s *state) Done() <-chan struct{} {
	if s.deadline.IsZero() {
		return s.Context.Done()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		s.ctx, s.cancel = context.WithDeadlineCause(s.Context, s.deadline, s.err)
	}
	if s.hasEnded {
		s.cancel()
	}
	return s.ctx.Done()
}

// Err returns the error of the context with the timer, if there is one.
func (s *state) Err() error {
	if !s.deadline.IsZero() && !time.Now().Before(s.deadline) {
		s.Done() // a limiter may call only Err
	}
	return s.timed().Err()
}

// Value returns the state itself for stateKey.
func (s *state) Value(key any) any {
	if key == (stateKey{}) {
		return s
	}
	return s.timed().Value(key)
}

func (s *state) timed() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		return s.Context
	}
	return s.ctx
}

// cause returns why the call has ended.
func (s *state) cause() error {
	isTimeout := errs.OfContext(s.Context) == nil && !s.deadline.IsZero()
	if isTimeout {
		return s.err
	}
	return errs.WithCause(s.Context)
}
