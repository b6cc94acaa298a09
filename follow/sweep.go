package follow

import "time"

// A schedule says when the next sweep is due.
type schedule struct {
	interval time.Duration
	next     time.Time // zero: now
}

func (s *schedule) isDue(now time.Time) bool { return !now.Before(s.next) }

// soon makes the next sweep due after a wait, at most the interval, if that is sooner than before. A sweep
// that is due now waits, too: it has just failed.
func (s *schedule) soon(wait time.Duration) {
	now := time.Now()
	soon := now.Add(min(wait, s.interval))
	if s.isDue(now) || soon.Before(s.next) {
		s.next = soon
	}
}

// sweepSoon makes a sweep due after a minute. If pages have failed for longer, it waits as long as they
// have failed, so that they cost little.
func (f *Follower[T]) sweepSoon() {
	wait := firstSweepWait
	since := f.steps.failingSince(causeOtherPage)
	if !since.IsZero() {
		wait = max(wait, time.Since(since))
	}
	f.sweeps.soon(wait)
}

// endSweep reports missing records, and makes the others known that are not new. It reports whether one of
// these was unknown.
func (f *Follower[T]) endSweep(s *scan[T], res result[T]) (hasNewlyKnown bool) {
	switch {
	case res.missing != nil:
		f.steps.failed(causeMissing, res.missing)
		f.list.forget()
	case s.isSweep: // other polls may go as far as a sweep
		f.steps.succeeded(causeMissing)
	}
	f.isEmpty = len(s.items) == 0
	leavesNewer := s.hasDropped() && len(res.newItems) > 0 // the next poll finds them
	if leavesNewer {
		return false
	}
	f.steps.succeeded(causeOtherPage)
	if f.isEmpty { // or the service is at fault: the ids are kept
		return false
	}
	return f.makeKnown(res)
}

// makeKnown makes the records known that are not new, and reports whether one was unknown.
func (f *Follower[T]) makeKnown(res result[T]) (hasNewlyKnown bool) {
	hasNewlyKnown = f.position.remember(res.others, f.maxKnown())
	f.position.Whole = res.isWhole
	return hasNewlyKnown
}
