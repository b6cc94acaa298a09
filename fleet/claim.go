package fleet

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Both scripts begin with the text of record.lua.
var (
	//go:embed record.lua
	recordLua string
	//go:embed claim.lua
	claimLua string
	//go:embed put.lua
	putLua string

	claimScript = redis.NewScript(recordLua + claimLua)
	putScript   = redis.NewScript(recordLua + putLua)
)

// A record is a key, or the claim of a key that is being fetched. A newer record has a
// greater generation. A generation is the time of the claim in milliseconds, or one more than the
// last generation if that is greater. So generations increase even if the store loses its data,
// unless its clock is also set back.
type record struct {
	key        string
	claimer    string // the replica that claimed the fetch, and the generation of its previous claim, or 0
	generation int64
	expires    time.Time
}

func (r record) valid() bool { return r.validFor(0) }

// validFor reports whether r has a key that is valid for longer than d.
func (r record) validFor(d time.Duration) bool { return r.key != "" && time.Until(r.expires) > d }

// A reply is the answer of the store to a poll or a claim.
type reply struct {
	state  string
	until  time.Time // the end of the state
	record record    // of the last fetch; it has a key in stateStored only
}

// The states of a reply. In the last four, no replica may claim a fetch until the state ends.
const (
	stateFree     = ""         // a replica may claim a fetch
	stateStored   = "stored"   // the store has a key that is newer than the caller's
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
func (s *KeySource) poll(generation int64) (reply, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.runClaim(generation, claimOptions{})
}

// claim returns a newer key, as poll does. If the store has none, claim tries to claim a fetch for
// this replica. If the last fetch failed and the next one must wait, claim returns the error of the
// last one. If this replica already knows that error, it does not ask the store.
func (s *KeySource) claim(generation int64) (reply, error) {
	mustWait, failure := s.state.lastFailure()
	if mustWait {
		return reply{}, failure
	}
	options := claimOptions{
		mayFetch:   !s.state.letsOthersFirst(),
		isRejected: s.state.isRejected(generation),
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	answer, err := s.runClaim(generation, options)
	if err != nil {
		return reply{}, err
	}
	switch answer.state {
	case stateGranted:
		s.state.beginFetch(answer.record.generation) // before another claim: see turn
	case stateFailed:
		failure = failedElsewhere(answer.record)
		s.state.fail(failure, answer.until)
		return reply{}, failure
	case stateFree:
		// This replica lets the others fetch first. If a fetch failed before, the call returns its
		// error instead of waiting for another replica. Otherwise, such as after a rejected key,
		// the call waits.
		return answer, failure
	}
	return answer, nil
}

// failedElsewhere returns the error of a fetch that failed in another replica.
func failedElsewhere(r record) error {
	replica, _, _ := strings.Cut(r.claimer, ",")
	return fmt.Errorf("fleet: the last Fetch failed, in the replica %s, which has the cause", replica)
}

// claimOptions is zero for a poll.
type claimOptions struct {
	mayFetch   bool // the store may grant a fetch
	isRejected bool // the service rejected the key of the generation
}

// runClaim requests a record from the store that is newer than a generation. It is called with
// turn held.
func (s *KeySource) runClaim(generation int64, o claimOptions) (reply, error) {
	now := time.Now() // before the command, so that nothing expires later here than in the store
	lease := max(s.cfg.FetchTimeout+storeTimeout, s.cfg.MinInterval)
	// If the reply is lost, the next claim has the same claimer, and the script repeats the reply.
	claimer := fmt.Sprintf("%s %d", s.replica, s.state.lastClaim())
	values, err := s.store.run(
		claimScript,
		[]any{"", int64(0), int64(0), "", ""},
		generation,
		claimer,
		s.cfg.MinInterval.Milliseconds(),
		o.mayFetch,
		o.isRejected,
		lease.Milliseconds(),
	)
	if err != nil {
		return reply{}, err
	}
	answer := reply{
		state:  values[0].(string),
		until:  now.Add(milliseconds(values[2])),
		record: record{generation: values[1].(int64), claimer: values[4].(string)},
	}
	if answer.state == stateStored {
		answer.record.expires = answer.until
		answer.record.key, err = s.open(values[3].(string), answer.record.generation)
	}
	if err != nil {
		return reply{}, err
	}
	return answer, nil
}

// put stores a key and its outcome, stateDone or stateRejected, or stateFailed without a key. It
// returns how long no replica may fetch. It returns errNotStored if nothing is stored, or the error
// of the store.
func (s *KeySource) put(r record, outcome string) (wait time.Duration, err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	values, err := s.store.run(
		putScript,
		[]any{int64(0)},
		r.generation,
		r.claimer,
		s.cfg.MinInterval.Milliseconds(),
		s.seal(r),
		time.Until(r.expires).Milliseconds(),
		outcome,
	)
	if err != nil {
		return 0, err
	}
	wait = milliseconds(values[0])
	if wait == 0 {
		return 0, errNotStored
	}
	return wait, nil
}

// release ends the claim of a fetch in the store, unless the fetch has ended.
func (s *KeySource) release(generation int64) {
	_, _ = s.put(record{generation: generation}, stateDone)
}
