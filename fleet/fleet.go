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
	dialAfter     = 300 * time.Millisecond // from a command to a test of the address
	probeInterval = 100 * time.Millisecond // from a failure to the next probe that state starts
	idleInterval  = 500 * time.Millisecond // from a success to the next probe that StoreErr starts
	suspension    = 250 * time.Millisecond // an operation is that late only if its process was suspended
)

// A store runs scripts on one Redis key.
type store struct {
	rdb redis.UniversalClient
	key string

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

// run runs a script, or fails immediately if the store is unavailable. A script whose timeout ended
// while this process was suspended runs once more: the store may have replied in time.
func (s *store) run(script *redis.Script, want []any, args ...any) ([]any, error) {
	if err := s.state(false); err != nil {
		return nil, err
	}
	begin := time.Now()
	reply, err := s.runBounded(storeTimeout, script, want, args...)
	if wasSuspended := time.Since(begin) > storeTimeout+suspension; err != nil && wasSuspended {
		return s.runBounded(storeTimeout, script, want, args...)
	}
	return reply, err
}

// runBounded runs a script, whose reply must have the types of want, and records whether the
// store is available. The error does not wrap its cause, so that a timeout of the store does
// not match context.DeadlineExceeded.
func (s *store) runBounded(timeout time.Duration, script *redis.Script, want []any, args ...any) ([]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer time.AfterFunc(dialAfter, func() { s.testAddress(ctx, fail) }).Stop()
	reply, err := script.Run(ctx, s.rdb, []string{s.key}, args...).Slice()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
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

// testAddress calls fail if the address of the store cannot be dialed, such as because the connection
// is refused. go-redis dials again until the context ends, and then returns the error of the context.
func (s *store) testAddress(ctx context.Context, fail func(error)) {
	client, ok := s.rdb.(interface{ Options() *redis.Options })
	if !ok {
		return
	}
	options := client.Options()
	conn, err := options.Dialer(ctx, options.Network, options.Addr)
	if err != nil {
		fail(err)
		return
	}
	_ = conn.Close()
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
// Besides probes, a Limiter sends one command to the store at a time, in a goroutine that ends
// when no call waits for a command. The command takes slots for up to 10,000 calls. The calls of a
// replica get its slots in their order: if a call is cancelled, the calls after it move up. The slots
// of a replica that dies, or of a lost reply, stay unused.
//
// If the store loses its data, the next slots of each replica begin no earlier than about 100 ms
// before the last slot that this replica took.
type Limiter struct {
	store
	cfg LimiterConfig

	mutex   sync.Mutex
	pending []*call // wait for a command that takes slots for them
	sending bool    // a goroutine sends such commands

	queued  []*call     // get the slots of this replica, in this order; some may be cancelled
	waiting int         // the number of queued calls that are not cancelled
	slots   []time.Time // of this replica that have not begun, ascending
	timer   *time.Timer // fires when the first slot begins; nil: no call waits for it
	last    time.Time   // the latest slot of this replica
}

// A call waits for a slot. The mutex of its limiter guards its fields.
type call struct {
	latest    time.Time // its slot must not begin later
	queued    bool
	cancelled bool

	done  chan struct{} // closed when begin or err is set
	begin time.Time
	err   error
}

func (c *call) end(err error) {
	c.err = err
	close(c.done)
}

// maxWait returns how long a call can wait, at the time when its command is sent.
func (c *call) maxWait(sent time.Time) time.Duration { return max(c.latest.Sub(sent), 0) }

const (
	// slotLifetime is how late a slot may be used. A call takes at most maxSlots slots, and uses
	// the last one however late it is.
	slotLifetime = 250 * time.Millisecond
	maxSlots     = 5

	// maxCalls is the maximum number of calls of a command, which blocks the store while it runs.
	maxCalls = 10_000
)

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
		if err != nil {
			return err
		}
		if n == maxSlots || time.Since(begin) < slotLifetime {
			return nil
		}
	}
}

// Queue returns the time until the latest slot that this replica has taken. While this replica
// sends requests, that is about the length of the queue of all replicas.
func (l *Limiter) Queue() time.Duration { return max(time.Until(l.lastSlot()), 0) }

func (l *Limiter) lastSlot() time.Time {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.last
}

func sleepUntil(ctx context.Context, t time.Time) error {
	wait, cancel := context.WithDeadline(ctx, t)
	defer cancel()
	<-wait.Done()
	return ctx.Err()
}

// take waits until a slot of the call begins.
func (l *Limiter) take(ctx context.Context) (begin time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	latest := time.Now().Add(noExpiry)
	if deadline, ok := ctx.Deadline(); ok {
		latest = time.Now().Add(time.Until(deadline) / 2)
	}
	c := &call{latest: latest, done: make(chan struct{})}
	l.join(c)
	select {
	case <-c.done:
		return c.begin, c.err
	case <-ctx.Done():
		l.cancel(c)
		return time.Time{}, ctx.Err()
	}
}

// join queues a call if there is a slot for it, such as that of a cancelled call. Otherwise, a
// command takes one.
func (l *Limiter) join(c *call) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.serve() // drops the slots that have begun while no call waited
	if l.waiting < len(l.slots) {
		l.queue(c)
		l.serve()
		return
	}
	l.pending = append(l.pending, c)
	if !l.sending {
		l.sending = true
		go l.send()
	}
}

// queue lets a call wait for the first slot that no call waits for, unless it begins too late. It is
// called with mutex held.
func (l *Limiter) queue(c *call) {
	if slot := l.slots[l.waiting]; slot.After(c.latest) {
		c.end(budgetError(time.Until(slot), time.Until(c.latest)))
		return
	}
	c.queued = true
	l.queued = append(l.queued, c)
	l.waiting++
}

func budgetError(wait, maxWait time.Duration) error {
	return fmt.Errorf("%w: the next free slot is in %v, but the deadline leaves %v for the wait",
		ErrBudgetExceeded, wait.Round(time.Millisecond), max(maxWait, 0).Round(time.Millisecond))
}

// cancel removes a call, so that the calls after it move up.
func (l *Limiter) cancel(c *call) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	c.cancelled = true
	if !c.begin.IsZero() { // its slot has begun
		l.insert(c.begin)
	} else if c.queued {
		l.waiting--
	}
	if len(l.queued) > 2*l.waiting+100 { // otherwise, they are removed when their slots begin
		l.queued = slices.DeleteFunc(l.queued, func(c *call) bool { return c.cancelled })
	}
	l.promote()
	l.serve()
}

// promote queues pending calls while there are slots for them. It is called with mutex held.
func (l *Limiter) promote() {
	for len(l.pending) > 0 && l.waiting < len(l.slots) {
		c := l.pending[0]
		l.pending = l.pending[1:]
		if !c.cancelled {
			l.queue(c)
		}
	}
}

// insert adds a slot. It is called with mutex held.
func (l *Limiter) insert(slot time.Time) {
	i, _ := slices.BinarySearchFunc(l.slots, slot, time.Time.Compare)
	l.slots = slices.Insert(l.slots, i, slot)
}

// serve gives the slots that have begun to the first calls. A slot that no call waits for is
// dropped: used later, it would exceed the budget. serve is called with mutex held.
func (l *Limiter) serve() {
	for len(l.slots) > 0 && time.Until(l.slots[0]) <= 0 {
		if c := l.nextQueued(); c != nil {
			c.begin = l.slots[0]
			c.end(nil)
		}
		l.slots = l.slots[1:]
	}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.waiting > 0 {
		l.timer = time.AfterFunc(time.Until(l.slots[0]), func() {
			l.mutex.Lock()
			defer l.mutex.Unlock()
			l.serve()
		})
	}
}

// nextQueued removes and returns the first queued call, or nil if there is none. It is called with
// mutex held.
func (l *Limiter) nextQueued() *call {
	for len(l.queued) > 0 {
		c := l.queued[0]
		l.queued = l.queued[1:]
		if !c.cancelled {
			l.waiting--
			return c
		}
	}
	return nil
}

// send takes slots for pending calls, one command after another, until no call is pending.
func (l *Limiter) send() {
	for {
		calls, last := l.nextPending()
		if len(calls) == 0 {
			return
		}
		sent := time.Now()
		args := []any{float64(l.cfg.Per) / float64(time.Microsecond), l.cfg.Rate, l.cfg.Burst, last.Sub(sent).Microseconds()}
		for _, c := range calls {
			args = append(args, c.maxWait(sent).Microseconds())
		}
		waits, err := l.run(takeScript, slices.Repeat([]any{int64(0)}, len(calls)), args...)
		l.assign(calls, sent, waits, err)
	}
}

// nextPending removes and returns the calls of the next command, and the latest slot of this
// replica.
func (l *Limiter) nextPending() (calls []*call, last time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.pending = slices.DeleteFunc(l.pending, func(c *call) bool { return c.cancelled })
	n := min(len(l.pending), maxCalls)
	calls = slices.Clone(l.pending[:n])
	l.pending = slices.Delete(l.pending, 0, n)
	l.sending = n > 0
	return calls, l.last
}

// assign adds the slots that a command took for calls, and queues the calls.
func (l *Limiter) assign(calls []*call, sent time.Time, waits []any, err error) {
	received := time.Now()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for i, c := range calls {
		if err != nil {
			c.end(err)
			continue
		}
		wait := time.Duration(waits[i].(int64)) * time.Microsecond //nolint:durationcheck // waits are numbers
		if maxWait := c.maxWait(sent); wait.Microseconds() > maxWait.Microseconds() {
			c.end(budgetError(wait, maxWait))
			continue
		}
		if last := sent.Add(wait); last.After(l.last) {
			l.last = last
		}
		l.insert(received.Add(max(wait, 0)))
		if !c.cancelled {
			c.queued = true
			l.queued = append(l.queued, c)
			l.waiting++
		}
	}
	l.promote()
	l.serve()
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
	err := sleepUntil(outage, l.lastSlot()) // until then, other calls of this replica use their slots
	if err == nil {
		err = l.cfg.Fallback.Wait(outage)
	}
	if err != nil && ctx.Err() == nil && outage.Err() != nil {
		return l.Wait(ctx) // the store is available again
	}
	return err
}
