package call

import (
	"context"
	"errors"
	"math"
	"time"
)

// begin sets the context and the deadline of a call. The returned function stops the timer of the context.
// Only a limiter and a key source need that timer, since they may block: each attempt has another timer.
func (c *Caller) begin(ctx context.Context, s *state) (end context.CancelFunc) {
	s.ctx = context.WithValue(ctx, operationKey{}, s.spec.Operation)
	if c.Timeout == 0 {
		return func() {}
	}
	s.deadline, s.timeoutErr = time.Now().Add(c.Timeout), c.timeoutErr
	if c.Limiter == nil && !c.HasKeySource {
		return func() {}
	}
	s.ctx, end = context.WithDeadlineCause(s.ctx, s.deadline, s.timeoutErr)
	return end
}

func (s *state) hasTimeout() bool { return !s.deadline.IsZero() }

// timeLeft returns the time until the timeout of the call or the deadline of the caller, whichever is
// earlier.
func (s *state) timeLeft() time.Duration {
	left := time.Duration(math.MaxInt64)
	if deadline, hasDeadline := s.ctx.Deadline(); hasDeadline {
		left = time.Until(deadline)
	}
	if s.hasTimeout() {
		left = min(left, time.Until(s.deadline))
	}
	return max(0, left)
}

// attemptContext returns the context of an attempt. It ends after the timeout of the attempt, or at the end
// of the call. It needs no timer if the context of the call ends before.
func (c *Caller) attemptContext(s *state) (context.Context, context.CancelFunc) {
	deadline, cause := time.Now().Add(c.AttemptTimeout), c.attemptTimeoutErr
	if s.hasTimeout() && s.deadline.Before(deadline) {
		deadline, cause = s.deadline, s.timeoutErr
	}
	ofContext, hasDeadline := s.ctx.Deadline()
	if hasDeadline && !ofContext.After(deadline) {
		return s.ctx, func() {}
	}
	return context.WithDeadlineCause(s.ctx, deadline, cause)
}

// attemptErr returns the error of an attempt that failed with err. A timeout replaces err, since not every
// transport returns the cause of a context.
func (c *Caller) attemptErr(ctx context.Context, s *state, err error) error {
	// A deadline of the caller counts, too: it often ends before the timeout of an attempt. Its cause may
	// be any error.
	if s.resp == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.hasTimedOut.Store(true)
	}
	cause := context.Cause(ctx)
	if cause == c.attemptTimeoutErr || cause == c.timeoutErr { //nolint:errorlint // not an error that wraps one
		return cause
	}
	return err
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
