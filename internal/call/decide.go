package call

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"example.com/msgpush/internal/errs"
)

// A Policy is a msgpush.RetryPolicy in which only Quota may be 0.
type Policy struct {
	MaxAttempts int
	MinWait     time.Duration
	MaxWait     time.Duration
	Quota       int
}

// backoff returns a random wait between half of a bound and the bound. The bound doubles with
// each attempt, up to MaxWait. The wait is random so that callers do not retry at the same time,
// and at least half, so that the waits of a call cannot all be close to 0.
func (p Policy) backoff(attempts int) time.Duration {
	bound, doublings := p.MaxWait, attempts-1
	if p.MinWait <= p.MaxWait>>doublings { // shifting MaxWait right cannot overflow
		bound = p.MinWait << doublings
	}
	return bound/2 + rand.N(bound-bound/2) // bound is positive, as MinWait and MaxWait are
}

// decide returns how the call ends after the attempt o: with o, or with the end of the context. It
// returns nil if another attempt follows after s.wait.
func (s *state) decide(ctx context.Context, o *Outcome) (end *Outcome) {
	s.wait = 0
	if o.Kind == Success {
		s.settleQuota(o, false)
		return o
	}
	ended := errs.ContextEnded(ctx)
	if ended && o.Kind == NoResponse && isEndOf(ctx, o.Cause) {
		o.Transient = false // not a failure of the service: it is not retried, and the quota gets its tokens back
	} else {
		s.lastFailure = o
	}
	s.settleQuota(o, ended)
	replaceKey := o.KeyRejected && s.rejectedKey == "" && s.CanReplaceKey
	if ended && (o.Kind == NoResponse || replaceKey) {
		return s.stop(ctx, "", nil)
	}
	if replaceKey { // independent of the policy: a rejected request is treated as not processed
		s.rejectedKey = s.key
		return nil
	}
	if !o.Transient || s.counted() >= s.Policy.MaxAttempts {
		return o
	}
	if !s.request.Idempotent && !o.NotSent {
		o.remark("not retried, since the request is not idempotent")
		return o
	}
	return s.retry(ctx, o, ended)
}

// isEndOf reports whether err is the error or the cause of ctx, which has ended.
func isEndOf(ctx context.Context, err error) bool {
	return errs.Is(err, context.Cause(ctx)) || errs.Is(err, errs.OfContext(ctx))
}

// counted returns the number of attempts as MaxAttempts counts them: replacing the key allows one
// more.
func (s *state) counted() int {
	if s.rejectedKey != "" {
		return s.attempts - 1
	}
	return s.attempts
}

// settleQuota counts a first attempt, unless it failed and the context ended. It gives back the tokens of
// a retry unless it failed transiently.
func (s *state) settleQuota(o *Outcome, ended bool) {
	isFirst := s.attempts == 1
	if isFirst && !ended {
		s.quota.count(o.Transient)
	}
	if !isFirst && !o.Transient {
		s.quota.giveBack(s.borrowed)
	}
	s.borrowed = 0
}

// retry takes a retry from the quota and sets the wait before it. Otherwise, it returns o, with the
// reason as a remark, or the end of the context.
func (s *state) retry(ctx context.Context, o *Outcome, ended bool) (end *Outcome) {
	backoff := s.Policy.backoff(s.counted())
	wait := o.RequestedWait + min(backoff, math.MaxInt64-o.RequestedWait)
	deadline, hasDeadline := ctx.Deadline()
	switch {
	case o.RequestedWait > s.Policy.MaxWait:
		o.remark(fmt.Sprintf("Retry-After is longer than MaxWait, %v", s.Policy.MaxWait))
		return o
	case ended: // o would be retried; any other response is returned, although the context has ended
		return s.stop(ctx, "", nil)
	case hasDeadline && time.Until(deadline) <= wait:
		o.remark("no time for a retry before the deadline")
		return o
	case !s.quota.take(tokensPerRetry):
		o.remark("the retry quota is used up")
		return o
	}
	s.borrowed, s.wait = tokensPerRetry, wait
	return nil
}
