package fleet

import (
	"cmp"
	"container/list"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed take.lua
var takeLua string

var takeScript = redis.NewScript(takeLua)

// ErrBudgetExceeded is wrapped by the error of [Limiter.Wait] if the next free slot is too late for
// the deadline. The call does not take this slot. The error does not match
// [context.DeadlineExceeded], since the deadline has not passed.
var ErrBudgetExceeded = errors.New("fleet: request budget exceeded")

// A LimiterConfig configures a [Limiter]. Name, Rate and Per are required.
type LimiterConfig struct {
	// Name is the name of the account. Replicas with the same Name take their slots from one queue. A
	// replica moves the queue on by its own Per / Rate: set the same Rate, Per and Burst in all of
	// them, except while a deployment changes the rate.
	Name string
	// Rate is the number of requests in each Per. Rate / Per must be at most one request per
	// microsecond.
	Rate int
	// Per is the period of Rate. If Burst is 1, slots are at least Per / Rate - 1 µs apart.
	Per time.Duration
	// Burst is the number of requests that may be sent without spacing after an idle time of Burst
	// × Per / Rate. 0 means 1.
	Burst int
	// Fallback is used while the store is unavailable. Each replica has its own, so one of 20
	// replicas needs a 20th of the budget, such as rate.NewLimiter(5, 1) for 100 requests a second.
	// If Fallback is nil, Wait returns an error that wraps [ErrStoreUnavailable] instead.
	Fallback interface{ Wait(context.Context) error }
}

// A Limiter limits the requests of all replicas to one budget: each request takes the next free
// slot of one queue. In any window of d, at most Burst + Rate × (d + 1 µs) / Per slots begin, on
// the clock of the store. Wait returns at most 250 ms plus the network delay after the slot, or
// later if the call has missed four slots in a row. A Limiter is safe for concurrent use.
//
// In addition to probes, a Limiter sends one command to the store at a time, in a goroutine that
// ends when every waiting call has a slot. The command takes slots for up to 10,000 calls. The
// calls of a replica get its slots in the order of the calls: if a call is cancelled, the calls
// after it move up. The slots of a replica that dies, or of a lost reply, stay unused.
//
// If the store loses its data, the next slots of each replica begin no earlier than about 100 ms
// before the last slot that this replica took.
type Limiter struct {
	store *store
	cfg   LimiterConfig

	fromStore, reused, fallback, discarded atomic.Int64 // see LimiterStats

	mu      sync.Mutex
	waiters list.List   // of *waiter: the calls that wait, in their order
	slots   []time.Time // of this replica, not used yet, ascending: one for each of the first waiters, or more
	sending bool        // a goroutine takes slots for the other waiters
	timer   *time.Timer // fires when the first slot begins; nil: no call waits for it
	last    time.Time   // the latest slot of this replica
}

// A waiter is a call of Wait that waits for a slot. The mu of its limiter guards its fields until
// done is closed.
type waiter struct {
	latest   time.Time     // its slot must not begin later, apart from the delay of the reply
	element  *list.Element // of waiters; nil if the call does not wait any more
	isBought bool          // a command took a slot for this call

	done  chan struct{} // closed when begin or err is set
	begin time.Time
	err   error
}

// maxWait returns how long a call can wait, at the time when its command is sent.
func (w *waiter) maxWait(sent time.Time) time.Duration { return max(w.latest.Sub(sent), 0) }

const (
	// slotLifetime is how late a slot may be used. Of maxSlots slots in a row, a call uses the last
	// one however late it is.
	slotLifetime = 250 * time.Millisecond
	maxSlots     = 5

	// maxCalls is the maximum number of calls of a command, which blocks the store while it runs.
	maxCalls = 10_000
)

// NewLimiter returns a limiter for [msgpush.WithRateLimiter]. NewLimiter sends nothing to the
// store, and the limiter needs no Close.
func NewLimiter(rdb redis.UniversalClient, cfg LimiterConfig) (*Limiter, error) {
	store, err := newStore(rdb, "rate", cfg.Name)
	if err != nil {
		return nil, err
	}
	cfg.Burst = cmp.Or(cfg.Burst, 1)
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Limiter{store: store, cfg: cfg}, nil
}

func (c LimiterConfig) check() error {
	switch {
	case c.Rate <= 0:
		return fmt.Errorf("fleet: Rate is %d; set it to the number of requests in Per, at least 1", c.Rate)
	case c.Per <= 0:
		return fmt.Errorf("fleet: Per is %v; set it to a positive time, such as time.Second", c.Per)
	case c.Burst <= 0:
		return fmt.Errorf("fleet: Burst is %d; set it to at least 1, or to 0 for 1", c.Burst)
	}
	interval := float64(c.Per) / float64(c.Rate)
	isTooShort := interval < float64(time.Microsecond)
	isTooLong := interval*float64(c.Burst) > float64(noExpiry)
	if isTooShort || isTooLong {
		return fmt.Errorf("fleet: Rate is %d, Per is %v and Burst is %d; set at most one request per microsecond, "+
			"and a Burst × Per / Rate of at most 50 years", c.Rate, c.Per, c.Burst)
	}
	return nil
}

// Ping tests the store, and returns nil or an error that wraps
// [ErrStoreUnavailable]. It takes at most one second, or until ctx ends. With a Fallback, requests
// succeed while the store fails: then, a readiness check should not depend on Ping.
func (l *Limiter) Ping(ctx context.Context) error { return l.store.probeWithin(ctx) }

// LimiterStats are counters of one [Limiter]. They begin at 0 when it is created. FromStore, Reused
// and Fallback add up to the calls of Wait that returned nil.
type LimiterStats struct {
	// FromStore is the number of calls for which a command to the store took a slot.
	FromStore int64
	// Reused is the number of calls that needed no command, because a cancelled call had left its
	// slot to this replica.
	Reused int64
	// Fallback is the number of calls that Fallback let pass.
	Fallback int64
	// Discarded is the number of slots of this replica that no call used: all calls were cancelled,
	// or the call missed its slot by 250 ms. Many of them show an overloaded or suspended process.
	Discarded int64
}

// Stats returns the counters of this Limiter.
func (l *Limiter) Stats() LimiterStats {
	l.mu.Lock()
	l.serve() // discards the slots that have begun while no call waited
	l.mu.Unlock()
	return LimiterStats{
		FromStore: l.fromStore.Load(),
		Reused:    l.reused.Load(),
		Fallback:  l.fallback.Load(),
		Discarded: l.discarded.Load(),
	}
}

// Wait blocks until the request may be sent. If ctx has a deadline, the slot must begin in the
// first half of the time left, plus the delay of the store, since the request needs time too. For a
// later slot, Wait does not wait, and returns an error that wraps [ErrBudgetExceeded].
//
// A slot that is missed by 250 ms, such as by a suspended process, is discarded, and Wait takes
// another one. It uses the fifth in a row however late it is.
//
// If Wait cannot take a slot because the store is unavailable, it returns an error that wraps
// [ErrStoreUnavailable]. With a Fallback, Wait instead waits until the latest slot of this replica,
// and then for Fallback. If the store becomes available first, Wait takes a slot.
func (l *Limiter) Wait(ctx context.Context) error {
	slots := 0 // in a row
	for {
		w, err := l.take(ctx)
		if errors.Is(err, ErrStoreUnavailable) && l.cfg.Fallback != nil {
			err := l.waitWithoutStore(ctx)
			if !errors.Is(err, errAvailable) {
				return err
			}
			slots = 0
			continue
		}
		if err != nil {
			return err
		}
		slots++
		if slots < maxSlots && time.Since(w.begin) >= slotLifetime {
			l.discarded.Add(1)
			continue
		}
		if w.isBought {
			l.fromStore.Add(1)
		} else {
			l.reused.Add(1)
		}
		return nil
	}
}

// Queue returns the time until the latest slot that this replica has taken. While this replica
// sends requests, that is about the length of the queue of all replicas.
func (l *Limiter) Queue() time.Duration { return max(time.Until(l.lastSlot()), 0) }

func (l *Limiter) lastSlot() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// take waits until a slot of the call begins.
func (l *Limiter) take(ctx context.Context) (*waiter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	latest := time.Now().Add(noExpiry)
	if deadline, ok := ctx.Deadline(); ok {
		latest = time.Now().Add(time.Until(deadline) / 2)
	}
	w := &waiter{latest: latest, done: make(chan struct{})}
	l.join(w)
	select {
	case <-w.done:
		return w, w.err
	case <-ctx.Done():
		l.cancel(w)
		return nil, ctx.Err()
	}
}

// join queues a call. If no slot is left for it, such as the slot of a cancelled call, a command
// takes one.
func (l *Limiter) join(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serve() // discards the slots that have begun while no call waited
	w.element = l.waiters.PushBack(w)
	missing := l.waiters.Len() - len(l.slots)
	if missing <= 0 {
		slot := l.slots[l.waiters.Len()-1]
		if slot.After(w.latest) {
			l.end(w, budgetError(time.Until(slot), time.Until(w.latest)))
		}
	}
	l.serve()
	if missing > 0 && !l.sending {
		l.sending = true
		go l.send()
	}
}

func budgetError(wait, maxWait time.Duration) error {
	return fmt.Errorf("%w: the next free slot is in %v, but the deadline leaves %v for the wait",
		ErrBudgetExceeded, wait.Round(time.Millisecond), max(maxWait, 0).Round(time.Millisecond))
}

// end ends a call, unless it has ended. It is called with mu held.
func (l *Limiter) end(w *waiter, err error) {
	if w.element == nil {
		return
	}
	l.waiters.Remove(w.element)
	w.element = nil
	w.err = err
	close(w.done)
}

// cancel removes a call, so that the calls after it move up.
func (l *Limiter) cancel(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(w, context.Canceled)
	if !w.begin.IsZero() { // its slot has begun, but the call does not use it
		l.insert(w.begin)
	}
	l.serve()
}

// insert adds a slot. It is called with mu held.
func (l *Limiter) insert(slot time.Time) {
	i, _ := slices.BinarySearchFunc(l.slots, slot, time.Time.Compare)
	l.slots = slices.Insert(l.slots, i, slot)
}

// serve gives the slots that have begun to the first calls. It discards a slot that no call waits
// for: used later, it would exceed the budget. serve is called with mu held.
func (l *Limiter) serve() {
	for len(l.slots) > 0 && time.Until(l.slots[0]) <= 0 {
		if first := l.waiters.Front(); first != nil {
			w := first.Value.(*waiter)
			w.begin = l.slots[0]
			l.end(w, nil)
		} else {
			l.discarded.Add(1)
		}
		l.slots = l.slots[1:]
	}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.waiters.Len() > 0 && len(l.slots) > 0 {
		l.timer = time.AfterFunc(time.Until(l.slots[0]), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.serve()
		})
	}
}

// send takes slots for the calls that have none, one command after another.
func (l *Limiter) send() {
	for {
		calls, last := l.withoutSlot()
		if len(calls) == 0 {
			return
		}
		sent := time.Now()
		interval := float64(l.cfg.Per) / float64(l.cfg.Rate)
		args := []any{
			interval / float64(time.Microsecond),
			l.cfg.Burst,
			last.Sub(sent).Microseconds(),
		}
		for _, w := range calls {
			args = append(args, w.maxWait(sent).Microseconds())
		}
		reply, err := l.store.run(takeScript, slices.Repeat([]any{int64(0)}, len(calls)), args...)
		if err != nil {
			l.fail(calls, err)
			continue
		}
		l.assign(calls, sent, reply)
	}
}

// withoutSlot returns the calls of the next command: the last ones, for which no slot is left. It
// also returns the latest slot of this replica.
func (l *Limiter) withoutSlot() (calls []*waiter, last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	missing := l.waiters.Len() - len(l.slots)
	l.sending = missing > 0
	for e := l.waiters.Back(); len(calls) < missing; e = e.Prev() {
		calls = append(calls, e.Value.(*waiter))
	}
	slices.Reverse(calls)
	return calls[:min(len(calls), maxCalls)], l.last
}

// fail ends the calls of a command.
func (l *Limiter) fail(calls []*waiter, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range calls {
		l.end(w, err)
	}
}

// assign adds the slots of a command, and ends the calls whose slots are too late.
func (l *Limiter) assign(calls []*waiter, sent time.Time, waits []any) {
	received := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range calls {
		wait := microseconds(waits[i])
		maxWait := w.maxWait(sent)
		// The script took no slot if wait is longer than maxWait. It compared whole microseconds.
		tookNoSlot := wait > maxWait.Truncate(time.Microsecond)
		if tookNoSlot {
			l.end(w, budgetError(wait, maxWait))
			continue
		}
		// The call may have ended, such as with a slot of a cancelled call. Then Wait may read its fields
		// without mu, so they must not change.
		hasEnded := w.element == nil
		if !hasEnded {
			w.isBought = true
		}
		last := sent.Add(wait)
		if last.After(l.last) {
			l.last = last
		}
		l.insert(received.Add(max(wait, 0)))
	}
	l.serve()
}

// errAvailable ends the wait for Fallback when the store is available.
var errAvailable = errors.New("fleet: the store is available")

// waitWithoutStore waits for Fallback. If the store becomes available first, it returns errAvailable.
func (l *Limiter) waitWithoutStore(ctx context.Context) error {
	outage, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		for l.store.unavailable() != nil {
			err := sleepUntil(outage, time.Now().Add(probeInterval))
			if err != nil {
				return
			}
		}
		end(errAvailable)
	}()
	err := sleepUntil(outage, l.lastSlot()) // until then, other calls of this replica use their slots
	if err == nil {
		err = l.cfg.Fallback.Wait(outage)
	}
	switch {
	case err == nil:
		l.fallback.Add(1)
		return nil
	case errors.Is(context.Cause(outage), errAvailable):
		return errAvailable // Wait takes a slot, whatever the error of Fallback is
	}
	return err
}
