package follow

import (
	"context"
	"time"
)

// A schedule says when the next sweep is due.
type schedule struct {
	interval time.Duration
	next     time.Time // zero: now
}

func (s *schedule) isDue(now time.Time) bool { return !now.Before(s.next) }

// soon makes the next sweep due after a wait, at most the interval, if that is sooner than before. A sweep that is due
// now waits, too: it has just failed.
func (s *schedule) soon(wait time.Duration) {
	now := time.Now()
	soon := now.Add(min(wait, s.interval))
	if s.isDue(now) || soon.Before(s.next) {
		s.next = soon
	}
}

// sweepSoon makes a sweep due after a minute. If pages have failed for longer, it waits as long as they have failed, so
// that they cost little.
func (f *Follower[T]) sweepSoon() {
	wait := firstSweepWait
	if f.steps.areFailing(causeOtherPage) {
		wait = max(wait, time.Since(f.steps.failures[causeOtherPage].since))
	}
	f.sweeps.soon(wait)
}

// endSweep reports missing records, and makes the others known that are not new.
func (f *Follower[T]) endSweep(ctx context.Context, r *reading[T], newItems []item[T]) error {
	err := r.missing(len(newItems)) // compared with the position before makeKnown
	f.isEmpty = len(r.items) == 0
	switch {
	case err != nil:
		f.steps.failed(causeMissing, err)
		f.list.forget()
	case r.isSweep: // other polls may go as far as a sweep
		f.steps.succeeded(causeMissing)
	}
	leavesNewer := r.hasDropped() && len(newItems) > 0 // the next poll finds them
	if leavesNewer {
		return nil
	}
	f.steps.succeeded(causeOtherPage)
	hasNewlyKnown := f.makeKnown(r, newItems)
	if !hasNewlyKnown || len(newItems) > 0 { // deliver stores the position with the records
		return nil
	}
	return f.storeBatch(ctx, Batch[T]{})
}

// makeKnown makes the records known that are not new, and reports whether one was unknown.
func (f *Follower[T]) makeKnown(r *reading[T], newItems []item[T]) (hasNewlyKnown bool) {
	if len(r.items) == 0 && f.position.started {
		return false // the list is empty, or the service is at fault: the ids are kept
	}
	entries := r.notNew(newItems)
	if r.showsLength() {
		f.position.settle(r.growth(len(newItems)), r.isSweep)
	}
	hasAll := r.ending == atEnd && int64(len(r.items)) >= r.total
	hasNewlyKnown = f.position.keep(entries, f.maxKnown())
	f.position.Whole = hasAll && len(entries)+len(newItems) == len(r.items)
	return hasNewlyKnown
}
