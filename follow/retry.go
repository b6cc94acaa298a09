package follow

import (
	"context"
	"errors"
	"math"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/errs"
)

// untilSuccess makes a step until it succeeds, but at most the given number of attempts: step gets the number of its
// attempt, from 1. It also ends if ctx ends, if the stored position has changed, and, if the number is limited, at a
// Retry-After of more than a minute. It reports each error. The wait after an error doubles, up to a minute. A longer
// Retry-After is kept.
func (f *Follower[T]) untilSuccess(
	ctx context.Context, c cause, attempts int, wait time.Duration, step func(n int) error,
) error {
	for n := 1; errs.OfContext(ctx) == nil; n++ {
		err := step(n)
		if err == nil || errors.Is(err, ErrReplaced) {
			return err
		}
		if errs.OfContext(ctx) != nil {
			break // err may be the error of the context
		}
		f.failed(c, err)
		isTooLong := attempts < math.MaxInt && retryAfter(err) > time.Minute
		if n == attempts || isTooLong {
			return err
		}
		f.sleep(ctx, max(f.jitter(wait), f.spread(retryAfter(err))))
		wait = min(2*wait, time.Minute)
	}
	return errs.OfContext(ctx)
}

// retryAfter returns the wait of a Retry-After header, up to an hour.
func retryAfter(err error) time.Duration {
	apiErr, ok := errors.AsType[*msgpush.APIError](err)
	if !ok {
		return 0
	}
	return min(apiErr.RetryAfter, time.Hour)
}

// spread returns a wait that is up to 10 % longer: others may have got the same Retry-After.
func (f *Follower[T]) spread(wait time.Duration) time.Duration { return wait + f.random(wait/10+1) }

// pause waits until the next reading, for longer if a page that failed had a Retry-After.
func (f *Follower[T]) pause(ctx context.Context, wait time.Duration) {
	f.update(func(s *Status) { s.PollingSince = time.Time{} })
	f.sleep(ctx, max(wait, f.mustWait))
	f.mustWait = 0
}

// sleep waits until the next step.
func (f *Follower[T]) sleep(ctx context.Context, wait time.Duration) {
	f.update(func(s *Status) { s.NextStep = time.Now().Add(wait) })
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// jitter returns a wait that is up to 10 % shorter or longer, so that programs do not keep in step.
func (f *Follower[T]) jitter(wait time.Duration) time.Duration {
	return wait - wait/10 + f.random(wait/5+1)
}
