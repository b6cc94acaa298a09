package follow

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/msgpush"
	"example.com/msgpush/internal/httpspec"
)

// This file turns the results of requests and of calls of store into a status and into waits. The
// rules are:
//
//   - Failure. Each cause has at most one failure: its latest error, and when the first one in a row was
//     noticed. The status shows the failure that began first.
//   - Wait. It doubles with each error in a row of the same cause.

// ErrHangs is wrapped by the error of [Status.Check] if a request or store does not return, or Run
// was not called or has returned. Restart the program.
var ErrHangs = errors.New("msgpush: following a list: no step has ended")

// A Status is the state of a [Follower]. A zero time stands for never.
type Status struct {
	// Since is the Since of the batches. At the very first start, it is empty until the first
	// batch.
	Since msgpush.DateTime
	// Complete reports whether the first reading of this follower has ended. It may have missed
	// records if the list changed meanwhile. After a restart, it requests one page after each poll.
	Complete bool
	// Read is the number of records that the reading in progress, or the latest one, has found.
	// Total is the number of records in the list.
	Read, Total int64
	// LastPoll is when a poll last succeeded. LastResponse is when Fetch last returned a page.
	LastPoll, LastResponse time.Time
	// NextStep is when the next request or call of store is due, at first the time of New. During a
	// request and during a call of store, it is in the past.
	NextStep time.Time
	// Err is the error of what fails now: the first start, polls, a page of a reading, store, or a
	// reading that lacked records. It is nil if none of them fails. If several fail, Err is the latest
	// error of the one that has failed for the longest time. FailingSince is the time of the first
	// error since that one last succeeded. A call counts as failed after its retries.
	Err          error
	FailingSince time.Time
}

// Check returns an error if no step has ended, or Err has not been nil, for longer than limit. Then
// send an alert. Restart the program only for [ErrHangs]: an outage of the service or of the
// database ends without a restart. The limit should be longer than a call with all its retries, and
// than a transaction, for example ten minutes.
func (s Status) Check(limit time.Duration) error {
	const layout = time.DateTime + " MST"
	isHanging := !s.NextStep.IsZero() && time.Since(s.NextStep) > limit
	if isHanging {
		return fmt.Errorf("%w since %s", ErrHangs, s.NextStep.UTC().Format(layout))
	}
	isFailing := s.Err != nil && time.Since(s.FailingSince) > limit
	if isFailing {
		since := s.FailingSince.UTC().Format(layout)
		return fmt.Errorf("msgpush: following a list: failing since %s: %w", since, s.Err)
	}
	return nil
}

// A cause is the kind of step that failed. Each has a failure and a wait of its own.
type cause int

const (
	storeFails cause = iota
	startFails       // a page of a first start
	pollFails        // a page of a poll
	readFails        // a page of a reading
	readLacks        // the latest complete reading lacked records
	causes
)

// health holds the failures.
type health struct {
	failures    [causes]failure
	hasReported bool // an error that came with a page, for the latest reading
}

// A failure is the latest of several errors in a row, and the time of the first. The zero failure
// is none.
type failure struct {
	err   error
	since time.Time
	inRow int
}

// update takes a result, which is an error or nil.
func (h *health) update(c cause, err error, now time.Time) {
	f := &h.failures[c]
	if err == nil {
		*f = failure{}
		return
	}
	if f.err == nil {
		f.since = now
	}
	f.err = err
	f.inRow++
}

func (h *health) hasFailed(c cause) bool { return h.failures[c].err != nil }

// resetWait makes the next wait a short one. A failure stays.
func (h *health) resetWait(c cause) { h.failures[c].inRow = 0 }

// oldest returns the failure that began first.
func (h *health) oldest() (oldest failure) {
	for _, f := range h.failures {
		if f.err != nil && (oldest.err == nil || f.since.Before(oldest.since)) {
			oldest = f
		}
	}
	return oldest
}

// wait returns the wait before what failed with err is tried again.
func (h *health) wait(c cause, err error, o Options) time.Duration {
	wait, longest := 2*o.PollInterval, max(o.PollInterval, time.Minute)
	if c == storeFails || c == readFails {
		wait, longest = time.Second, time.Minute
	}
	for i := 1; i < h.failures[c].inRow && wait < longest; i++ {
		wait *= 2
	}
	wait = min(wait, longest)
	wait = min(jitter(wait), longest)
	apiErr, ok := errors.AsType[*msgpush.APIError](err)
	if ok && httpspec.IsRetryable(apiErr.HTTPStatus) {
		wait = max(wait, min(apiErr.RetryAfter, o.ReadInterval))
	}
	return wait
}

// isPermanent reports whether err is a permanent error response other than a rejected key. Some
// services send one for a page that does not exist.
func isPermanent(err error) bool {
	apiErr, ok := errors.AsType[*msgpush.APIError](err)
	return ok && !apiErr.KeyRejected && !httpspec.IsRetryable(apiErr.HTTPStatus)
}

// jitter returns a wait that is up to 10 % shorter or longer, so that replicas do not keep in step.
func jitter(wait time.Duration) time.Duration {
	return wait - wait/10 + rand.N(wait/5+1)
}
