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

// fetch calls Fetch for the key of r, stores the key or the failure, and reports a failure. It sends the
// error of complete or the panic of Fetch to fetched, unless the call that waits for it has left.
func (s *KeySource) fetch(ctx context.Context, r record, fetched chan<- error, left <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.FetchTimeout)
	defer cancel()
	err := errors.New("it did not return") // if Fetch calls runtime.Goexit
	defer func() { s.endFetch(r, err, errs.Recovered(recover()), fetched, left) }()
	s.fetches.Add(1)
	r.key, r.expires, err = s.cfg.Fetch(ctx)
	if r.expires.IsZero() {
		r.expires = time.Now().Add(noExpiry)
	}
}

// endFetch takes what Fetch has returned in r and err, or its panic.
func (s *KeySource) endFetch(
	r record, err error, panicked *errs.Panic, fetched chan<- error, left <-chan struct{},
) {
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
	if errors.Is(err, ErrStoreUnavailable) {
		wait = s.cfg.MinInterval
		go s.putUntilStored(r, state)
	}
	s.state.endFetch(state, wait)
	switch {
	case errors.Is(err, errNotStored): // the call requests the key of the other replica
	case failure != nil:
		s.state.fail(failure, time.Now().Add(wait))
		return failure
	default:
		s.state.adopt(r) // also if no call waits for the fetch any more
	}
	return nil
}

// putUntilStored retries until the store responds, since other replicas wait for the record. Close or a newer
// fetch ends this.
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

// A fetchError is the error of a fetch that failed.
type fetchError struct {
	error
	key string // that Fetch returned with the error, which may quote it: the client redacts it
}

func (e *fetchError) Unwrap() error { return e.error }

// checkFetched returns the failure of a fetch that returned err, or a key that cannot be used. It returns nil
// if the key can be used.
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
	keys.Add(s.state.get().current.key)
	s.cfg.OnError(errs.Hide("access key: "+keys.Text(failure.Error()), failure))
}

// reportOther is OnError of the cache. It ignores the failures of fetches of this replica, which have been
// reported.
func (s *KeySource) reportOther(err error) {
	_, isReported := errors.AsType[*fetchError](err)
	if !isReported {
		s.cfg.OnError(err)
	}
}
