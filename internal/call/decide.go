package call

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"example.com/msgpush/internal/errs"
)

// randomWait returns a wait between half of a bound and the bound. The bound doubles with each
// attempt, up to MaxWait. The wait is random so that callers do not retry at the same time, and at
// least half, so that the waits of a call cannot all be close to 0.
func (c *Caller) randomWait(attempts int) time.Duration {
	bound, doublings := c.Retry.MaxWait, attempts-1
	if c.Retry.MinWait <= c.Retry.MaxWait>>doublings { // shifting MaxWait right cannot overflow
		bound = c.Retry.MinWait << doublings
	}
	return bound/2 + rand.N(bound-bound/2) // bound is positive, as MinWait and MaxWait are
}

// decide returns how the call ends after the attempt o: with o, or with the end of the context. It
// returns nil if another attempt follows after c.wait.
func (c *call) decide(ctx context.Context, o *Outcome) (end *Outcome) {
	c.wait = 0
	ended := errs.OfContext(ctx) != nil
	isInterrupted := ended && o.Kind == NoResponse && isEndOf(ctx, o.Cause)
	c.settleQuota(ctx, o, isInterrupted)
	if o.Kind == Success {
		return o
	}
	if !isInterrupted {
		c.lastFailure = o
	}
	replaceKey := o.KeyRejected && c.rejectedKey == "" && c.CanReplaceKey
	if ended && (o.Kind == NoResponse || replaceKey) {
		return c.stop(ctx, "", nil)
	}
	if replaceKey { // independent of the policy: a rejected request is treated as not processed
		c.rejectedKey = c.key
		return nil
	}
	if !o.Transient || c.counted() >= c.Retry.MaxAttempts {
		return o
	}
	if !c.request.Idempotent && !o.NotSent {
		o.remark("not retried, since the request is not idempotent")
		return o
	}
	return c.retry(ctx, o, ended)
}

// isEndOf reports whether err is the error or the cause of ctx, which has ended.
func isEndOf(ctx context.Context, err error) bool {
	return errors.Is(err, context.Cause(ctx)) || errors.Is(err, errs.OfContext(ctx))
}

// counted returns the number of attempts as MaxAttempts counts them: replacing the key allows one
// more.
func (c *call) counted() int {
	if c.rejectedKey != "" {
		return c.attempts - 1
	}
	return c.attempts
}

// settleQuota settles the tokens of an attempt:
//
//	how it ended                   first attempt      retry
//	success or permanent failure   adds a token       gives its tokens back
//	transient failure              counts as failed   keeps them
//	canceled                       -                  gives them back
//	interrupted by its deadline    -                  keeps them
//
// A deadline keeps the tokens: otherwise, calls to a silent service would be retried without limit.
func (c *call) settleQuota(ctx context.Context, o *Outcome, isInterrupted bool) {
	isFirst := c.attempts == 1
	isCanceled := isInterrupted && errors.Is(ctx.Err(), context.Canceled)
	switch {
	case isFirst && !isInterrupted:
		c.quota.count(o.Transient)
	case !isFirst && (!o.Transient || isCanceled):
		c.quota.giveBack(c.borrowed)
	}
	c.borrowed = 0
}

// retry takes a retry from the quota and sets the wait before it. Otherwise, it returns o, with the
// reason as a remark, or the end of the context.
func (c *call) retry(ctx context.Context, o *Outcome, ended bool) (end *Outcome) {
	backoff := c.randomWait(c.counted())
	wait := o.RequestedWait + min(backoff, math.MaxInt64-o.RequestedWait)
	deadline, hasDeadline := ctx.Deadline()
	switch {
	case o.RequestedWait > c.Retry.MaxWait:
		o.remark(fmt.Sprintf("Retry-After is longer than MaxWait, %v", c.Retry.MaxWait))
		return o
	case ended: // o would be retried, but the context has ended
		return c.stop(ctx, "", nil)
	case hasDeadline && time.Until(deadline) <= wait:
		o.remark("no time for a retry before the deadline")
		return o
	case !c.quota.take(tokensPerRetry):
		o.remark("the retry quota is used up")
		return o
	}
	c.borrowed, c.wait = tokensPerRetry, wait
	return nil
}
