package call

import (
	"context"
	"fmt"
	"sync"
	"time"

	"example.com/msgpush/internal/errs"
)

// A callContext is the context of a call. It ends with the context of the caller, at the timeout of the call,
// or when the call ends. A limiter, a key source and an observer get it, and may keep it.
//
// Most calls never wait for an access key or a rate limiter, and the timeout of an attempt ends with the
// call. So the context with the timer is derived only when something needs it.
type callContext struct {
	context.Context           // the state of the call, which ends with the context of the caller
	deadline        time.Time // zero: none, or the deadline of the caller is earlier
	timeoutErr      error     // that ends the call at the deadline

	mu       sync.Mutex
	derived  context.Context // nil: not needed so far
	cancel   context.CancelFunc
	hasEnded bool
}

// setTimeout sets the deadline, unless d is 0 or the deadline of the caller is earlier.
func (c *callContext) setTimeout(d time.Duration, err error) {
	callerDeadline, hasDeadline := c.Context.Deadline()
	deadline := time.Now().Add(d)
	if d > 0 && (!hasDeadline || deadline.Before(callerDeadline)) {
		c.deadline, c.timeoutErr = deadline, err
	}
}

func (c *callContext) hasTimeout() bool { return !c.deadline.IsZero() }

// end ends the context with the call, and stops the timer.
func (c *callContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hasEnded = true
	if c.derived != nil {
		c.cancel()
	}
}

// Deadline returns the earlier one of the deadlines of the caller and of the timeout.
func (c *callContext) Deadline() (time.Time, bool) {
	if c.hasTimeout() {
		return c.deadline, true
	}
	return c.Context.Deadline()
}

// Done returns the channel of the derived context.
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.derive().Done()
}

// Err returns the error of the derived context.
func (c *callContext) Err() error { return c.current().Err() }

// Value returns a value of the derived context. Package context finds that context by a value.
func (c *callContext) Value(key any) any { return c.current().Value(key) }

// current returns the derived context. It returns the state of the call, which needs no timer, if nothing
// has called Done and the call has not ended.
func (c *callContext) current() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	isOver := c.hasEnded || c.hasTimeout() && !time.Now().Before(c.deadline)
	if c.derived == nil && !isOver {
		return c.Context
	}
	return c.derive()
}

// derive returns the derived context, which its first call makes. The caller holds mu.
func (c *callContext) derive() context.Context {
	if c.derived != nil {
		return c.derived
	}
	if c.hasTimeout() {
		c.derived, c.cancel = context.WithDeadlineCause(c.Context, c.deadline, c.timeoutErr)
	} else {
		c.derived, c.cancel = context.WithCancel(c.Context)
	}
	if c.hasEnded {
		c.cancel()
	}
	return c.derived
}

// Format writes the operation, as the state does.
func (c *callContext) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, c.Context) }

// cause returns why the context has ended.
func (c *callContext) cause() error {
	if errs.OfContext(c.Context) == nil && c.hasTimeout() {
		return c.timeoutErr
	}
	return errs.WithCause(c.Context)
}
