package fleet

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The scripts begin with the text of record.lua.
var (
	//go:embed record.lua
	recordLua string
	//go:embed claim.lua
	claimLua string
	//go:embed put.lua
	putLua string

	readScript  = redis.NewScript(recordLua + "return {}") // of a probe: reads need no other permission
	claimScript = redis.NewScript(recordLua + claimLua)
	putScript   = redis.NewScript(recordLua + putLua)
)

// A record is a key, or the claim of a key that is being fetched. A newer record has a greater generation. A
// generation is the time of the claim in milliseconds, or one more than the last generation if that is
// greater. So generations increase even if the store loses its data, unless its clock is also set back.
type record struct {
	key        string
	claimer    string // the replica that claimed the fetch, and the generation of its previous claim, or 0
	generation int64
	expires    time.Time
}

func (r record) valid() bool { return r.validFor(0) }

// validFor reports whether r has a key that is valid for longer than d.
func (r record) validFor(d time.Duration) bool { return r.key != "" && time.Until(r.expires) > d }

// A claimReply is the reply of the store to a poll or a claim.
type claimReply struct {
	state  string    // of the last fetch, stateStored or stateGranted
	until  time.Time // the end of the state
	record record    // of the last fetch; it has a key in stateStored only
}

// The states of a reply. In the last four, no replica may claim a fetch until the state ends.
const (
	stateFree     = ""         // a replica may claim a fetch
	stateStored   = "stored"   // the store has a key that is newer than the caller's
	stateGranted  = "granted"  // this replica must fetch a key, and store it with the generation of the record
	stateBusy     = "busy"     // a replica fetches, perhaps this one
	stateFailed   = "failed"   // the last fetch failed
	stateRejected = "rejected" // the last key was rejected early, or before its fetch
	stateDone     = "done"     // the last fetch succeeded, or its claim was released
)

// errNotStored is returned by put if the store has this key or a newer one, if another replica fetches, or if
// there is no claim to release.
var errNotStored = errors.New("fleet: the record was not stored")

// poll returns the newer key of the store or, if there is none, the state of the last fetch. It returns an
// error if the store fails, or if this replica cannot decrypt the key.
func (s *KeySource) poll(generation int64) (claimReply, error) { return s.runClaim(generation, false) }

// claim returns a newer key, as poll does. If the store has none, claim tries to claim a fetch for this
// replica. If the last fetch failed and the next one must wait, claim returns the error of the last one. If
// this replica already knows that error, it does not ask the store.
func (s *KeySource) claim(generation int64) (claimReply, error) {
	known := s.state.get()
	if time.Now().Before(known.failedUntil) {
		return claimReply{}, known.failure
	}
	letsOthersFirst := time.Now().Before(known.claimsAt)
	reply, err := s.runClaim(generation, !letsOthersFirst)
	switch {
	case err != nil:
		return claimReply{}, err
	case reply.state == stateFailed:
		failure := failedElsewhere(reply.record)
		s.state.fail(failure, reply.until)
		return claimReply{}, failure
	case reply.state == stateFree && known.failure != nil:
		// This replica lets the others fetch first. The call returns the error of the last fetch instead
		// of waiting for another replica. If no fetch failed, such as after a rejected key, the call
		// waits.
		return claimReply{}, known.failure
	}
	return reply, nil
}

// failedElsewhere returns the error of a fetch that failed in another replica.
func failedElsewhere(r record) error {
	replica, _, _ := strings.Cut(r.claimer, ",")
	return fmt.Errorf("fleet: the last Fetch failed, in the replica %s, which has the cause", replica)
}

// runClaim requests a record from the store that is newer than a generation, and adopts its key. With
// mayFetch, the store may grant a fetch.
func (s *KeySource) runClaim(generation int64, mayFetch bool) (claimReply, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	known := s.state.get()
	now := time.Now() // before the command, so that nothing expires later here than in the store
	lease := max(s.cfg.FetchTimeout+storeTimeout, s.cfg.MinInterval)
	var reply claimReply
	var left int64
	err := s.store.run(
		claimScript,
		[]any{&reply.state, &reply.record.generation, &left, &reply.record.key, &reply.record.claimer},
		generation,
		// If the reply is lost, the next claim has the same claimer, and the script repeats the reply.
		fmt.Sprintf("%s %d", s.replica, known.claimed),
		s.cfg.MinInterval.Milliseconds(),
		mayFetch,
		known.isRejected(generation),
		lease.Milliseconds(),
	)
	if err != nil {
		return claimReply{}, err
	}
	reply.until = now.Add(milliseconds(left))
	switch reply.state {
	case stateGranted:
		s.state.beginFetch(reply.record.generation)
	case stateStored:
		reply.record.expires = reply.until
		reply.record.key, err = s.open(reply.record.key, reply.record.generation)
		if err != nil {
			return claimReply{}, err
		}
		s.state.adopt(reply.record)
	}
	return reply, nil
}

// put stores a key with the state of its fetch, stateDone or stateRejected, or stateFailed without a key.
// Without a key, stateDone releases a claim. put returns how long no replica may fetch. It returns
// errNotStored if nothing is stored, or the error of the store.
func (s *KeySource) put(r record, state string) (wait time.Duration, err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	var left int64
	err = s.store.run(
		putScript,
		[]any{&left},
		r.generation,
		r.claimer,
		s.cfg.MinInterval.Milliseconds(),
		s.seal(r),
		time.Until(r.expires).Milliseconds(),
		state,
	)
	if err != nil {
		return 0, err
	}
	if left == 0 {
		return 0, errNotStored
	}
	return milliseconds(left), nil
}
