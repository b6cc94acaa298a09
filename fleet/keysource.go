package fleet

import (
	"cmp"
	"context"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"example.com/msgpush"
)

// A KeyConfig configures a [KeySource]. Name and Fetch are required.
type KeyConfig struct {
	// Name is the name of the account. Replicas with the same Name share a key.
	Name string
	// Fetch obtains a new key, as for [msgpush.CachedAccessKey]. Its context ends
	// after FetchTimeout, not when a call ends. Fetch must return a key only once the service
	// accepts it, and nothing but the replicas may fetch keys of the account.
	Fetch func(context.Context) (key string, expires time.Time, err error)
	// Early is how long before its expiry a key is replaced. The old key is
	// returned until the new key is available or the old key expires. Early must not be
	// negative, and should be shorter than the validity of a key: otherwise, calls cause a
	// fetch every MinInterval.
	Early time.Duration
	// FetchTimeout is the timeout of the context of Fetch. It must be less than
	// [msgpush.AccessKeyTimeout]; 0 means 10 s. If a replica dies in Fetch, another one
	// may fetch when FetchTimeout + 1 s have passed since the first call began, or
	// MinInterval if that is longer.
	FetchTimeout time.Duration
	// MinInterval is the minimum time between two fetches, by any replica; 0 means 1 s.
	// If several fetches in a row do not help, the intervals after them are 1, 2, 4, 8, 10,
	// 10 and so on × MinInterval, for all replicas. A fetch did not help if it failed or took longer
	// than FetchTimeout + 1 s, or if its key had expired. It did not help either if its key was the
	// rejected key, or was rejected within MinInterval of its arrival: then the interval is at
	// most 4 × MinInterval.
	// Until the interval has passed, replicas without a key return an error if the last
	// fetch failed, and otherwise wait. The interval is not kept if the store lost its data, if its
	// clock jumped ahead, or if replicas fetch without the store.
	MinInterval time.Duration
	// AEAD encrypts the key for the store, such as [cipher.NewGCM] with a secret
	// that all replicas have. A stored key that was copied from another Name, or
	// replayed as a newer key, is an error. If AEAD is nil, the key is readable in
	// the store, in MONITOR and SLOWLOG, and in traces and backups.
	AEAD cipher.AEAD
	// OpenAEADs decrypt keys that AEAD cannot decrypt. An element that is nil accepts
	// keys that are not encrypted. To change the secret of AEAD, first deploy the new AEAD
	// in OpenAEADs, then exchange the two.
	OpenAEADs []cipher.AEAD
	// FetchWithoutStore lets a replica that needs a new key call Fetch while the store is
	// unavailable, at most once per MinInterval and replica. A replica needs a new key if it
	// has none, if its key was rejected, or if its key expires within Early. It must not be
	// set if a new key invalidates the one before it, since replicas would
	// invalidate each other's keys.
	FetchWithoutStore bool
}

// A KeySource returns an access key that replicas share. One replica fetches it for all of
// them. A replica whose key is rejected gets the key that replaced it, if there is one,
// without a fetch. A KeySource is safe for concurrent use.
//
// Each KeySource keeps the key in memory: a call that returns this key sends nothing to the
// store. Its own connection to the store waits for announcements of new keys; while it is idle, it is
// pinged every 3 s. When it is re-established, the KeySource writes its key back to a store
// that lost it or has an older one. While the store is unavailable, the key is returned until
// it expires or is rejected.
//
// A key that was fetched too late, because its replica was suspended and another
// one took over, is discarded. The store deletes the Redis key 30 days after it was last written.
type KeySource struct {
	store
	cfg     KeyConfig
	cached  msgpush.AccessKeySource // caches the key; calls obtain for another one
	changed chan struct{}           // signals an announcement, or a connect to the store
	turn    sync.Mutex              // held while a script other than a probe runs, so that scripts share a connection
	close   context.CancelFunc

	// current is the record in cached. next is an announced record that is not in cached
	// yet. blocked is the last failure of a fetch or, with FetchWithoutStore, of the store.
	// Until it expires, a call of newer that would claim a fetch returns blocked.err instead,
	// unless next is newer.
	current, next, blocked atomic.Pointer[record]

	replica  string       // host name, process id and a random suffix
	latest   atomic.Int64 // generation of the last fetch of this replica; 0 if it has fetched none since Close
	rejected atomic.Int64 // generation of the key that was last reported as rejected
}

// A replica that waits for a fetch polls the store on each announcement and, since one may be
// lost, after minPoll to maxPoll. noExpiry stands for never. sealed is the prefix of an
// encrypted key in the store; no access key has it.
const minPoll, maxPoll, noExpiry, sealed = 10 * time.Millisecond, 250 * time.Millisecond, 50 * 365 * 24 * time.Hour, "\x00"

// A record is a key, the claim for fetching one, or an error. A newer record has a
// greater generation. A generation is the time of the claim in milliseconds, or the last
// generation + 1 if that is greater. So generations increase even if the store loses its data.
type record struct {
	state      string // see claim and fetch
	key        string
	claimer    string // the replica that claimed the fetch, and its generation before
	generation int64
	expires    time.Time // zero for never
	err        error
	panic      any // of Fetch
}

// load returns the pointer in p or, if it is nil, a pointer to a zero value.
func load[T any](p *atomic.Pointer[T]) *T { return cmp.Or(p.Load(), new(T)) }

func (r *record) valid() bool {
	return r.key != "" && (r.expires.IsZero() || time.Until(r.expires) > 0)
}

// NewKeySource returns a source for [msgpush.WithAccessKeySource]. The caller must
// close it. NewKeySource does not wait for the store, and no key is fetched before
// the first call of AccessKey.
func NewKeySource(rdb redis.UniversalClient, cfg KeyConfig) (*KeySource, error) {
	cfg.FetchTimeout, cfg.MinInterval = cmp.Or(cfg.FetchTimeout, 10*time.Second), cmp.Or(cfg.MinInterval, time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	host, _ := os.Hostname()
	s := &KeySource{cfg: cfg, changed: make(chan struct{}, 1), close: cancel, replica: fmt.Sprintf("%s pid %d, %s", host, os.Getpid(), rand.Text())}
	if err := cmp.Or(s.init(rdb, "key", cfg.Name),
		check(cfg.Fetch != nil, "Fetch is nil; set it to a function that obtains a new access key"),
		check(cfg.Early >= 0 && cfg.MinInterval > 0, "Early is %v and MinInterval is %v; neither may be negative", cfg.Early, cfg.MinInterval),
		check(cfg.FetchTimeout > 0 && cfg.FetchTimeout < msgpush.AccessKeyTimeout, "FetchTimeout is %v; set it to a positive time of less than %v, or to 0 for 10s", cfg.FetchTimeout, msgpush.AccessKeyTimeout)); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	s.cached = msgpush.CachedAccessKey(s.obtain, cfg.Early)
	go s.watchStore(ctx)
	return s, nil
}

// AccessKey returns the shared key, or a newer key if the shared key is the rejected one.
// It implements [msgpush.AccessKeySource].
func (s *KeySource) AccessKey(ctx context.Context, rejected string) (string, error) {
	current, next := s.current.Load(), s.next.Load()
	if current != nil && rejected == current.key {
		s.rejected.Store(current.generation)
	} else if current != nil && next != nil && next.valid() && rejected != next.key && next.key != current.key && next.generation > current.generation {
		rejected = current.key // not rejected, but s.cached drops it and calls obtain, which returns next
	}
	return s.cached.AccessKey(ctx, rejected)
}

// Close ends the subscription to the store. If a fetch is in progress, another replica may
// fetch MinInterval after Close. If the store is unavailable, the others wait as if this
// replica had died; see [KeyConfig]. If the store does not respond, Close takes up to one
// second. It does not close the Redis client. AccessKey still works after Close. Close
// always returns nil.
func (s *KeySource) Close() error {
	s.close()
	_, _ = s.put(&record{generation: s.latest.Swap(0)})
	return nil
}

// Format writes the name of the account for every verb, never the key.
func (s *KeySource) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "fleet.KeySource(%s)", s.cfg.Name) }

// obtain returns a key newer than the current one.
func (s *KeySource) obtain(ctx context.Context) (string, time.Time, error) {
	r := s.newer(ctx, load(&s.current).generation)
	if r.panic != nil {
		panic(r.panic)
	}
	if r.err == nil {
		s.current.Store(r)
	}
	return r.key, r.expires, r.err
}

// newer returns a record with a greater generation: from another replica if one
// has it or fetches it, otherwise by a fetch. On failure, the record has an err and no key.
func (s *KeySource) newer(ctx context.Context, generation int64) *record {
	var fetched chan *record // nil unless this replica fetches
	for {
		if r := s.next.Swap(nil); r != nil && r.generation > generation && r.valid() {
			return r
		}
		// claim comes before the check of ctx: a suspension of this process may have ended
		// ctx, and the store may then have a newer record.
		r := s.claim(generation, fetched == nil && ctx.Err() == nil)
		switch {
		case r.state == "stored":
			return r
		case r.state == "granted":
			fetched = make(chan *record, 1)
			s.latest.Store(r.generation)
			go s.fetch(ctx, r, fetched)
		case ctx.Err() != nil:
			return &record{err: ctx.Err()}
		case fetched == nil && r.err != nil:
			return r
		}
		select {
		case r := <-fetched:
			if r.state != "superseded" || r.panic != nil {
				return r
			}
			fetched = nil
		case <-s.changed:
		case <-time.After(max(min(time.Until(r.expires), maxPoll), minPoll)):
		}
	}
}

// fetch calls Fetch, and stores the key or the failure. The state of the result is
// "superseded" if nothing was stored, such as when another replica has taken over.
func (s *KeySource) fetch(ctx context.Context, claim *record, result chan<- *record) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.FetchTimeout)
	defer cancel()
	r := &record{state: "done", claimer: claim.claimer, generation: claim.generation, err: errors.New("it did not return")}
	defer func() { // runs even if Fetch panics or calls runtime.Goexit
		r.panic = recover()
		if r.err != nil || !r.valid() || strings.Trim(r.key, " ") != r.key || strings.ContainsFunc(r.key, unicode.IsControl) {
			err := cmp.Or(r.err, fmt.Errorf("the returned key is empty, cannot be sent in a header, or has expired (the clock of this replica shows %s)", time.Now().UTC().Format(time.RFC3339)))
			r.state, r.key, r.expires, r.err = "failed", "", time.Time{}, fetchError{err}
		} else if current := load(&s.current); r.key == current.key && current.generation == s.rejected.Load() {
			r.state = "rejected"
		}
		wait, err := s.put(r)
		if wait == 0 {
			r.state = "superseded"
		} else if r.err != nil {
			s.blocked.Store(&record{err: r.err, expires: time.Now().Add(wait)}) // without r.panic: later calls return err
		}
		result <- r
		// Other replicas wait for r, so retry until the store responds. Close or a newer fetch ends this.
		for err != nil && s.latest.Load() == r.generation {
			time.Sleep(maxPoll)
			_, err = s.put(r)
		}
	}()
	r.key, r.expires, r.err = s.cfg.Fetch(ctx)
}

// A fetchError wraps the error of Fetch. It calls the Error method of the error, which may panic, in
// the goroutine of a caller.
type fetchError struct{ err error }

func (e fetchError) Error() string { return "fleet: Fetch: " + e.err.Error() }

func (e fetchError) Unwrap() error { return e.err }

// watchStore puts announced keys into next. After each connect, it first writes the
// current key, if it is valid, to the store, which may have lost it.
func (s *KeySource) watchStore(ctx context.Context) {
	sub := s.rdb.Subscribe(ctx, s.key)
	context.AfterFunc(ctx, func() { _ = sub.Close() })
	for message := range sub.ChannelWithSubscriptions() {
		if s.state(false) != nil {
			s.probe() // the store may be available again
		}
		current := load(&s.current)
		if _, connected := message.(*redis.Subscription); connected && current.valid() {
			_, _ = s.put(current)
		}
		if r := s.claim(current.generation, false); r.valid() {
			s.next.Store(r)
		}
		if len(s.changed) == 0 { // only this goroutine sends, so the send cannot block
			s.changed <- struct{}{}
		}
	}
}

// claim returns a newer record from the store. If there is none and mayFetch is
// set, it tries to claim the fetch. The state of the record, valid until the record
// expires, is one of
//
//	"stored"    the record is newer
//	"granted"   this replica must fetch a key with the generation of the record
//	"busy"      a replica fetches, perhaps this one
//	"failed"    the last fetch failed, and the next one must wait
//	"rejected"  the key of the last fetch was rejected within MinInterval, or is the rejected one; the next fetch must wait
//	"done"      the last fetch succeeded or was released, and the next one must wait
//	""          none of these: err is set, or mayFetch is not set
func (s *KeySource) claim(generation int64, mayFetch bool) *record {
	now := time.Now() // before the command, so that nothing expires later here than in the store
	if blocked := load(&s.blocked); mayFetch && now.Before(blocked.expires) {
		return blocked
	}
	claimer := fmt.Sprintf("%s %d", s.replica, s.latest.Load()) // the same if the claim is repeated because its reply was lost
	s.turn.Lock()
	reply, err := s.run(keyScript, []any{"", int64(0), int64(0), "", ""}, "claim", generation, claimer, s.cfg.MinInterval.Milliseconds(),
		mayFetch, mayFetch && generation > 0 && s.rejected.Load() == generation, max(s.cfg.FetchTimeout+storeTimeout, s.cfg.MinInterval).Milliseconds())
	s.turn.Unlock()
	if err != nil && mayFetch && s.cfg.FetchWithoutStore {
		s.blocked.Store(&record{err: err, expires: time.Now().Add(s.cfg.MinInterval)}) // from the end of the command, which may take a second
		return &record{state: "granted", claimer: claimer, generation: max(now.UnixMilli(), generation+1)}
	}
	if err != nil {
		return &record{err: err}
	}
	r := &record{state: reply[0].(string), generation: reply[1].(int64), expires: now.Add(milliseconds(reply[2])), claimer: reply[4].(string)}
	if r.state == "stored" {
		r.key, r.err = s.open(reply[3].(string), r.generation)
	} else if r.state == "failed" && mayFetch { // without mayFetch, s.blocked may have the error of this replica's own Fetch
		r.err = fmt.Errorf("fleet: the last Fetch failed, in the replica %s, which has the cause", strings.Split(r.claimer, ",")[0])
		s.blocked.Store(r)
	}
	return r
}

// put stores a record: a key, a failure, or neither, which releases the claim. It returns how
// long no replica may fetch then, or 0 if nothing was stored: the stored key is this one or a
// newer one, another replica is fetching, or there is no claim to release. If the store
// fails, put returns MinInterval and the error.
func (s *KeySource) put(r *record) (wait time.Duration, err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	validity := time.Until(cmp.Or(r.expires.UTC(), time.Now().Add(noExpiry)))
	reply, err := s.run(keyScript, []any{int64(0)}, "put", r.generation, r.claimer, s.cfg.MinInterval.Milliseconds(), s.seal(r), validity.Milliseconds(), r.state)
	if err != nil {
		return s.cfg.MinInterval, err
	}
	return milliseconds(reply[0]), nil
}

func milliseconds(n any) time.Duration { return time.Duration(n.(int64)) * time.Millisecond } //nolint:durationcheck // n is a number

func (s *KeySource) seal(r *record) string {
	if s.cfg.AEAD == nil || r.key == "" {
		return r.key
	}
	nonce := make([]byte, s.cfg.AEAD.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return sealed + string(s.cfg.AEAD.Seal(nonce, nonce, []byte(r.key), fmt.Append(nil, s.key, r.generation)))
}

func (s *KeySource) open(stored string, generation int64) (string, error) {
	data, isSealed := strings.CutPrefix(stored, sealed)
	for _, aead := range append([]cipher.AEAD{s.cfg.AEAD}, s.cfg.OpenAEADs...) {
		if aead == nil && !isSealed {
			return data, nil
		}
		if isSealed && aead != nil && len(data) >= aead.NonceSize() {
			if key, err := aead.Open(nil, []byte(data[:aead.NonceSize()]), []byte(data[aead.NonceSize():]), fmt.Append(nil, s.key, generation)); err == nil {
				return string(key), nil
			}
		}
	}
	return "", fmt.Errorf("fleet: the access key in the store was not encrypted with this AEAD or one of OpenAEADs; set the same AEAD in all replicas, or delete the Redis key %s", s.key)
}
