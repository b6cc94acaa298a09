package fleet

import (
	"sync"
	"time"

	"example.com/msgpush"
)

// standby is how much later a replica replaces a key that expires, unless its last fetch helped.
const standby = 500 * time.Millisecond

// A keyState guards the knowledge of a replica, and keeps the cache in step with it.
type keyState struct {
	minInterval time.Duration
	cache       *msgpush.AccessKeyCache // holds the key of the current record, unless that was rejected

	mu        sync.Mutex
	knowledge // guarded by mu
}

// knowledge holds the facts about the keys of the account and the fetches of this replica.
type knowledge struct {
	current     record    // the newest record with a key; the zero record if there is none
	rejected    int64     // generation of the key that was rejected last while it was current
	claimed     int64     // generation of the last fetch of this replica; 0 if there is none
	failure     error     // of the last fetch, in any replica, if it failed
	failedUntil time.Time // calls return failure until then; zero without one

	// The fetches of this replica. After a fetch that did not help, it lets other replicas fetch first: its
	// clock may be wrong, or its network.
	helped   time.Time // when the last one returned a key; zero if it did not help
	misses   int       // fetches in a row that did not help
	claimsAt time.Time // this replica claims no fetch before
}

// hasNewer reports whether the current record has a valid key and a greater generation.
func (k knowledge) hasNewer(generation int64) bool {
	return k.current.generation > generation && k.current.valid()
}

// isRejected reports whether the record of a generation is the one whose key was rejected last.
func (k knowledge) isRejected(generation int64) bool {
	return generation > 0 && generation == k.rejected
}

// hasUsable reports whether the current record has a key that was not rejected, and is valid for longer than
// d.
func (k knowledge) hasUsable(d time.Duration) bool {
	return k.current.validFor(d) && !k.isRejected(k.current.generation)
}

// mayClaimAt returns when this replica may claim a fetch for a call that begins now. An expiring key is first
// replaced by a replica whose last fetch helped. The other replicas wait for standby, also if they have never
// fetched: their clock or their network may be at fault.
func (k knowledge) mayClaimAt() time.Time {
	isExpiring := k.current.generation > 0 && !k.isRejected(k.current.generation)
	hasHelped := !k.helped.IsZero()
	if isExpiring && !hasHelped {
		return time.Now().Add(standby)
	}
	return time.Time{}
}

// get returns a copy, so that a decision reads the facts of one moment.
func (s *keyState) get() knowledge {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.knowledge
}

// adopt makes r the current record, and puts its key into the cache, unless the current record is newer.
func (s *keyState) adopt(r record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.generation > s.current.generation {
		s.current = r
		s.failure, s.failedUntil = nil, time.Time{}
		_ = s.cache.Set(r.key, r.expires) // fails if the key has expired meanwhile
	}
}

// reject records that the service rejected the current key. It ignores other keys.
func (s *keyState) reject(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key != s.current.key {
		return
	}
	s.rejected = s.current.generation
	isOwn := s.rejected == s.claimed
	isSoon := time.Since(s.helped) < s.minInterval
	if isOwn && isSoon {
		s.miss(s.minInterval)
	}
}

// beginFetch records that the store granted a fetch to this replica. If the last one helped, the next delay
// is the shortest.
func (s *keyState) beginFetch(generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed = generation
	if !s.helped.IsZero() {
		s.misses = 0
	}
}

// endFetch records the end of a fetch of this replica. wait is how long no replica may fetch after it.
func (s *keyState) endFetch(state string, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == stateDone {
		s.helped = time.Now()
	} else {
		s.miss(wait)
	}
}

// miss records, with mu held, a fetch that did not help. Other replicas may fetch after wait, and this one
// later, by 1, 2, 4, 8, 10, 10 and so on × MinInterval.
func (s *keyState) miss(wait time.Duration) {
	delay := min(s.minInterval<<min(s.misses, 4), 10*s.minInterval)
	s.misses++
	s.helped = time.Time{}
	s.claimsAt = time.Now().Add(wait + delay)
}

// fail records a fetch that failed. Calls return its error until the next fetch may begin.
func (s *keyState) fail(failure error, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure, s.failedUntil = failure, until
}
