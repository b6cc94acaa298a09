package call

import (
	"context"
	"fmt"
	"sync"
	"time"

	"example.com/msgpush/internal/errs"
)

// A callContext is the context of a call with its timeout. A limiter, a key source and an observer get it, and
// may keep it.
//
// Most calls never wait for an access key or a rate limiter, and the timeout of an attempt ends with the
// call. So a callContext has a timer only after something has called Done.
type callContext struct {
	context.Context           // the state of the call, which ends with the context of the caller
	deadline        time.Time // zero: none, or the deadline of the caller is earlier
	timeoutErr      error     // that ends the call at the deadline

	mu       sync.Mutex
	timed    context.Context // with the timer; nil: not needed so far
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
	if c.cancel != nil {
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

// Done returns the channel of the context with the timer, which it makes if there is none.
func (c *callContext) Done() <-chan struct{} {
	if !c.hasTimeout() {
		return c.Context.Done()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadlineCause(c.Context, c.deadline, c.timeoutErr)
	}
	if c.hasEnded {
		c.cancel()
	}
	return c.timed.Done()
}

// Err returns the error of the context with the timer. After the deadline, it makes that context: a limiter
// may call only Err.
func (c *callContext) Err() error {
	if c.hasTimeout() && !time.Now().Before(c.deadline) {
		c.Done()
	}
	return c.current().Err()
}

// Value returns a value of the context with the timer. Package context finds that context by a value.
func (c *callContext) Value(key any) any { return c.current().Value(key) }

// current returns the context with the timer or, if there is none, the one without.
func (c *callContext) current() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		return c.Context
	}
	return c.timed
}

// Format writes the operation, as the state does.
func (c *callContext) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, c.Context) }

// cause returns why the context has ended.
func (c *callContext) cause() error {
	isTimeout := errs.OfContext(c.Context) == nil && c.hasTimeout()
	if isTimeout {
		return c.timeoutErr
	}
	return errs.WithCause(c.Context)
}
