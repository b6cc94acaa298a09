package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/msgpush/internal/httpspec"
)

// ownFetches says when this replica may fetch. After a fetch that did not help, it lets other replicas
// fetch first: its clock may be wrong, or its network.
type ownFetches struct {
	last     time.Time // when the last one returned a key, unless that was rejected within MinInterval; zero: it did not
	misses   int       // fetches in a row that did not help
	claimsAt time.Time // not before
}

// begin records the claim of a fetch. If the last one helped, a miss begins with the shortest delay again.
func (f *ownFetches) begin() {
	if !f.last.IsZero() {
		f.misses = 0
	}
}

// miss records a fetch that did not help. Other replicas may fetch after a wait, and this one later, by
// 1, 2, 4, 8, 10, 10 and so on × MinInterval.
func (f *ownFetches) miss(wait, minInterval time.Duration) {
	delay := 10 * minInterval
	if f.misses < 4 {
		delay = minInterval << f.misses
	}
	f.misses++
	f.last = time.Time{}
	f.claimsAt = time.Now().Add(wait + delay)
}

// fetch calls Fetch, stores the key or the failure, and sends the result to fetched.
func (s *KeySource) fetch(ctx context.Context, claim record, fetched chan<- result) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.FetchTimeout)
	defer cancel()
	r := result{
		record: record{claimer: claim.claimer, generation: claim.generation},
		err:    errors.New("it did not return"),
	}
	defer func() { // runs even if Fetch panics or calls runtime.Goexit
		r.panic = recover()
		s.complete(s.withState(r), fetched)
	}()
	s.fetches.Add(1)
	r.key, r.expires, r.err = s.cfg.Fetch(ctx)
}

// complete stores the result of a fetch, and sends it to fetched.
func (s *KeySource) complete(r result, fetched chan<- result) {
	wait, err := s.put(r.record)
	s.recordFetch(r.state, wait)
	switch {
	case wait == 0:
		r.state = stateSuperseded
	case r.state == stateFailed:
		// The calls that wait for this fetch raise its panic. Later calls only return the error.
		s.setFailed(result{
			record:   record{expires: time.Now().Add(wait)},
			err:      r.err,
			unusable: r.unusable,
		})
	default:
		s.adopt(r.record) // also if no caller waits for r any more
	}
	fetched <- r
	if err != nil {
		s.putUntilStored(r.record)
	}
}

// putUntilStored retries until the store responds, since other replicas wait for the record. Close or a
// newer fetch ends this.
func (s *KeySource) putUntilStored(r record) {
	for s.lastClaim() == r.generation {
		time.Sleep(maxPoll)
		_, err := s.put(r)
		if err == nil {
			return
		}
	}
}

// mayClaimAt returns when this replica may claim a fetch. A key that expires is first replaced by the
// replicas that have fetched a good one: their clocks and networks work.
func (s *KeySource) mayClaimAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	hasExpired := s.current.generation > 0 && s.current.generation != s.rejected
	if hasExpired && s.own.last.IsZero() {
		return time.Now().Add(standby)
	}
	return time.Time{}
}

func (s *KeySource) recordFetch(state string, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == stateDone {
		s.own.last = time.Now()
	} else {
		s.own.miss(wait, s.cfg.MinInterval)
	}
}

// withState returns the result of a fetch with its state, and without a key if the key cannot be
// used.
func (s *KeySource) withState(r result) result {
	if r.err == nil {
		r.err = httpspec.CheckKey("the returned key", r.key)
	}
	if r.err == nil && !r.valid() {
		const format = "the returned key has expired (the clock of this replica shows %s)"
		r.err = fmt.Errorf(format, time.Now().UTC().Format(time.RFC3339))
	}
	if r.err != nil {
		return result{
			record:   record{state: stateFailed, claimer: r.claimer, generation: r.generation},
			err:      fmt.Errorf("fleet: Fetch: %w", r.err),
			unusable: r.key,
			panic:    r.panic,
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.state = stateDone
	if r.key == s.current.key && s.current.generation == s.rejected {
		r.state = stateRejected
	}
	return r
}

func (s *KeySource) setFailed(r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = r
}
