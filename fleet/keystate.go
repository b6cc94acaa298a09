package fleet

import (
	"sync"
	"time"

	"example.com/msgpush"
)

// standby is how much later a replica whose last fetch did not help replaces a key that expires.
const standby = 500 * time.Millisecond

// A keyState is the knowledge of a replica about the keys of its account and its own fetches.
type keyState struct {
	minInterval time.Duration
	cache       *msgpush.AccessKeyCache // holds the key of current, unless that was rejected

	mu          sync.Mutex
	current     record    // the newest record with a key; the zero record if there is none
	rejected    int64     // generation of the key that was rejected last while it was current
	claimed     int64     // generation of the last fetch of this replica; 0 if there is none since the start or Close
	failure     error     // of the last fetch, in any replica, if it failed
	failedUntil time.Time // calls return failure until then; zero without one
	own         ownFetches
}

// newest returns the current record, and whether its key was rejected. isRejected is also true
// without a record.
func (s *keyState) newest() (r record, isRejected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.rejected == s.current.generation
}

// newerThan returns the current record if it has a valid key and a greater generation.
func (s *keyState) newerThan(generation int64) (r record, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.current.generation > generation && s.current.valid()
}

// adopt makes r the current record, and puts its key into the cache, unless the current record is
// newer. It returns the current record.
func (s *keyState) adopt(r record) record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.generation > s.current.generation {
		s.current = r
		s.failure, s.failedUntil = nil, time.Time{}
		s.cache.Set(r.key, r.expires)
	}
	return s.current
}

// reject records that the service rejected the current key. It ignores other keys.
func (s *keyState) reject(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key != s.current.key || s.rejected == s.current.generation {
		return
	}
	s.rejected = s.current.generation
	isOwn := s.rejected == s.claimed
	isSoon := time.Since(s.own.helped) < s.minInterval
	if isOwn && isSoon {
		s.own.miss(s.minInterval, s.minInterval)
	}
}

// isRejected reports whether the record of a generation is the one whose key was rejected last.
func (s *keyState) isRejected(generation int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return generation > 0 && generation == s.rejected
}

// isRejectedKey reports whether key is the current key, and was rejected.
func (s *keyState) isRejectedKey(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return key == s.current.key && s.current.generation == s.rejected
}

// beginFetch records that the store granted a fetch to this replica.
func (s *keyState) beginFetch(generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed = generation
	s.own.begin()
}

// endFetch records the end of a fetch of this replica. No replica may fetch for wait.
func (s *keyState) endFetch(outcome string, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if outcome == stateDone {
		s.own.helped = time.Now()
	} else {
		s.own.miss(wait, s.minInterval)
	}
}

// lastClaim returns the last generation that this replica claimed, or 0 if there is none since the
// start or Close.
func (s *keyState) lastClaim() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claimed
}

// forgetClaim returns the last generation that this replica claimed, and forgets it.
func (s *keyState) forgetClaim() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	generation := s.claimed
	s.claimed = 0
	return generation
}

// fail records a fetch that failed. Calls return its error until the next fetch may begin.
func (s *keyState) fail(failure error, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure, s.failedUntil = failure, until
}

// lastFailure returns the error of the last fetch that failed, or nil. mustWait is true until the
// next fetch may begin.
func (s *keyState) lastFailure() (mustWait bool, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.failedUntil), s.failure
}

// letsOthersFirst reports whether only other replicas may fetch now.
func (s *keyState) letsOthersFirst() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.own.claimsAt)
}

// mayClaimAt returns when this replica may claim a fetch for a call that begins now. A key that
// expires is first replaced by replicas whose last fetch helped: their clocks and networks work.
func (s *keyState) mayClaimAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	expires := s.current.generation > 0 && s.current.generation != s.rejected
	if expires && s.own.helped.IsZero() {
		return time.Now().Add(standby)
	}
	return time.Time{}
}

// ownFetches says when this replica may fetch. After a fetch that did not help, it lets other
// replicas fetch first: its clock may be wrong, or its network.
type ownFetches struct {
	helped   time.Time // when the last one returned a key; zero if it did not help
	misses   int       // fetches in a row that did not help
	claimsAt time.Time // this replica claims no fetch before
}

// begin records the claim of a fetch. If the last one helped, the next delay is the shortest.
func (f *ownFetches) begin() {
	if !f.helped.IsZero() {
		f.misses = 0
	}
}

// miss records a fetch that did not help. Other replicas may fetch after wait, and this one later,
// by 1, 2, 4, 8, 10, 10 and so on × MinInterval.
func (f *ownFetches) miss(wait, minInterval time.Duration) {
	delay := 10 * minInterval
	if f.misses < 4 {
		delay = minInterval << f.misses
	}
	f.misses++
	f.helped = time.Time{}
	f.claimsAt = time.Now().Add(wait + delay)
}
