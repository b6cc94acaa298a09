package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/msgpush/internal/errs"
)

// fetch calls Fetch for the key of r, stores the key or the failure, and reports a failure. It
// sends the error of complete or the panic of Fetch to fetched, unless the call that waits for it has left.
func (s *KeySource) fetch(ctx context.Context, r record, fetched chan<- error, left <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.FetchTimeout)
	defer cancel()
	err := errors.New("it did not return")
	defer func() { // runs even if Fetch panics or calls runtime.Goexit
		panicked := errs.Recovered(recover())
		failure := checkFetched(r, err)
		result := s.complete(r, failure)
		if panicked != nil {
			result = panicked // the cache reports it, and re-raises its value
		} else if failure != nil {
			s.report(failure)
		}
		select {
		case fetched <- result:
		case <-left:
			if panicked != nil {
				s.report(fmt.Errorf("fleet: Fetch panicked: %w", panicked))
			}
		}
	}()
	s.fetches.Add(1)
	r.key, r.expires, err = s.cfg.Fetch(ctx)
	if r.expires.IsZero() {
		r.expires = time.Now().Add(noExpiry)
	}
}

// complete stores the key of a fetch, or its failure. It returns the failure, or nil if the state has the
// key, or if another replica fetches or has stored a key.
func (s *KeySource) complete(r record, failure error) error {
	known := s.state.get()
	isRejectedKey := r.key == known.current.key && known.isRejected(known.current.generation)
	state := stateDone
	switch {
	case failure != nil:
		state = stateFailed
		r.key = ""
	case isRejectedKey:
		state = stateRejected
	}
	wait, err := s.put(r, state)
	isUnavailable := errors.Is(err, ErrStoreUnavailable)
	if isUnavailable {
		wait = s.cfg.MinInterval
		go s.putUntilStored(r, state)
	}
	s.state.endFetch(state, wait)
	switch {
	case errors.Is(err, errNotStored): // the call asks for the key of the other replica
	case failure != nil:
		s.state.fail(failure, time.Now().Add(wait))
		return failure
	default:
		s.state.adopt(r) // also if no call waits for the fetch any more
	}
	return nil
}

// putUntilStored retries until the store responds, since other replicas wait for the record. Close
// or a newer fetch ends this.
func (s *KeySource) putUntilStored(r record, state string) {
	for s.state.get().claimed == r.generation {
		if sleepUntil(s.running, time.Now().Add(maxPoll)) != nil {
			return
		}
		_, err := s.put(r, state)
		if !errors.Is(err, ErrStoreUnavailable) {
			return
		}
	}
}
