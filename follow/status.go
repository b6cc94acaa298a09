package follow

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/msgpush/internal/errs"
)

// ErrHangs is wrapped by the error of [Status.Check] if no step has ended for longer than its limit: a
// request, load or store does not return, or Run was not called or has returned. Restart the program.
var ErrHangs = errors.New("msgpush: following a list: no step has ended")

// A Status is the state of a [Follower]. A zero time stands for never.
type Status struct {
	// LastPoll is when a poll last succeeded, and store had stored its batches.
	LastPoll time.Time
	// PollingSince is when the current poll began, or zero between two polls.
	PollingSince time.Time
	// NextStep is when the next request or call of load or store begins. While one runs, it is the time when that one
	// began. Before Run, it is the time of New, and after Run, that of its return.
	NextStep time.Time
	// Omitted is the number of records that could not be decoded, in stored batches of this follower.
	Omitted int64
	// Err is the latest error of what fails now: a request, after its retries, load or store. If several fail, it is the
	// error of what has failed for longer. It wraps [ErrMissing] if the latest sweep lacked records, or found no
	// known one.
	Err error
	// FailingSince is the time of the first error in a row.
	FailingSince time.Time
}

// Check returns an error
//
//   - that wraps [ErrHangs] if no step has ended for longer than limit;
//   - that wraps Err if there has been an error for longer than limit;
//   - that wraps Err immediately, until the next sweep, if records are missing;
//   - if a poll takes longer than limit: the list may grow faster than it can be read. Larger pages may help.
//
// Until the first poll has succeeded, LastPoll is zero. Check may return nil then.
//
// Send an alert for each error. Restart the program only for ErrHangs: an outage of the service or of the
// database ends without a restart. The limit should be longer than a call with all its retries, and than a
// transaction, for example ten minutes.
func (s Status) Check(limit time.Duration) error {
	const layout = time.DateTime + " MST"
	if time.Since(s.NextStep) > limit {
		return fmt.Errorf("%w since %s", ErrHangs, s.NextStep.UTC().Format(layout))
	}
	isTooLong := s.Err != nil && time.Since(s.FailingSince) > limit
	if isTooLong || errors.Is(s.Err, ErrMissing) {
		cause := strings.TrimPrefix(strings.TrimPrefix(s.Err.Error(), prefix), "msgpush: ")
		text := prefix + "failing since " + s.FailingSince.UTC().Format(layout) + ": " + cause
		return errs.Hide(text, s.Err, nil)
	}
	isSlow := !s.PollingSince.IsZero() && time.Since(s.PollingSince) > limit
	if isSlow {
		return errorf("the poll since %s has not ended: the list may grow too fast", s.PollingSince.UTC().Format(layout))
	}
	return nil
}

// A cause is a step whose failures are counted apart.
type cause int

const (
	ofPoll  cause = iota
	ofSweep       // a page failed, and no sweep has succeeded since
	ofList        // records are missing by the latest sweep
	ofLoad
	ofStore // a batch was not stored
	numCauses
)

// A failure is the latest of several errors in a row, and the time of the first one.
type failure struct {
	err   error
	since time.Time
}

type failures [numCauses]failure

// oldest returns the failure that began first, or none.
func (fs *failures) oldest() (oldest failure) {
	for _, candidate := range fs {
		isOlder := oldest.err == nil || candidate.since.Before(oldest.since)
		if candidate.err != nil && isOlder {
			oldest = candidate
		}
	}
	return oldest
}

// Status returns the state. It may be called at any time, from any goroutine.
func (f *Follower[T]) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

func (f *Follower[T]) update(change func(*Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.status)
}

// beginStep is called before a request or a call of store.
func (f *Follower[T]) beginStep() {
	f.update(func(s *Status) { s.NextStep = time.Now() })
}

// failed takes the error of a step, and reports it.
func (f *Follower[T]) failed(c cause, err error) {
	if f.failures[c].err == nil {
		f.failures[c].since = time.Now()
	}
	f.failures[c].err = err
	f.updateFailure()
	f.report(err)
}

// succeeded takes the success of a step.
func (f *Follower[T]) succeeded(c cause) {
	f.failures[c] = failure{}
	f.updateFailure()
}

func (f *Follower[T]) updateFailure() {
	oldest := f.failures.oldest()
	f.update(func(s *Status) { s.Err, s.FailingSince = oldest.err, oldest.since })
}
