package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/msgpush/internal/errs"
)

// A fetchResult is how a fetch of this replica ended, for the call that waits for it. A fetch that
// panicked also has an error.
type fetchResult struct {
	record   record
	err      error       // a *fetchError or errNotStored
	panicked *errs.Panic // nil if Fetch did not panic
}

// awaitFetch fetches a key for a claim, and returns its record. If the fetch takes too long,
// another replica may fetch: so awaitFetch also polls the store, and returns the key of that
// replica if it is stored first. It returns errNotStored if the fetch ended too late.
func (s *KeySource) awaitFetch(ctx context.Context, generation int64, claim claimReply) (record, error) {
	fetched, left := make(chan fetchResult), make(chan struct{})
	defer close(left)
	go s.fetch(ctx, claim.record, fetched, left)
	poll := pollAfter(claim)
	for {
		select {
		case result := <-fetched:
			if result.panicked != nil {
				panic(result.panicked) // the cache reports it, and re-raises its value
			}
			return result.record, result.err
		case <-s.changed:
		case <-time.After(poll):
		}
		known := s.state.get()
		if known.hasNewer(generation) {
			return known.current, nil
		}
		reply, err := s.poll(generation)
		isUnavailable := errors.Is(err, ErrStoreUnavailable) // then, the fetch may still return a key
		switch {
		case reply.state == stateStored:
			return reply.record, nil
		case err != nil && !isUnavailable:
			return record{}, err
		case ctx.Err() != nil:
			return record{}, ctx.Err()
		}
		poll = pollAfter(reply)
	}
}

// fetch calls Fetch for the key of r, stores the key or the failure, and reports a failure. It
// sends the result to fetched, unless the call that waits for the result has left.
func (s *KeySource) fetch(ctx context.Context, r record, fetched chan<- fetchResult, left <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.FetchTimeout)
	defer cancel()
	err := errors.New("it did not return")
	defer func() { // runs even if Fetch panics or calls runtime.Goexit
		panicked := errs.Recovered(recover())
		failure := checkFetched(r, err)
		result := fetchResult{panicked: panicked}
		result.record, result.err = s.complete(r, failure)
		if failure != nil && panicked == nil {
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

// complete stores the key of a fetch, or its failure. It returns the record and the error of the
// fetchResult.
func (s *KeySource) complete(r record, failure error) (record, error) {
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
	case errors.Is(err, errNotStored):
		return record{}, errNotStored
	case failure != nil:
		s.state.fail(failure, time.Now().Add(wait))
		return record{}, failure
	}
	s.state.adopt(r) // also if no call waits for the fetch any more
	return r, nil
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
