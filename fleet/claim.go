package fleet

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed key.lua
var keyLua string

var keyScript = redis.NewScript(keyLua)

// A record is a key of the store, or the claim or the failure of a fetch. A newer record has a greater
// generation. A generation is the time of the claim in milliseconds, or the last generation + 1 if
// that is greater. So generations increase even if the store loses its data, unless its clock is
// also set back.
type record struct {
	state      string
	key        string
	claimer    string // the replica of the last claim, and the generation of its previous claim, or 0
	generation int64
	expires    time.Time // zero for never
}

func (r record) valid() bool { return r.validFor(0) }

// validFor reports whether r has a key that is valid for longer than d.
func (r record) validFor(d time.Duration) bool {
	return r.key != "" && (r.expires.IsZero() || time.Until(r.expires) > d)
}

// A result is the outcome of a claim or of a fetch: a record, or an error.
type result struct {
	record
	err      error
	unusable string // a key of Fetch that is not used because of err: the client redacts it
	panic    any    // of Fetch
}

// The states of a record. The script returns a state until the record expires. Then the state is empty: a
// replica may claim a fetch. The script never returns stateSuperseded; complete sets it.
const (
	stateStored     = "stored"     // the record is newer than the caller's
	stateGranted    = "granted"    // this replica must fetch a key with the generation of the record
	stateBusy       = "busy"       // a replica fetches, perhaps this one
	stateFailed     = "failed"     // the last fetch failed, and the next one must wait
	stateRejected   = "rejected"   // the last key was rejected early, or before its fetch; the next fetch must wait
	stateDone       = "done"       // the last fetch succeeded or was released, and the next one must wait
	stateSuperseded = "superseded" // put stored nothing: another replica has taken over, or the key is stored already
)

// claim returns a newer record from the store. If there is none and mayFetch is set, it tries to
// claim the fetch. It returns an error without a state if the store fails. It returns an error with
// stateStored if this replica cannot decrypt the key.
//
// With mayFetch, it also returns the error of the last fetch, if that failed. If this replica knows the
// error, claim does not ask the store until the next fetch may begin.
func (s *KeySource) claim(generation int64, mayFetch bool) result {
	s.mu.Lock()
	failed := s.failed
	letsOthersFirst := mayFetch && time.Now().Before(s.own.claimsAt)
	isRejected := mayFetch && generation > 0 && s.rejected == generation
	s.mu.Unlock()
	if mayFetch && time.Now().Before(failed.expires) {
		return failed
	}
	// Until claimed is set: two claims at a time would have the same claimer, and both would be granted.
	s.turn.Lock()
	defer s.turn.Unlock()
	r := s.runClaim(generation, mayFetch && !letsOthersFirst, isRejected)
	switch {
	case r.err != nil:
		return r
	case r.state == stateGranted:
		s.setClaimed(r.generation)
	case r.state == "" && letsOthersFirst:
		// Any other replica may fetch now. If a fetch failed before, a call returns its error instead of
		// waiting for another replica. Otherwise, such as after a rejected key, this error is nil, and the
		// call waits.
		r.err, r.unusable = failed.err, failed.unusable
	case r.state == stateFailed && mayFetch:
		// Without mayFetch, failed may still be the failure of this replica's own Fetch, which says more.
		r.err = failedElsewhere(r.record)
		s.setFailed(r)
	}
	return r
}

// failedElsewhere returns the error of a fetch that failed in another replica.
func failedElsewhere(r record) error {
	replica, _, _ := strings.Cut(r.claimer, ",")
	return fmt.Errorf("fleet: the last Fetch failed, in the replica %s, which has the cause", replica)
}

// runClaim runs the script, and returns the record of its reply.
func (s *KeySource) runClaim(generation int64, mayFetch, isRejected bool) result {
	now := time.Now() // before the command, so that nothing expires later here than in the store
	lease := max(s.cfg.FetchTimeout+storeTimeout, s.cfg.MinInterval)
	reply, err := s.store.run(
		keyScript,
		[]any{"", int64(0), int64(0), "", ""},
		"claim",
		generation,
		fmt.Sprintf("%s %d", s.replica, s.lastClaim()), // the same if the claim is repeated because its reply was lost
		s.cfg.MinInterval.Milliseconds(),
		mayFetch,
		isRejected,
		lease.Milliseconds(),
	)
	if err != nil {
		return result{err: err}
	}
	r := result{record: record{
		state:      reply[0].(string),
		generation: reply[1].(int64),
		expires:    now.Add(milliseconds(reply[2])),
		claimer:    reply[4].(string),
	}}
	if r.state == stateStored {
		r.key, r.err = s.open(reply[3].(string), r.generation)
	}
	return r
}

// put stores a record: a key, a failure, or neither, which releases the claim. It returns how long
// no replica may fetch, or 0 if nothing was stored: the stored key is this one or a newer one,
// another fetch is in progress, or there is no claim to release. If the store fails, put returns
// MinInterval and the error.
func (s *KeySource) put(r record) (wait time.Duration, err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	validity := noExpiry
	if !r.expires.IsZero() {
		validity = time.Until(r.expires)
	}
	reply, err := s.store.run(
		keyScript,
		[]any{int64(0)},
		"put",
		r.generation,
		r.claimer,
		s.cfg.MinInterval.Milliseconds(),
		s.seal(r),
		validity.Milliseconds(),
		r.state,
	)
	if err != nil {
		return s.cfg.MinInterval, err
	}
	return milliseconds(reply[0]), nil
}

func (s *KeySource) setClaimed(generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed = generation
	s.own.begin()
}

// lastClaim returns the last generation that this replica claimed, or 0 if Close was called since.
func (s *KeySource) lastClaim() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claimed
}
