package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
	"example.com/msgpush/internal/redact"
)

// A fetchError is the error of a fetch that failed.
type fetchError struct {
	error
	key string // that Fetch returned with the error, which may quote it: the client redacts it
}

func (e *fetchError) Unwrap() error { return e.error }

// A fetchResult is how a fetch of this replica ended, for the call that waits for it. A fetch that
// panicked also has an error.
type fetchResult struct {
	record record
	err    error // a *fetchError or errNotStored
	panic  any   // of Fetch
}

// awaitFetch fetches a key for a claim, and returns its record. If the fetch takes too long,
// another replica may fetch: so awaitFetch also polls the store, and returns the key of that
// replica if it is stored first. It returns errNotStored if the fetch ended too late.
func (s *KeySource) awaitFetch(ctx context.Context, generation int64, claim record) (record, error) {
	fetched, left := make(chan fetchResult), make(chan struct{})
	defer close(left)
	go s.fetch(ctx, claim, fetched, left)
	poll := pollAfter(claim)
	for {
		select {
		case result := <-fetched:
			if result.panic != nil {
				panic(result.panic)
			}
			return result.record, result.err
		case <-s.changed:
		case <-time.After(poll):
		}
		if current, ok := s.state.newerThan(generation); ok {
			return current, nil
		}
		r, err := s.poll(generation)
		isUnavailable := errors.Is(err, ErrStoreUnavailable) // then, the fetch may still return a key
		switch {
		case r.state == stateStored:
			return r, nil
		case err != nil && !isUnavailable:
			return record{}, err
		case ctx.Err() != nil:
			return record{}, ctx.Err()
		}
		poll = pollAfter(r)
	}
}

// fetch calls Fetch, stores the key or the failure, and reports a failure. It sends the result to
// fetched, unless the call that waits for the result has left.
func (s *KeySource) fetch(ctx context.Context, claim record, fetched chan<- fetchResult, left <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.FetchTimeout)
	defer cancel()
	r := record{state: stateDone, claimer: claim.claimer, generation: claim.generation}
	err := errors.New("it did not return")
	defer func() { // runs even if Fetch panics or calls runtime.Goexit
		panicked := recover()
		failure := checkFetched(r, err)
		r, err := s.complete(r, failure)
		if failure != nil && panicked == nil {
			s.report(failure)
		}
		select {
		case fetched <- fetchResult{record: r, err: err, panic: panicked}: // the cache reports a panic
		case <-left:
			if panicked != nil {
				s.report(fmt.Errorf("fleet: Fetch panicked: %v", panicked))
			}
		}
	}()
	s.fetches.Add(1)
	r.key, r.expires, err = s.cfg.Fetch(ctx)
}

// complete stores the key of a fetch, or its failure. It returns the record and the error of the
// fetchResult.
func (s *KeySource) complete(r record, failure error) (record, error) {
	switch {
	case failure != nil:
		r = record{state: stateFailed, claimer: r.claimer, generation: r.generation}
	case s.state.isRejectedKey(r.key):
		r.state = stateRejected
	}
	wait, err := s.put(r)
	isUnavailable := errors.Is(err, ErrStoreUnavailable)
	if isUnavailable {
		wait = s.cfg.MinInterval
		go s.putUntilStored(r)
	}
	s.state.endFetch(r.state, wait)
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

// checkFetched returns the failure of a fetch that returned err, or a key that cannot be used. It
// returns nil if the key can be used.
func checkFetched(r record, err error) error {
	if err == nil {
		err = httpspec.CheckKey("the returned key", r.key)
	}
	if err == nil && !r.valid() {
		const format = "the returned key has expired (the clock of this replica shows %s)"
		err = fmt.Errorf(format, time.Now().UTC().Format(time.RFC3339))
	}
	if err == nil {
		return nil
	}
	return &fetchError{error: fmt.Errorf("fleet: Fetch: %w", err), key: r.key}
}

// report calls OnError with the failure of a fetch.
func (s *KeySource) report(failure error) {
	var keys redact.Keys
	if f, ok := errors.AsType[*fetchError](failure); ok {
		keys.Add(f.key)
	}
	current, _ := s.state.newest()
	keys.Add(current.key)
	s.cfg.OnError(errs.Hide("access key: "+keys.Text(failure.Error()), failure, nil))
}

// reportOther is OnError of the cache. It ignores the failures of fetches of this replica, which
// have been reported.
func (s *KeySource) reportOther(err error) {
	_, isReported := errors.AsType[*fetchError](err)
	if !isReported {
		s.cfg.OnError(err)
	}
}

// putUntilStored retries until the store responds, since other replicas wait for the record. Close
// or a newer fetch ends this.
func (s *KeySource) putUntilStored(r record) {
	for s.state.lastClaim() == r.generation {
		if sleepUntil(s.running, time.Now().Add(maxPoll)) != nil {
			return
		}
		_, err := s.put(r)
		if !errors.Is(err, ErrStoreUnavailable) {
			return
		}
	}
}
