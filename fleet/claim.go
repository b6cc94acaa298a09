package fleet

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed key.lua
var keyLua string

var keyScript = redis.NewScript(keyLua)

// A record is a key of the store, or the claim or the failure of a fetch. A newer record has a
// greater generation. A generation is the time of the claim in milliseconds, or one more than the
// last generation if that is greater. So generations increase even if the store loses its data,
// unless its clock is also set back.
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

// The states of a record. In the last four, no replica may claim a fetch until the record expires.
const (
	stateFree     = ""         // a replica may claim a fetch
	stateStored   = "stored"   // the record has a key that is newer than the caller's
	stateGranted  = "granted"  // this replica must fetch a key with the generation of the record
	stateBusy     = "busy"     // a replica fetches, perhaps this one
	stateFailed   = "failed"   // the last fetch failed
	stateRejected = "rejected" // the last key was rejected early, or before its fetch
	stateDone     = "done"     // the last fetch succeeded, or its claim was released
)

// errNotStored is returned by put if the store has this key or a newer one, if another replica
// fetches, or if there is no claim to release.
var errNotStored = errors.New("fleet: the record was not stored")

// poll returns the newer key of the store or, if there is none, the state of the last fetch. It
// returns an error if the store fails, or if this replica cannot decrypt the key.
func (s *KeySource) poll(generation int64) (record, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.runClaim(generation, false, false)
}

// claim returns a newer key, as poll does. If the store has none, claim tries to claim a fetch for
// this replica. If the last fetch failed and the next one must wait, claim returns the error of the
// last one. If this replica already knows that error, it does not ask the store.
func (s *KeySource) claim(generation int64) (record, error) {
	failure, mustWait := s.state.lastFailure()
	if mustWait {
		return record{}, failure
	}
	letsOthersFirst, isRejected := s.state.letsOthersFirst(), s.state.isRejected(generation)
	s.turn.Lock()
	defer s.turn.Unlock()
	r, err := s.runClaim(generation, !letsOthersFirst, isRejected)
	switch {
	case err != nil:
		return record{}, err
	case r.state == stateGranted:
		s.state.beginFetch(r.generation) // before another claim: see turn
	case r.state == stateFailed:
		elsewhere := failedElsewhere(r)
		s.state.fail(elsewhere, r.expires)
		return record{}, elsewhere
	case r.state == stateFree && failure != nil:
		// This replica lets the others fetch first. If a fetch failed before, the call returns its
		// error instead of waiting for another replica. Otherwise, such as after a rejected key,
		// the call waits.
		return record{}, failure
	}
	return r, nil
}

// failedElsewhere returns the error of a fetch that failed in another replica.
func failedElsewhere(r record) error {
	replica, _, _ := strings.Cut(r.claimer, ",")
	return fmt.Errorf("fleet: the last Fetch failed, in the replica %s, which has the cause", replica)
}

// runClaim runs the script, and returns the record of its reply. It is called with turn held.
func (s *KeySource) runClaim(generation int64, mayFetch, isRejected bool) (record, error) {
	now := time.Now() // before the command, so that nothing expires later here than in the store
	lease := max(s.cfg.FetchTimeout+storeTimeout, s.cfg.MinInterval)
	// If the reply is lost, the next claim has the same claimer, and the script repeats the reply.
	claimer := fmt.Sprintf("%s %d", s.replica, s.state.lastClaim())
	reply, err := s.store.run(
		keyScript,
		[]any{"", int64(0), int64(0), "", ""},
		"claim",
		generation,
		claimer,
		s.cfg.MinInterval.Milliseconds(),
		mayFetch,
		isRejected,
		lease.Milliseconds(),
	)
	if err != nil {
		return record{}, err
	}
	r := record{
		state:      reply[0].(string),
		generation: reply[1].(int64),
		expires:    now.Add(milliseconds(reply[2])),
		claimer:    reply[4].(string),
	}
	if r.state == stateStored {
		r.key, err = s.open(reply[3].(string), r.generation)
	}
	if err != nil {
		return record{}, err
	}
	return r, nil
}

// put stores a record: a key, a failure, or neither, which releases the claim. It returns how long
// no replica may fetch. It returns errNotStored if nothing is stored, or the error of the store.
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
		return 0, err
	}
	wait = milliseconds(reply[0])
	if wait == 0 {
		return 0, errNotStored
	}
	return wait, nil
}
