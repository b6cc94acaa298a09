package fleet

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	// Name is the name of the account. Replicas with the same Name share a budget and must have the
	// same Rate, Per and Burst.
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
// ends when no call waits for a command. The command takes slots for up to 10,000 calls. The calls
// of a replica get its slots about in their order: if a call is cancelled, the calls after it move
// up. The slots of a replica that dies, or of a lost reply, stay unused.
//
// If the store loses its data, the next slots of each replica begin no earlier than about 100 ms
// before the last slot that this replica took.
type Limiter struct {
	store *store
	cfg   LimiterConfig

	mu      sync.Mutex
	pending []*waiter // wait for a command that takes slots for them
	sending bool      // a goroutine sends such commands

	queued  []*waiter   // get the slots of this replica, in this order; some may be cancelled
	waiting int         // the number of queued calls that are not cancelled
	slots   []time.Time // of this replica that were neither used nor dropped, ascending
	timer   *time.Timer // fires when the first slot begins; nil: no call waits for it
	last    time.Time   // the latest slot of this replica
}

// A waiter is a call of Wait that waits for a slot. The mu of its limiter guards its fields until
// done is closed.
type waiter struct {
	latest    time.Time // its slot must not begin later, apart from the delay of the reply
	queued    bool
	cancelled bool

	done  chan struct{} // closed when begin or err is set
	begin time.Time
	err   error
}

func (w *waiter) end(err error) {
	w.err = err
	close(w.done)
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

// StoreErr is for a readiness check: it tests the store, and returns nil or an error that wraps
// [ErrStoreUnavailable]. It takes at most one second, or until ctx ends.
func (l *Limiter) StoreErr(ctx context.Context) error { return l.store.probeWithin(ctx) }

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
		begin, err := l.take(ctx)
		if errors.Is(err, ErrStoreUnavailable) && l.cfg.Fallback != nil {
			isAvailable, err := l.waitWithoutStore(ctx)
			if !isAvailable {
				return err
			}
			slots = 0
			continue
		}
		if err != nil {
			return err
		}
		slots++
		if slots == maxSlots || time.Since(begin) < slotLifetime {
			return nil
		}
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
	w := &waiter{latest: latest, done: make(chan struct{})}
	l.join(w)
	select {
	case <-w.done:
		return w.begin, w.err
	case <-ctx.Done():
		l.cancel(w)
		return time.Time{}, ctx.Err()
	}
}

// join queues a call if there is a slot for it, such as the slot of a cancelled call. Otherwise, a
// command takes one.
func (l *Limiter) join(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serve() // drops the slots that have begun while no call waited
	if l.waiting < len(l.slots) {
		l.queue(w)
		l.serve()
		return
	}
	l.pending = append(l.pending, w)
	if !l.sending {
		l.sending = true
		go l.send()
	}
}

// queue lets a call wait for the first free slot, or ends the call if that slot is too late. It is
// called with mu held.
func (l *Limiter) queue(w *waiter) {
	slot := l.slots[l.waiting]
	if slot.After(w.latest) {
		w.end(budgetError(time.Until(slot), time.Until(w.latest)))
		return
	}
	l.enqueue(w)
}

// enqueue is called with mu held.
func (l *Limiter) enqueue(w *waiter) {
	w.queued = true
	l.queued = append(l.queued, w)
	l.waiting++
}

func budgetError(wait, maxWait time.Duration) error {
	return fmt.Errorf("%w: the next free slot is in %v, but the deadline leaves %v for the wait",
		ErrBudgetExceeded, wait.Round(time.Millisecond), max(maxWait, 0).Round(time.Millisecond))
}

// cancel removes a call, so that the calls after it move up.
func (l *Limiter) cancel(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.cancelled = true
	if !w.begin.IsZero() { // its slot has begun
		l.insert(w.begin)
	} else if w.queued {
		l.waiting--
	}
	if len(l.queued) > 2*l.waiting+100 { // fewer cancelled calls stay until nextQueued skips them
		l.queued = slices.DeleteFunc(l.queued, func(w *waiter) bool { return w.cancelled })
	}
	l.promote()
	l.serve()
}

// promote queues pending calls while there are slots for them. It is called with mu held.
func (l *Limiter) promote() {
	for len(l.pending) > 0 && l.waiting < len(l.slots) {
		w := l.pending[0]
		l.pending = l.pending[1:]
		if !w.cancelled {
			l.queue(w)
		}
	}
}

// insert adds a slot. It is called with mu held.
func (l *Limiter) insert(slot time.Time) {
	i, _ := slices.BinarySearchFunc(l.slots, slot, time.Time.Compare)
	l.slots = slices.Insert(l.slots, i, slot)
}

// serve gives the slots that have begun to the first calls. A slot that no call waits for is
// dropped: used later, it would exceed the budget. serve is called with mu held.
func (l *Limiter) serve() {
	for len(l.slots) > 0 && time.Until(l.slots[0]) <= 0 {
		if w := l.nextQueued(); w != nil {
			w.begin = l.slots[0]
			w.end(nil)
		}
		l.slots = l.slots[1:]
	}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.waiting > 0 {
		l.timer = time.AfterFunc(time.Until(l.slots[0]), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.serve()
		})
	}
}

// nextQueued removes and returns the first call that is not cancelled, or nil if there is none. It
// is called with mu held.
func (l *Limiter) nextQueued() *waiter {
	for len(l.queued) > 0 {
		w := l.queued[0]
		l.queued = l.queued[1:]
		if !w.cancelled {
			l.waiting--
			return w
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
		args := []any{
			float64(l.cfg.Per) / float64(time.Microsecond),
			l.cfg.Rate,
			l.cfg.Burst,
			last.Sub(sent).Microseconds(),
		}
		for _, w := range calls {
			args = append(args, w.maxWait(sent).Microseconds())
		}
		numbers := slices.Repeat([]any{int64(0)}, len(calls))
		waits, err := l.store.run(takeScript, numbers, args...)
		l.assign(calls, sent, waits, err)
	}
}

// nextPending removes and returns the calls of the next command. It also returns the latest slot of
// this replica.
func (l *Limiter) nextPending() (calls []*waiter, last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = slices.DeleteFunc(l.pending, func(w *waiter) bool { return w.cancelled })
	n := min(len(l.pending), maxCalls)
	calls = slices.Clone(l.pending[:n])
	l.pending = slices.Delete(l.pending, 0, n)
	l.sending = n > 0
	return calls, l.last
}

// assign adds the slots of a command, and queues or ends the calls that wait.
func (l *Limiter) assign(calls []*waiter, sent time.Time, waits []any, err error) {
	received := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range calls {
		if err != nil {
			w.end(err)
			continue
		}
		wait := time.Duration(waits[i].(int64)) * time.Microsecond //nolint:durationcheck // waits are numbers
		maxWait := w.maxWait(sent)
		if wait.Microseconds() > maxWait.Microseconds() {
			w.end(budgetError(wait, maxWait))
			continue
		}
		last := sent.Add(wait)
		if last.After(l.last) {
			l.last = last
		}
		l.insert(received.Add(max(wait, 0)))
		if !w.cancelled {
			l.enqueue(w)
		}
	}
	l.promote()
	l.serve()
}

// waitWithoutStore waits for Fallback. If the store becomes available first, it returns true.
func (l *Limiter) waitWithoutStore(ctx context.Context) (isAvailable bool, err error) {
	outage, end := context.WithCancel(ctx)
	defer end()
	go func() {
		defer end()
		for l.store.unavailable() != nil && outage.Err() == nil {
			_ = sleepUntil(outage, time.Now().Add(probeInterval))
		}
	}()
	err = sleepUntil(outage, l.lastSlot()) // until then, other calls of this replica use their slots
	if err == nil {
		err = l.cfg.Fallback.Wait(outage)
	}
	isAvailable = err != nil && ctx.Err() == nil && outage.Err() != nil
	return isAvailable, err
}
