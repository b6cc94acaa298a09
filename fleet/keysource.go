package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/msgpush"
)

// A KeySource returns an access key that replicas share. One replica fetches it for all of them. A replica
// whose key is rejected gets the key that replaced it, if there is one, without a fetch. A KeySource is safe
// for concurrent use.
//
// Each KeySource keeps the key in memory: a call that returns this key does not wait for the store. The
// KeySource has a connection for announcements of new keys, which is pinged every 3 s. When it is
// re-established, the KeySource writes its key back to a store that lost it or has an older one, unless a
// replica fetches. While the store is unavailable, the key is returned until it expires or is rejected.
//
// The store discards the key of a replica that was suspended in Fetch if another one fetches, or has stored a
// newer key. The store deletes the Redis key 30 days after it was last written.
type KeySource struct {
	store   *store
	cfg     KeyOptions
	replica string // host name, process id and a random suffix
	state   keyState
	changed chan struct{} // signals an announcement, or a connect to the store
	fetches atomic.Int64  // calls of Fetch

	// turn is held while a script other than a probe runs, and until the state has the result. Two claims
	// at a time would have the same claimer, and both would be granted.
	turn sync.Mutex

	running context.Context // ends with Close
	stop    context.CancelFunc
	watcher sync.WaitGroup // of the goroutines that receive announcements
}

const (
	// A replica that waits for a fetch polls the store on each announcement and, since one may be lost, after
	// minPoll to maxPoll.
	minPoll = 10 * time.Millisecond
	maxPoll = 250 * time.Millisecond
)

// NewKeySource returns a source for [msgpush.WithAccessKeySource]. The caller must close it. NewKeySource
// does not wait for the store, and no key is fetched before the first call of AccessKey.
func NewKeySource(rdb redis.UniversalClient, cfg KeyOptions) (*KeySource, error) {
	const generation, claimer, minInterval = 0, "", 0 // readScript does not use them
	store, err := newStore(rdb, "key", cfg.Name, readScript, generation, claimer, minInterval)
	if err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.FetchTimeout = cmp.Or(cfg.FetchTimeout, defaultFetchTimeout)
	cfg.MinInterval = cmp.Or(cfg.MinInterval, time.Second)
	if cfg.OnError == nil {
		cfg.OnError = func(err error) { slog.Warn("msgpush: fetching an access key failed", "error", err) }
	}
	host, _ := os.Hostname()
	s := &KeySource{
		store:   store,
		cfg:     cfg,
		replica: fmt.Sprintf("%s pid %d, %s", host, os.Getpid(), rand.Text()),
		changed: make(chan struct{}, 1),
	}
	s.state.minInterval = cfg.MinInterval
	s.state.cache = msgpush.CachedAccessKey(s.obtain, msgpush.AccessKeyCacheOptions{
		Early:       cfg.Early,
		MinInterval: -1, // obtain keeps MinInterval
		OnError:     s.reportOther,
	})
	s.running, s.stop = context.WithCancel(context.Background())
	s.watcher.Go(s.watchStore)
	return s, nil
}

// AccessKey returns the shared key, or the key of a newer fetch if the shared key is the rejected one. A
// panic of Fetch is re-raised in the calls that wait for it. AccessKey implements [msgpush.AccessKeySource].
func (s *KeySource) AccessKey(ctx context.Context, rejected string) (string, error) {
	if rejected != "" {
		s.state.reject(rejected)
	}
	return s.state.cache.AccessKey(ctx, rejected)
}

// Ping tests whether the store can be read, and whether this replica may subscribe to announcements of new
// keys. It does not test writes, which only a fetch needs.
//
// Ping returns nil or an error that wraps [ErrStoreUnavailable]. It takes at most one second, or until ctx
// ends. While the store fails, requests with a key in memory still succeed: so a readiness check should not
// depend on Ping.
//
// Without announcements, such as without the permission for the channel, a replica gets a new key only when a
// request with the old one is rejected.
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
	// Fetches is the number of calls of Fetch. A fleet has as many fetches as all its replicas together.
	Fetches int64
}

// Stats returns the counters of this KeySource.
func (s *KeySource) Stats() KeyStats { return KeyStats{Fetches: s.fetches.Load()} }

// Close ends the subscription to the store. If a fetch is in progress, another replica may fetch MinInterval
// after Close. If the store is unavailable, the others wait as if this replica had died; see [KeyOptions]. If
// the store does not respond, Close takes up to four seconds. It does not close the Redis client. After
// Close, only a fetch in progress, a test of a store that was unavailable, and calls of AccessKey and Ping
// use it. Close always returns nil.
func (s *KeySource) Close() error {
	s.stop()
	claimed := s.state.get().claimed
	if claimed != 0 {
		_, _ = s.put(record{generation: claimed}, stateDone) // releases the claim, unless the fetch has ended
	}
	s.watcher.Wait()
	return nil
}

// Format writes the name of the account, never the key.
func (s *KeySource) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "fleet.KeySource(%s)", s.cfg.Name) }

// obtain returns a key for the cache, which calls it. With an error, the key is one that the error quotes.
func (s *KeySource) obtain(ctx context.Context) (string, time.Time, error) {
	known := s.state.get()
	if known.hasUsable(s.cfg.Early) { // it was adopted meanwhile
		return known.current.key, known.current.expires, nil
	}
	r, err := s.newer(ctx, known.current.generation)
	if failure, ok := errors.AsType[*fetchError](err); ok {
		r.key = failure.key
	}
	return r.key, r.expires, err
}

// newer returns a record with a key and a greater generation. If no other replica has one or fetches one,
// this replica fetches. If that takes too long, another replica may fetch, and newer returns the key that is
// stored first.
func (s *KeySource) newer(ctx context.Context, generation int64) (record, error) {
	mayClaimAt := s.state.get().mayClaimAt()
	var fetched chan error // the result of the fetch of this replica; nil while it does not fetch
	left := make(chan struct{})
	defer close(left)
	for {
		known := s.state.get()
		if known.hasNewer(generation) { // watchStore or fetch has adopted it
			return known.current, nil
		}
		// The store is asked even if ctx has ended: a suspension of this process may have ended ctx, and
		// the store may then have a newer record.
		ask := s.poll
		mayClaim := fetched == nil && ctx.Err() == nil && !time.Now().Before(mayClaimAt)
		if mayClaim {
			ask = s.claim
		}
		reply, err := ask(generation)
		switch {
		case reply.state == stateStored:
			return reply.record, nil
		case reply.state == stateGranted:
			fetched = make(chan error)
			go s.fetch(ctx, reply.record, fetched, left)
		case ctx.Err() != nil:
			return record{}, ctx.Err()
		case err != nil && fetched == nil: // otherwise, the fetch may still return a key
			return record{}, err
		}
		select {
		case err := <-fetched:
			if err != nil {
				return record{}, err
			}
			fetched = nil
		case <-s.changed:
		case <-time.After(pollAfter(reply)):
		}
	}
}

// pollAfter returns how long a call waits before it polls the store. It polls when the state ends, since it
// may then claim a fetch. stateFree does not end.
func pollAfter(reply claimReply) time.Duration {
	if reply.state == stateFree {
		return maxPoll
	}
	poll := min(time.Until(reply.until), maxPoll)
	return max(poll, minPoll)
}
