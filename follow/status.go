package follow

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"example.com/msgpush/internal/errs"
)

// A Status is the state of a [Follower]. A zero time stands for never.
type Status struct {
	// LastPoll is when a poll last succeeded, and store had stored its batches.
	LastPoll time.Time
	// PollingSince is when the current poll began, or zero between two polls.
	PollingSince time.Time
	// Step is what runs: "request", "load" or "store". It is empty while the follower waits.
	Step string
	// StepSince is when the step began, or zero while the follower waits. Before Run, it is the time of
	// New, and after Run, the time when Run returned.
	StepSince time.Time
	// Omitted is the number of records that could not be decoded, in stored batches of this follower.
	Omitted int64
	// Err is the latest error of a request, of load or of store, if that fails now. If several of them
	// fail, it is the error of the one that has failed for longest. It wraps [ErrMissing] if records are
	// missing by the latest sweep.
	Err error
	// FailingSince is the time of the first error in a row.
	FailingSince time.Time
}

// Check returns an error
//
//   - that wraps [ErrHangs] if no step has ended for longer than limit;
//   - that wraps Err if there has been an error for longer than limit;
//   - that wraps Err immediately, until the next sweep, if records are missing;
//   - that wraps [ErrSlow] if a poll takes longer than limit.
//
// An outage at the first start is an error, too. Before the limit has passed, Check may return nil
// although no poll has succeeded: then LastPoll is zero.
//
// Send an alert for each error. Restart the program only for ErrHangs: an outage of the service or of the
// database ends without a restart. The limit should be longer than a call with all its retries, and than a
// transaction, for example ten minutes.
func (s Status) Check(limit time.Duration) error {
	const layout = time.DateTime + " MST"
	if !s.StepSince.IsZero() && time.Since(s.StepSince) > limit {
		step := cmp.Or(s.Step, "Run was not called, or has returned")
		return errorf("%w since %s: %s", ErrHangs, s.StepSince.UTC().Format(layout), step)
	}
	isTooLong := s.Err != nil && time.Since(s.FailingSince) > limit
	if isTooLong || errors.Is(s.Err, ErrMissing) {
		cause := strings.TrimPrefix(strings.TrimPrefix(s.Err.Error(), prefix), "msgpush: ")
		text := prefix + "failing since " + s.FailingSince.UTC().Format(layout) + ": " + cause
		return errs.Hide(text, s.Err)
	}
	if !s.PollingSince.IsZero() && time.Since(s.PollingSince) > limit {
		return errorf("%w since %s: the list may grow too fast", ErrSlow, s.PollingSince.UTC().Format(layout))
	}
	return nil
}

// Status returns the state. It may be called at any time, from any goroutine.
func (f *Follower[T]) Status() Status {
	f.steps.mu.Lock()
	defer f.steps.mu.Unlock()
	return f.steps.status
}
