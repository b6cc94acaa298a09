package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/msgpush"
	"example.com/msgpush/internal/httpspec"
)

//go:embed key.lua
var keyLua string

var keyScript = redis.NewScript(keyLua)

// A KeySource returns an access key that replicas share. One replica fetches it for all of them. A
// replica whose key is rejected gets the key that replaced it, if there is one, without a fetch. A
// KeySource is safe for concurrent use.
//
// Each KeySource keeps the key in memory: a call that returns this key does not wait for the store.
// The KeySource has a connection for announcements of new keys, which is pinged every 3 s. When it
// is re-established, the KeySource writes its key back to a store that lost it or has an older one,
// unless a replica fetches. While the store is unavailable, the key is returned until it expires or
// is rejected.
//
// The store discards the key of a replica that was suspended in Fetch if another one fetches, or
// has stored a newer key. The store deletes the Redis key 30 days after it was last written.
type KeySource struct {
	store   *store
	cfg     KeyConfig
	replica string                  // host name, process id and a random suffix
	cache   *msgpush.AccessKeyCache // holds the key of current unless the key was rejected; calls obtain for a new key
	changed chan struct{}           // signals an announcement, or a connect to the store
	turn    sync.Mutex              // held while a script other than a probe runs: see claim; scripts share a connection
	close   context.CancelFunc
	watcher sync.WaitGroup // of the goroutines that receive announcements
	fetches atomic.Int64   // calls of Fetch

	mu       sync.Mutex
	current  record // the newest record with a key; the zero record if there is none
	failed   result // of the last fetch that failed: until it expires, this replica claims no fetch
	claimed  int64  // generation of the last fetch of this replica; 0 if there is none since the start or Close
	rejected int64  // generation of the key that was rejected last while it was current
	own      ownFetches
}

// ownFetches says when this replica may fetch. After a fetch that did not help, it lets other replicas
// fetch first: its clock may be wrong, or its network.
type ownFetches struct {
	last     time.Time // when the last one stored a key that was not rejected within MinInterval
	misses   int       // fetches in a row that did not help
	claimsAt time.Time // not before
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

const (
	// A replica that waits for a fetch polls the store on each announcement and, since one may be
	// lost, after minPoll to maxPoll.
	minPoll = 10 * time.Millisecond
	maxPoll = 250 * time.Millisecond

	standby = 500 * time.Millisecond // see mayClaimAt
)

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

func (r record) valid() bool { return r.validFor(0) }

// validFor reports whether r has a key that is valid for longer than d.
func (r record) validFor(d time.Duration) bool {
	return r.key != "" && (r.expires.IsZero() || time.Until(r.expires) > d)
}

// NewKeySource returns a source for [msgpush.WithAccessKeySource]. The caller must close it.
// NewKeySource does not wait for the store, and no key is fetched before the first call of
// AccessKey.
func NewKeySource(rdb redis.UniversalClient, cfg KeyConfig) (*KeySource, error) {
	store, err := newStore(rdb, "key", cfg.Name)
	if err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.FetchTimeout = cmp.Or(cfg.FetchTimeout, defaultFetchTimeout)
	cfg.MinInterval = cmp.Or(cfg.MinInterval, time.Second)
	host, _ := os.Hostname()
	ctx, cancel := context.WithCancel(context.Background())
	s := &KeySource{
		store:   store,
		cfg:     cfg,
		replica: fmt.Sprintf("%s pid %d, %s", host, os.Getpid(), rand.Text()),
		changed: make(chan struct{}, 1),
		close:   cancel,
	}
	s.cache = msgpush.CachedAccessKey(s.obtain, msgpush.AccessKeyCacheOptions{
		Early:       cfg.Early,
		MinInterval: -1, // obtain keeps MinInterval
		OnError:     cfg.OnError,
	})
	s.watcher.Go(func() { s.watchStore(ctx) })
	return s, nil
}

// AccessKey returns the shared key, or the key of a newer fetch if the shared key is the rejected
// one. It implements [msgpush.AccessKeySource].
func (s *KeySource) AccessKey(ctx context.Context, rejected string) (string, error) {
	if rejected != "" {
		s.reject(rejected)
	}
	return s.cache.AccessKey(ctx, rejected)
}

// reject records that the service rejected the current key. It ignores other keys.
func (s *KeySource) reject(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key != s.current.key || s.rejected == s.current.generation {
		return
	}
	s.rejected = s.current.generation
	isOwnRejectedSoon := s.rejected == s.claimed && time.Since(s.own.last) < s.cfg.MinInterval
	if isOwnRejectedSoon {
		s.own.miss(s.cfg.MinInterval, s.cfg.MinInterval)
	}
}

// Ping tests the store, and whether this replica may subscribe to announcements
// of new keys. It returns nil or an error that wraps [ErrStoreUnavailable]. It takes at most one
// second, or until ctx ends. While the store fails, requests with a key in memory still succeed: so
// a readiness check should not depend on Ping.
//
// Without announcements, such as without the permission for the channel, a replica gets a new key
// only when a request with the old one is rejected.
func (s *KeySource) Ping(ctx context.Context) error {
	deadline := time.Now().Add(storeTimeout)
	if err := s.store.probeWithin(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	sub := s.store.rdb.Subscribe(ctx, s.store.key)
	context.AfterFunc(ctx, func() { _ = sub.Close() }) // ends Receive, which ignores ctx
	_, err := sub.Receive(ctx)
	if err != nil {
		return fmt.Errorf("%w: no announcements of new keys on the channel %s: %w", ErrStoreUnavailable, s.store.key, err)
	}
	return nil
}

// KeyStats are counters of one [KeySource]. They begin at 0 when it is created.
type KeyStats struct {
	// Fetches is the number of calls of Fetch. A fleet has as many fetches as all its replicas
	// together.
	Fetches int64
}

// Stats returns the counters of this KeySource.
func (s *KeySource) Stats() KeyStats { return KeyStats{Fetches: s.fetches.Load()} }

// Close ends the subscription to the store. If a fetch is in progress, another replica may fetch
// MinInterval after Close. If the store is unavailable, the others wait as if this replica had
// died; see [KeyConfig]. If the store does not respond, Close takes up to four seconds. It does not
// close the Redis client. After Close, only a fetch in progress, a test of a store that was
// unavailable, and calls of AccessKey and Ping use it. Close always returns nil.
func (s *KeySource) Close() error {
	s.close()
	s.mu.Lock()
	generation := s.claimed
	s.claimed = 0
	s.mu.Unlock()
	_, _ = s.put(record{generation: generation}) // releases the claim, if it still is the last one
	s.watcher.Wait()
	return nil
}

// Format writes the name of the account, never the key.
func (s *KeySource) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "fleet.KeySource(%s)", s.cfg.Name) }

// obtain returns a key for the cache, which calls it.
func (s *KeySource) obtain(ctx context.Context) (string, time.Time, error) {
	current, isRejected := s.currentRecord()
	if !isRejected && current.validFor(s.cfg.Early) { // it was adopted meanwhile
		return current.key, current.expires, nil
	}
	r := s.newer(ctx, current.generation)
	if r.panic != nil {
		panic(r.panic)
	}
	if r.err != nil {
		return r.unusable, time.Time{}, r.err
	}
	current = s.adopt(r.record)
	return current.key, current.expires, nil
}

// currentRecord returns the current record, and whether its key was rejected. isRejected is also
// true without a record.
func (s *KeySource) currentRecord() (r record, isRejected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.rejected == s.current.generation
}

// adopt makes r the current record, and puts its key into the cache, unless the current record is
// newer. It returns the current record.
func (s *KeySource) adopt(r record) record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.generation > s.current.generation {
		s.current = r
		s.cache.Set(r.key, r.expires)
	}
	return s.current
}

// newer returns a record with a greater generation. If no other replica has one or fetches one, this
// replica fetches.
func (s *KeySource) newer(ctx context.Context, generation int64) result {
	var fetched chan result // receives the result of this replica's fetch
	mayClaimAt := s.mayClaimAt()
	for {
		current, _ := s.currentRecord() // watchStore may have adopted it
		if current.generation > generation && current.valid() {
			return result{record: current}
		}
		// claim comes before the check of ctx: a suspension of this process may have ended ctx, and
		// the store may then have a newer record.
		isFetching := fetched != nil
		mayFetch := !isFetching && ctx.Err() == nil && !time.Now().Before(mayClaimAt)
		claim := s.claim(generation, mayFetch)
		switch {
		case claim.state == stateStored:
			return claim
		case claim.state == stateGranted:
			fetched = make(chan result, 1)
			go s.fetch(ctx, claim.record, fetched)
		case ctx.Err() != nil:
			return result{err: ctx.Err()}
		case claim.err != nil && !isFetching:
			return claim
		}
		r, hasEnded := s.await(fetched, pollAfter(claim.record))
		if hasEnded && !r.isSuperseded() {
			return r
		}
		if hasEnded {
			fetched = nil
		}
	}
}

// await waits for the result of this replica's fetch, if there is one. hasEnded is false if the store
// must be polled first: after an announcement, or when poll has passed.
func (s *KeySource) await(fetched <-chan result, poll time.Duration) (r result, hasEnded bool) {
	select {
	case r = <-fetched:
		return r, true
	case <-s.changed:
	case <-time.After(poll):
	}
	return result{}, false
}

// pollAfter returns how long a replica waits before it polls the store. It polls when the state expires,
// since it may then claim a fetch. Without a state, the expiry has no meaning, such as when the store fails.
func pollAfter(claim record) time.Duration {
	if claim.state == "" {
		return maxPoll
	}
	poll := min(time.Until(claim.expires), maxPoll)
	return max(poll, minPoll)
}

// isSuperseded reports whether the result was discarded, so that the caller polls for the key of another
// replica. The caller raises a panic of Fetch even then.
func (r result) isSuperseded() bool { return r.state == stateSuperseded && r.panic == nil }

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

func (s *KeySource) setClaimed(generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed = generation
	if !s.own.last.IsZero() {
		s.own.misses = 0
	}
}

// lastClaim returns the last generation that this replica claimed, or 0 if Close was called since.
func (s *KeySource) lastClaim() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claimed
}

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
