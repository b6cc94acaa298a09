package follow

import (
	"sync"
	"time"
)

// A cause is something that fails until it succeeds, apart from the others.
type cause int

const (
	causeNewestPage cause = iota // fails and succeeds with each attempt of the newest page
	causeOtherPage               // fails with an attempt of another page, and succeeds with a complete sweep
	causeMissing                 // fails with a sweep that lacks records, and succeeds with one that lacks none
	causeLoad
	causeStore
	numCauses
)

// A failure is the latest of several errors in a row, and the time of the first one.
type failure struct {
	err   error
	since time.Time
}

// health keeps what fails, and the Status of a follower.
type health struct {
	report   func(error)
	failures [numCauses]failure

	mu     sync.Mutex
	status Status // guarded by mu
}

func (h *health) update(change func(*Status)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.status)
}

// failed takes the error of a step, and reports it.
func (h *health) failed(c cause, err error) {
	if h.failures[c].err == nil {
		h.failures[c].since = time.Now()
	}
	h.failures[c].err = err
	h.updateFailure()
	h.report(err)
}

// succeeded takes the success of a step.
func (h *health) succeeded(c cause) {
	h.failures[c] = failure{}
	h.updateFailure()
}

// failingSince returns the time of the first error in a row, or zero.
func (h *health) failingSince(c cause) time.Time { return h.failures[c].since }

// updateFailure shows the failure that began first.
func (h *health) updateFailure() {
	var first failure
	for _, candidate := range h.failures {
		isEarlier := first.err == nil || candidate.since.Before(first.since)
		if candidate.err != nil && isEarlier {
			first = candidate
		}
	}
	h.update(func(status *Status) { status.Err, status.FailingSince = first.err, first.since })
}
