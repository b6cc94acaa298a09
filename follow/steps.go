package follow

import (
	"context"
	"errors"
	"math"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
)

// steps are requests, calls of load and store, and waits of a follower, one after another.
type steps struct {
	health
	random   func(n int64) int64 // from 0 up to, but not including, n
	pageWait time.Duration       // after the first failed attempt for a page
	mustWait time.Duration       // before the next poll, by Retry-After
}

// markStep is called before a step, which is a request, or a call of load or store.
func (s *steps) markStep(step string) {
	s.update(func(status *Status) { status.StepSince, status.Step = time.Now(), step })
}

// retry makes a step until it succeeds, but at most the given number of attempts: step gets the number of
// its attempt, from 1. It also ends if ctx ends and, if the number is limited, at a Retry-After of more
// than a minute. It reports each error. The wait after an error doubles, up to a minute. A longer
// Retry-After is kept.
func (s *steps) retry(
	ctx context.Context, c cause, attempts int, wait time.Duration, step func(n int) error,
) error {
	for n := 1; errs.OfContext(ctx) == nil; n++ {
		err := step(n)
		if err == nil {
			return nil
		}
		if errs.OfContext(ctx) != nil {
			break // err may be the error of the context
		}
		s.failed(c, err)
		isTooLong := attempts < math.MaxInt && retryAfter(err) > maxWait
		if n == attempts || isTooLong {
			return err
		}
		s.sleep(ctx, max(s.jitter(wait), s.spread(retryAfter(err))))
		wait = min(2*wait, maxWait)
	}
	return errs.OfContext(ctx)
}

// pause waits until the next poll, for longer if a page that failed had a Retry-After.
func (s *steps) pause(ctx context.Context, wait time.Duration) {
	s.update(func(status *Status) { status.PollingSince = time.Time{} })
	s.sleep(ctx, max(s.jitter(wait), s.mustWait))
	s.mustWait = 0
}

// sleep waits until the next step.
func (s *steps) sleep(ctx context.Context, wait time.Duration) {
	s.update(func(status *Status) { status.StepSince, status.Step = time.Time{}, "" })
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// jitter returns a wait that is up to 10 % shorter or longer, so that programs do not keep in step.
func (s *steps) jitter(wait time.Duration) time.Duration { return wait - wait/10 + s.below(wait/5+1) }

func (s *steps) below(d time.Duration) time.Duration { return time.Duration(s.random(int64(d))) }

// spread returns a wait that is up to 10 % longer: others may have got the same Retry-After.
func (s *steps) spread(wait time.Duration) time.Duration { return wait + s.below(wait/10+1) }

// retryAfter returns the wait of a Retry-After header, up to an hour.
func retryAfter(err error) time.Duration {
	apiErr, ok := errors.AsType[*msgpush.APIError](err)
	if !ok {
		return 0
	}
	return min(apiErr.RetryAfter, maxRetryAfter)
}
