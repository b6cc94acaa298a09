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
//	client, err := msgpush.NewClient(baseURL, "", msgpush.WithAccessKeySource(keys),
//		msgpush.WithRejectedKeyCodes(rejectedCode), msgpush.WithRateLimiter(limiter))
//
// rejectedCode is the code of your service for a rejected access key. The API document lists
// none. Without it, only HTTP status 401 makes the client replace a key.
//
// Each operation of the store is one Lua script on one Redis key and uses only the
// clock of the store. So the clocks of the replicas may differ, unless
// KeyConfig.FetchWithoutStore is set; only the expiry that Fetch returns is read on the
// clock of its replica. Redis Cluster and Sentinel work.
//
// # Store failures
//
// An operation of the store takes at most one second. After a failed operation or probe,
// the store is considered unavailable, and operations fail immediately until a
// probe succeeds. These operations, and StoreErr, start the probes, at most one each
// 100 ms. A KeySource also probes an unavailable store when it connects to it
// or gets an announcement. No call waits for a probe of an unavailable store.
package fleet

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrStoreUnavailable is wrapped by an error of AccessKey, Wait or StoreErr whose cause is that
// the store could not be reached, did not respond in time, or returned an error or an
// unexpected reply.
var ErrStoreUnavailable = errors.New("fleet: store unavailable")

//go:embed key.lua
var keyLua string

//go:embed take.lua
var takeLua string

var keyScript, takeScript = redis.NewScript(keyLua), redis.NewScript(takeLua)

// prefix begins the names of Redis keys and channels. Its number is the version of what is
// stored there. If that changes, so must the number, since replicas of two releases use one
// store during an upgrade.
const prefix = "msgpush:1:"

const (
	storeTimeout  = time.Second            // of an operation
	probeTimeout  = 800 * time.Millisecond // of a probe: StoreErr has its result one second later
	probeInterval = 100 * time.Millisecond // from a failure to the next probe that state starts
	idleInterval  = 500 * time.Millisecond // from a success to the next probe that StoreErr starts
)

// A store runs scripts on one Redis key.
type store struct {
	rdb  redis.UniversalClient
	key  string
	turn sync.Mutex // held while a script other than a probe runs, so that scripts share a connection

	mu        sync.Mutex
	failure   error     // why the store is unavailable; nil if it is available
	nextProbe time.Time // when state may start a probe
}

func (s *store) init(rdb redis.UniversalClient, kind, name string) error {
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("the Redis client is nil; pass one made by redis.NewClient or redis.NewUniversalClient")
	}
	client, _ := rdb.(interface{ Options() *redis.Options }) // interfaces, since rdb may be a struct that embeds a client
	cluster, _ := rdb.(interface{ Options() *redis.ClusterOptions })
	ring, _ := rdb.(interface{ Options() *redis.RingOptions })
	s.rdb, s.key = rdb, prefix+kind+":{"+name+"}" // the braces are a Redis Cluster hash tag
	return cmp.Or(check(name != "", "Name is empty; set it to the name of the account, the same in all replicas"),
		check((client == nil || client.Options().ContextTimeoutEnabled) && (cluster == nil || cluster.Options().ContextTimeoutEnabled) &&
			(ring == nil || ring.Options().ContextTimeoutEnabled), "the Redis client ignores deadlines; set ContextTimeoutEnabled in its options"))
}

// check makes a condition an argument of cmp.Or, which returns the first error.
func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// StoreErr returns why the store is unavailable, or nil, for metrics and readiness checks. It
// returns the last known state immediately. If that is older than half a second, or than 100 ms
// if the store is unavailable, StoreErr starts a probe: a call of StoreErr one second later returns
// the result.
func (s *store) StoreErr() error { return s.state(true) }

// state returns why the store is unavailable, or nil. It starts a probe if one is due and the
// store is unavailable or probeIdle is set.
func (s *store) state(probeIdle bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (probeIdle || s.failure != nil) && time.Now().After(s.nextProbe) {
		s.nextProbe = time.Now().Add(storeTimeout + probeInterval) // unless an operation fails before
		go s.probe()
	}
	return s.failure
}

// probe tests whether the store responds, and records the result. For a [Limiter], it also tests
// whether the store accepts writes. A [KeySource] can read the stored key without writes.
func (s *store) probe() { _, _ = s.runBounded(probeTimeout, probeScript, []any{int64(0)}) }

var probeScript = redis.NewScript("if KEYS[1]:find('^" + prefix + "rate') then redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), 1000)) end return {redis.call('EXISTS', KEYS[1])}")

// run runs a script, or fails immediately if the store is unavailable.
func (s *store) run(script *redis.Script, want []any, args ...any) ([]any, error) {
	if err := s.state(false); err != nil {
		return nil, err
	}
	return s.runBounded(storeTimeout, script, want, args...)
}

// runBounded runs a script, whose reply must have the types of want, and records whether the
// store is available. The error does not wrap its cause, so that a timeout of the store does
// not match context.DeadlineExceeded.
func (s *store) runBounded(timeout time.Duration, script *redis.Script, want []any, args ...any) ([]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	reply, err := script.Run(ctx, s.rdb, []string{s.key}, args...).Slice()
	sameType := func(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }
	err = cmp.Or(err, check(slices.EqualFunc(reply, want, sameType), "a script returned %d elements, not %d of the expected types", len(reply), len(want)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure, s.nextProbe = nil, time.Now().Add(idleInterval)
	if err != nil {
		// The error text of a disabled command quotes its arguments, such as an access key.
		s.failure, s.nextProbe = fmt.Errorf("%w: %s", ErrStoreUnavailable, strings.Split(err.Error(), ", with args beginning with")[0]), time.Now().Add(probeInterval)
		if cluster, ok := s.rdb.(interface{ ReloadState(context.Context) }); ok {
			cluster.ReloadState(ctx) // otherwise, go-redis replaces a failed node only after ClusterStateReloadInterval
		}
	}
	return reply, s.failure
}

// ErrBudgetExceeded is wrapped by the error of [Limiter.Wait] if the next free
// slot is too late for the deadline. The call does not take this slot. The error does not
// match [context.DeadlineExceeded], since the deadline has not passed.
var ErrBudgetExceeded = errors.New("fleet: request budget exceeded")

// A LimiterConfig configures a [Limiter]. Name, Rate and Per are required.
type LimiterConfig struct {
	// Name is the name of the account. Replicas with the same Name share a
	// budget and must have the same Rate, Per and Burst.
	Name string
	// Rate is the number of requests in each Per. Rate / Per must be at most one request per
	// microsecond.
	Rate int
	// Per is the period of Rate. If Burst is 1, slots are at least Per / Rate apart.
	Per time.Duration
	// Burst is the number of requests that may be sent without spacing after an
	// idle time of Burst × Per / Rate. 0 means 1.
	Burst int
	// Fallback is used while the store is unavailable. Each replica has its own,
	// so one of 20 replicas needs a 20th of the budget, such as
	// rate.NewLimiter(5, 1) for 100 requests a second. If Fallback is nil, Wait
	// returns an error that wraps [ErrStoreUnavailable] instead.
	Fallback interface{ Wait(context.Context) error }
}

// A Limiter limits the requests of all replicas to one budget: each request takes
// the next free slot of one queue. In any window of d, at most Burst + Rate × d /
// Per slots begin, on the clock of the store. Wait returns at most 250 ms plus
// the network delay after the slot, or later if the call has missed four slots.
// A Limiter is safe for concurrent use.
//
// Besides probes, a Limiter sends one command to the store at a time, in a goroutine that ends with
// the command. The command takes slots for all calls that wait for one. The slot of a cancelled
// call, of a replica that dies, or of a lost reply stays unused.
//
// If the store loses its data, the next slots of each replica begin no earlier than about 100 ms
// before the last slot that this replica took.
type Limiter struct {
	store
	cfg  LimiterConfig
	last atomic.Pointer[time.Time] // the latest slot of this replica

	mutex sync.Mutex
	next  *batch // not sent yet; nil if no call has joined it
}

// A batch is a command that takes slots for calls of Wait.
type batch struct {
	latest []time.Time   // for each call, the latest time at which its slot may begin
	done   chan struct{} // closed when the fields below are set

	sent, received time.Time
	waits          []any // how long each call must wait for its slot, in microseconds
	err            error
}

// slotLifetime is how late a slot may be used. A call takes at most maxSlots
// slots, and uses the last one however late it is.
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
		return nil, fmt.Errorf("fleet: %w", err)
	}
	return l, nil
}

// Wait blocks until the request may be sent. If ctx has a deadline, the wait for
// the slot takes at most half of the time left, since the request needs time too;
// if the next free slot is later, Wait does not wait for it, and returns an error that wraps
// [ErrBudgetExceeded].
//
// A slot that is missed by more than 250 ms, such as by a suspended process, is
// discarded, and Wait takes another one. A call takes at most 5
// slots, and uses the fifth however late it is.
//
// If Wait cannot take a slot because the store is unavailable, it returns an error that wraps
// [ErrStoreUnavailable]. With a Fallback, Wait instead waits until the latest slot of this
// replica, and then for Fallback. If the store becomes available first, Wait takes a slot.
func (l *Limiter) Wait(ctx context.Context) error {
	for n := 1; ; n++ {
		begin, err := l.take(ctx)
		if errors.Is(err, ErrStoreUnavailable) && l.cfg.Fallback != nil {
			return l.waitWithoutStore(ctx)
		}
		if err = cmp.Or(err, sleepUntil(ctx, begin)); err != nil || n == maxSlots || time.Since(begin) < slotLifetime {
			return err
		}
	}
}

// Queue returns the time until the latest slot that this replica has taken. While this replica
// sends requests, that is about the length of the queue of all replicas.
func (l *Limiter) Queue() time.Duration { return max(time.Until(*load(&l.last)), 0) }

func sleepUntil(ctx context.Context, t time.Time) error {
	wait, cancel := context.WithDeadline(ctx, t)
	defer cancel()
	<-wait.Done()
	return ctx.Err()
}

// take takes the next free slot, unless it begins too late for the deadline of ctx.
func (l *Limiter) take(ctx context.Context) (begin time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	latest := time.Now().Add(noExpiry)
	if deadline, ok := ctx.Deadline(); ok {
		latest = time.Now().Add(time.Until(deadline) / 2)
	}
	b, i := l.join(latest)
	select {
	case <-b.done:
	case <-ctx.Done(): // the slot stays unused
		return time.Time{}, ctx.Err()
	}
	if b.err != nil {
		return time.Time{}, b.err
	}
	wait, maxWait := time.Duration(b.waits[i].(int64))*time.Microsecond, max(latest.Sub(b.sent), 0) //nolint:durationcheck // waits are numbers
	if wait.Microseconds() > maxWait.Microseconds() {
		return time.Time{}, fmt.Errorf("%w: the next free slot is in %v, but the deadline leaves %v for the wait", ErrBudgetExceeded, wait.Round(time.Millisecond), maxWait.Round(time.Millisecond))
	}
	for old, last := l.last.Load(), b.sent.Add(wait); last.After(*load(&l.last)) && !l.last.CompareAndSwap(old, &last); {
		old = l.last.Load()
	}
	return b.received.Add(max(wait, 0)), nil
}

// join adds a call to the batch that is sent next, and starts one if there is none. index is its
// position in the batch.
func (l *Limiter) join(latest time.Time) (b *batch, index int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.next == nil {
		l.next = &batch{done: make(chan struct{})}
		go l.send(l.next)
	}
	l.next.latest = append(l.next.latest, latest)
	return l.next, len(l.next.latest) - 1
}

// send sends a batch when the command before it has ended. Until then, calls join the batch.
func (l *Limiter) send(b *batch) {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.mutex.Lock()
	l.next = nil
	l.mutex.Unlock()
	b.sent = time.Now()
	args := []any{float64(l.cfg.Per) / float64(time.Microsecond), l.cfg.Rate, l.cfg.Burst, load(&l.last).Sub(b.sent).Microseconds()}
	for _, latest := range b.latest {
		args = append(args, max(latest.Sub(b.sent), 0).Microseconds())
	}
	b.waits, b.err = l.run(takeScript, slices.Repeat([]any{int64(0)}, len(b.latest)), args...)
	b.received = time.Now()
	close(b.done)
}

// waitWithoutStore waits for Fallback, or for a slot if the store becomes available first.
func (l *Limiter) waitWithoutStore(ctx context.Context) error {
	outage, end := context.WithCancel(ctx)
	defer end()
	go func() {
		defer end()
		for l.StoreErr() != nil && outage.Err() == nil {
			_ = sleepUntil(outage, time.Now().Add(probeInterval))
		}
	}()
	err := sleepUntil(outage, *load(&l.last)) // until then, other calls of this replica use their slots
	if err == nil {
		err = l.cfg.Fallback.Wait(outage)
	}
	if err != nil && ctx.Err() == nil && outage.Err() != nil {
		return l.Wait(ctx) // the store is available again
	}
	return err
}
