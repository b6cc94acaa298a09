// Package fleet lets the replicas of a service share one access key
// ([KeySource]) and one request budget ([Limiter]) through a store, Redis or
// Valkey.
//
//	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
//	keys, err := fleet.NewKeySource(rdb, fleet.KeyConfig{Name: "acme", Fetch: fetch, Early: time.Minute, AEAD: aead})
//	...
//	defer keys.Close()
//	limiter, err := fleet.NewLimiter(rdb, fleet.LimiterConfig{Name: "acme", Rate: 100, Per: time.Second, Burst: 10})
//	...
//	client, err := msgpush.NewClient(baseURL, "", msgpush.WithAccessKeySource(keys), msgpush.WithRateLimiter(limiter))
//
// Each operation of the store is one Lua script on one Redis key. It uses only the
// clock of the store, so the clocks of the replicas may differ. Redis Cluster
// works.
//
// # Store failures
//
// An operation of the store takes at most one second. After a failed operation,
// the store is considered unavailable, and operations fail immediately until a
// probe succeeds. Calls that need the store start the probes: one at a time, at
// most every 100 ms. No call waits for a probe.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrStoreUnavailable is wrapped by the error of a call if the store could not be
// reached, did not respond within a second, or returned an error.
var ErrStoreUnavailable = errors.New("fleet: store unavailable")

// storeTimeout bounds one operation of the store, probeInterval is the time
// between two probes of an unavailable store.
const storeTimeout, probeInterval = time.Second, 100 * time.Millisecond

// A store runs scripts on one Redis key.
type store struct {
	rdb redis.UniversalClient
	key string

	mu        sync.Mutex
	failure   error     // why the store is unavailable; nil if it is available
	nextProbe time.Time // of an unavailable store
}

func (s *store) init(rdb redis.UniversalClient, kind, name string) error {
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("fleet: the Redis client is nil; pass one made by redis.NewClient or redis.NewUniversalClient")
	}
	client, _ := rdb.(interface{ Options() *redis.Options }) // interfaces, since rdb may be a struct that embeds a client
	cluster, _ := rdb.(interface{ Options() *redis.ClusterOptions })
	ring, _ := rdb.(interface{ Options() *redis.RingOptions })
	s.rdb, s.key = rdb, "msgpush:"+kind+":{"+name+"}" // the braces are a Redis Cluster hash tag
	return cmp.Or(check(name != "", "Name is empty; set it to the name of the account, the same in all replicas"),
		check((client == nil || client.Options().ContextTimeoutEnabled) && (cluster == nil || cluster.Options().ContextTimeoutEnabled) &&
			(ring == nil || ring.Options().ContextTimeoutEnabled), "the Redis client ignores deadlines; set ContextTimeoutEnabled in its options"))
}

// check returns an error unless a condition of the configuration is met.
func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("fleet: "+format, args...)
}

// run runs a script. If the store is unavailable, run fails immediately, and
// starts a probe if one is due. The script runs to its end even if ctx ends
// earlier, so that calls with short deadlines detect an unavailable store too.
func (s *store) run(ctx context.Context, script *redis.Script, args ...any) ([]any, error) {
	s.mu.Lock()
	failure := s.failure
	if failure != nil && time.Now().After(s.nextProbe) {
		s.nextProbe = time.Now().Add(storeTimeout + probeInterval) // by then, this probe has ended
		go s.runBounded(ctx, probeScript)                          //nolint:errcheck // records its result
	}
	s.mu.Unlock()
	if err := cmp.Or(ctx.Err(), failure); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	var reply []any
	var err error
	go func() {
		defer close(done)
		reply, err = s.runBounded(ctx, script, args...)
	}()
	select {
	case <-done:
		return reply, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// runBounded runs a script and records whether the store is available. The error
// does not wrap its cause, so that a timeout of the store does not match
// context.DeadlineExceeded.
func (s *store) runBounded(ctx context.Context, script *redis.Script, args ...any) ([]any, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	reply, err := script.Run(ctx, s.rdb, []string{s.key}, args...).Slice()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = nil
	if err != nil {
		text, _, _ := strings.Cut(err.Error(), ", with args beginning with") // the error of a disabled command quotes its arguments, such as an access key
		s.failure, s.nextProbe = fmt.Errorf("%w: %s", ErrStoreUnavailable, text), time.Now().Add(probeInterval)
	}
	return reply, s.failure
}

var probeScript = redis.NewScript("return {redis.call('EXISTS', KEYS[1])}")

// ErrBudgetExceeded is wrapped by the error of [Limiter.Wait] if the next free
// slot is too late for the deadline. Such a call takes no slot. The error does not
// match [context.DeadlineExceeded], since the deadline has not passed.
var ErrBudgetExceeded = errors.New("fleet: request budget exceeded")

// A LimiterConfig configures a [Limiter]. Name, Rate and Per are required.
type LimiterConfig struct {
	// Name is the name of the account. Replicas with the same Name share a
	// budget and must have the same Rate, Per and Burst.
	Name string
	// Rate is the number of requests in each Per, at most one per microsecond.
	Rate int
	// Per is the time in which Rate requests are sent, evenly spaced.
	Per time.Duration
	// Burst is the number of requests that may be sent without spacing after an
	// idle time of Burst × Per / Rate. 0 means 1.
	Burst int
	// Fallback is used while the store is unavailable. Each replica has its own,
	// so one of 20 replicas needs a 20th of the budget, such as
	// rate.NewLimiter(5, 1) for 100 requests a second. If Fallback is nil, Wait
	// returns [ErrStoreUnavailable] instead.
	Fallback interface{ Wait(context.Context) error }
}

// A Limiter limits the requests of all replicas to one budget: each request takes
// the next free slot of one queue. In any window of d, at most Burst + Rate × d /
// Per slots begin, on the clock of the store. A request starts at most 250 ms plus
// the network delay after its slot, or later if the call has missed four slots; see
// [Limiter.Wait]. A Limiter is safe for concurrent use.
//
// Each slot takes one command of the store. The slot of a call that is cancelled,
// or of a replica that dies, stays unused.
type Limiter struct {
	store
	cfg LimiterConfig
}

// slotLifetime is how late a slot may be used. A call takes at most maxSlots
// slots; the last one never expires.
const slotLifetime, maxSlots = 250 * time.Millisecond, 5

// NewLimiter returns a limiter for [msgpush.WithRateLimiter]. NewLimiter sends
// nothing to the store, and the limiter needs no Close.
func NewLimiter(rdb redis.UniversalClient, cfg LimiterConfig) (*Limiter, error) {
	cfg.Burst = cmp.Or(cfg.Burst, 1)
	interval := float64(cfg.Per) / float64(cfg.Rate)
	l := &Limiter{cfg: cfg}
	if err := cmp.Or(l.init(rdb, "rate", cfg.Name),
		check(cfg.Rate > 0, "Rate is %d; set it to the number of requests in Per, at least 1", cfg.Rate),
		check(cfg.Per > 0, "Per is %v; set it to a positive time, such as time.Second", cfg.Per),
		check(cfg.Burst > 0, "Burst is %d; set it to at least 1, or to 0 for 1", cfg.Burst),
		check(interval >= float64(time.Microsecond) && interval*float64(cfg.Burst) <= float64(noExpiry), "Rate is %d, Per is %v and Burst is %d; set at most one request per microsecond, and a Burst × Per / Rate of at most 50 years", cfg.Rate, cfg.Per, cfg.Burst)); err != nil {
		return nil, err
	}
	return l, nil
}

// Wait blocks until the request may be sent. If ctx has a deadline, the wait for
// the slot takes at most half of the time left, since the request needs time too;
// if the next free slot is later, Wait returns [ErrBudgetExceeded] immediately.
//
// A slot that is missed by more than 250 ms, such as by a suspended process, is
// discarded, and Wait takes another one. A call takes at most 5 slots.
func (l *Limiter) Wait(ctx context.Context) error {
	for n := 1; ; n++ {
		deadline, bounded := ctx.Deadline()
		maxWait := time.Until(deadline) / 2
		reply, err := l.run(ctx, takeSlotScript, float64(l.cfg.Per)/float64(time.Microsecond), l.cfg.Rate, l.cfg.Burst, bounded, maxWait.Microseconds())
		if errors.Is(err, ErrStoreUnavailable) && l.cfg.Fallback != nil {
			return l.cfg.Fallback.Wait(ctx)
		}
		if err != nil {
			return err
		}
		wait := time.Duration(reply[1].(int64)) * time.Microsecond //nolint:durationcheck // reply[1] is a number
		if reply[0] == int64(0) {
			return fmt.Errorf("%w: the next free slot is in %v, but the deadline leaves %v for the wait", ErrBudgetExceeded, wait.Round(time.Millisecond), maxWait.Round(time.Millisecond))
		}
		slot := time.Now().Add(max(wait, 0))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		if time.Since(slot) < slotLifetime || n == maxSlots {
			return nil
		}
	}
}

// takeSlotScript stores the time of the next free slot in microseconds. After an
// idle time, that slot is up to Burst - 1 intervals in the past.
var takeSlotScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local interval = ARGV[1] / ARGV[2]
local free = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now - (ARGV[3] - 1) * interval)
if ARGV[4] == '1' and free > now + ARGV[5] then return {0, math.ceil(free - now)} end
redis.call('SET', KEYS[1], string.format('%.3f', free + interval), 'PX', string.format('%.0f', (free - now + (ARGV[3] + 1) * interval) / 1000 + 1000))
return {1, math.ceil(free - now)}
`)
