package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/msgpush"
)

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
	store        *store
	cfg          KeyConfig
	replica      string                  // host name, process id and a random suffix
	cache        *msgpush.AccessKeyCache // holds the key of current, unless that was rejected; calls obtain
	changed      chan struct{}           // signals an announcement, or a connect to the store
	turn         sync.Mutex              // held while a script other than a probe runs; see claim
	stopWatching context.CancelFunc
	watcher      sync.WaitGroup // of the goroutines that receive announcements
	fetches      atomic.Int64   // calls of Fetch

	mu       sync.Mutex
	current  record // the newest record with a key; the zero record if there is none
	failed   result // of the last fetch that failed: until it expires, this replica claims no fetch
	claimed  int64  // generation of the last fetch of this replica; 0 if there is none since the start or Close
	rejected int64  // generation of the key that was rejected last while it was current
	own      ownFetches
}

const (
	// A replica that waits for a fetch polls the store on each announcement and, since one may be
	// lost, after minPoll to maxPoll.
	minPoll = 10 * time.Millisecond
	maxPoll = 250 * time.Millisecond

	standby = 500 * time.Millisecond // see mayClaimAt
)

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
		store:        store,
		cfg:          cfg,
		replica:      fmt.Sprintf("%s pid %d, %s", host, os.Getpid(), rand.Text()),
		changed:      make(chan struct{}, 1),
		stopWatching: cancel,
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
		const format = "%w: no announcements of new keys on the channel %s: %s" // see store.noteResult
		return fmt.Errorf(format, ErrStoreUnavailable, s.store.key, err.Error())
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
	s.stopWatching()
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
