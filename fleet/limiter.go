package fleet

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed take.lua
var takeLua string

var takeScript = redis.NewScript(takeLua)

// ErrBudgetExceeded is wrapped by the error of [Limiter.Wait] if the next free slot is too late for the
// deadline. The call does not take this slot. The error does not match [context.DeadlineExceeded], since the
// deadline has not passed.
var ErrBudgetExceeded = errors.New("fleet: request budget exceeded")

// A LimiterOptions configures a [Limiter]. Name, Rate and Per are required.
type LimiterOptions struct {
	// Name is the name of the account. Replicas with the same Name take their slots from one queue. A
	// replica moves the queue on by its own Per / Rate: set the same Rate, Per and Burst in all of them,
	// except while a deployment changes the rate.
	Name string
	// Rate is the number of requests in each Per. Rate / Per must be at most one request per microsecond.
	// The time between two requests is rounded up to half a microsecond.
	Rate int
	// Per is the period of Rate. If Burst is 1, slots are at least Per / Rate - 1 µs apart.
	Per time.Duration
	// Burst is the number of requests that may be sent without spacing after an idle time of Burst × Per /
	// Rate. 0 means 1.
	Burst int
	// Fallback is used while the store is unavailable. Each replica has its own, so one of 20 replicas
	// needs a 20th of the budget, such as rate.NewLimiter(5, 1) for 100 requests a second. If Fallback is
	// nil, Wait returns an error that wraps [ErrStoreUnavailable] instead.
	Fallback interface{ Wait(context.Context) error }
}

// A Limiter limits the requests of all replicas to one budget: each request takes the next free slot of one
// queue. In any window of d, at most Burst + Rate × (d + 1 µs) / Per slots begin, on the clock of the store.
// Wait returns at most 250 ms plus the network delay after the slot, or later if the call has missed four
// slots in a row. A Limiter is safe for concurrent use.
//
// In addition to probes, a Limiter sends one command to the store at a time, in a goroutine that ends when
// every waiting call has a slot. The command takes slots for up to 10,000 calls. The calls of a replica get
// its slots in the order of the calls: if a call is cancelled, the calls after it move up. The slots of a
// replica that dies, or of a lost reply, stay unused.
//
// If the store loses its data, the next slots of each replica begin no earlier than about 100 ms before the
// last slot that this replica took.
type Limiter struct {
	store *store
	cfg   LimiterOptions
	queue *queue

	fromStore, reused, fallback atomic.Int64 // see LimiterStats
}

const (
	// slotLifetime is how late a slot may be used. Of maxSlots slots in a row, a call uses the last one
	// however late it is.
	slotLifetime = 250 * time.Millisecond
	maxSlots     = 5
)

// NewLimiter returns a limiter for [msgpush.WithRateLimiter]. NewLimiter sends nothing to the store, and the
// limiter needs no Close.
func NewLimiter(rdb redis.UniversalClient, cfg LimiterOptions) (*Limiter, error) {
	cfg.Burst = cmp.Or(cfg.Burst, 1)
	if err := cfg.check(); err != nil {
		return nil, err
	}
	test := cfg.takeArguments(0) // for no call
	store, err := newStore(rdb, "rate", cfg.Name, takeScript, test...)
	if err != nil {
		return nil, err
	}
	return &Limiter{store: store, cfg: cfg, queue: newQueue()}, nil
}

func (c LimiterOptions) check() error {
	switch {
	case c.Rate <= 0:
		return fmt.Errorf("fleet: Rate is %d; set it to the number of requests in Per, at least 1", c.Rate)
	case c.Per <= 0:
		return fmt.Errorf("fleet: Per is %v; set it to a positive time, such as time.Second", c.Per)
	case c.Burst <= 0:
		return fmt.Errorf("fleet: Burst is %d; set it to at least 1, or to 0 for 1", c.Burst)
	}
	isTooShort := c.Per.Microseconds() < int64(c.Rate)
	isTooLong := c.interval()*float64(c.Burst) > float64(noExpiry)
	if isTooShort || isTooLong {
		return fmt.Errorf("fleet: Rate is %d, Per is %v and Burst is %d; set at most one request per microsecond, "+
			"and a Burst × Per / Rate of at most 50 years", c.Rate, c.Per, c.Burst)
	}
	return nil
}

// interval returns the time between two slots, in nanoseconds. It is rounded up to half a microsecond: the
// store adds it to a time in microseconds since 1970, and a float64 of that has no smaller fraction.
func (c LimiterOptions) interval() float64 {
	const step = 500
	return math.Ceil(float64(c.Per)/float64(c.Rate)/step) * step
}

// Ping tests the store, and returns nil or an error that wraps [ErrStoreUnavailable]. It takes at most one
// second, or until ctx ends. With a Fallback, requests succeed while the store fails: then, a readiness check
// should not depend on Ping.
func (l *Limiter) Ping(ctx context.Context) error { return l.store.probeWithin(ctx) }

// LimiterStats are counters of one [Limiter]. They begin at 0 when it is created. FromStore, Reused and
// Fallback add up to the calls of Wait that returned nil.
type LimiterStats struct {
	// FromStore is the number of calls for which a command to the store took a slot.
	FromStore int64
	// Reused is the number of calls that needed no command, because a cancelled call had left its slot to
	// this replica.
	Reused int64
	// Fallback is the number of calls that Fallback let pass.
	Fallback int64
	// Discarded is the number of slots of this replica that no call used: all calls were cancelled, or the
	// call missed its slot by 250 ms. Many of them show an overloaded or suspended process.
	Discarded int64
}

// Stats returns the counters of this Limiter.
func (l *Limiter) Stats() LimiterStats {
	l.queue.advance() // discards the slots that have begun while no call waited
	return LimiterStats{
		FromStore: l.fromStore.Load(),
		Reused:    l.reused.Load(),
		Fallback:  l.fallback.Load(),
		Discarded: l.queue.discarded.Load(),
	}
}

// Wait blocks until the request may be sent. If ctx has a deadline, the slot must begin in the first half of
// the time left, plus the delay of the store, since the request needs time too. For a later slot, Wait does
// not wait, and returns an error that wraps [ErrBudgetExceeded] or, with a Fallback, its error: the context
// of its Wait ends at that time.
//
// A slot that is missed by 250 ms, such as by a suspended process, is discarded, and Wait takes another one.
// It uses the fifth in a row however late it is.
//
// If Wait cannot take a slot because the store is unavailable, it returns an error that wraps
// [ErrStoreUnavailable]. With a Fallback, Wait instead waits until the latest slot of this replica, and then
// for Fallback. If the store becomes available first, Wait takes a slot.
func (l *Limiter) Wait(ctx context.Context) error {
	latest := latestSlot(ctx)
	for {
		err := l.waitForSlot(ctx, latest)
		isEarly := time.Now().Before(latest) // otherwise, Fallback has no time left
		usesFallback := l.cfg.Fallback != nil && isEarly && errors.Is(err, ErrStoreUnavailable)
		if !usesFallback {
			return err
		}
		err = l.waitWithoutStore(ctx, latest)
		if !errors.Is(err, errAvailable) {
			return err
		}
	}
}

// latestSlot returns the time after which a call does not wait for its slot.
func latestSlot(ctx context.Context) time.Time {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Now().Add(noExpiry)
	}
	return time.Now().Add(time.Until(deadline) / 2)
}

// waitForSlot takes slots until the call is in time for one.
func (l *Limiter) waitForSlot(ctx context.Context, latest time.Time) error {
	for n := 1; ; n++ {
		w, err := l.take(ctx, latest)
		if err != nil {
			return err
		}
		isMissed := time.Since(w.begin) >= slotLifetime
		if isMissed && n < maxSlots {
			l.queue.discarded.Add(1)
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

// take waits until a slot of the call begins.
func (l *Limiter) take(ctx context.Context, latest time.Time) (*waiter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &waiter{latest: latest, done: make(chan struct{})}
	mustSend := l.queue.join(w)
	if mustSend {
		go l.send()
	}
	select {
	case <-w.done:
		return w, w.err
	case <-ctx.Done():
		l.queue.cancel(w)
		return nil, ctx.Err()
	}
}

// takeArguments returns the arguments of takeScript that do not belong to a call. last is the time until the
// latest slot of this replica.
func (c LimiterOptions) takeArguments(last time.Duration) []any {
	return []any{c.interval() / float64(time.Microsecond), c.Burst, last.Microseconds()}
}

// send takes slots for the calls that have none, one command after another.
func (l *Limiter) send() {
	for {
		calls, last := l.queue.nextCommand()
		if len(calls) == 0 {
			return
		}
		sent := time.Now()
		args := l.cfg.takeArguments(last.Sub(sent))
		waits := make([]int64, len(calls)) // in microseconds
		dest := make([]any, len(calls))
		for i, w := range calls {
			args = append(args, w.maxWait(sent).Microseconds())
			dest[i] = &waits[i]
		}
		err := l.store.run(takeScript, dest, args...)
		if err != nil {
			l.queue.fail(err)
			continue
		}
		l.queue.assign(calls, sent, waits)
	}
}

// waitWithoutStore waits for Fallback, or returns errAvailable if the store becomes available first.
func (l *Limiter) waitWithoutStore(ctx context.Context, latest time.Time) error {
	last := l.queue.lastSlot() // until then, other calls of this replica use their slots
	if last.After(latest) {
		return budgetError(time.Until(last), time.Until(latest))
	}
	ctx, cancel := context.WithDeadline(ctx, latest)
	defer cancel()
	outage, end := l.store.duringOutage(ctx)
	defer end()
	err := sleepUntil(outage, last)
	if err == nil {
		err = l.cfg.Fallback.Wait(outage)
	}
	if err == nil {
		l.fallback.Add(1)
		return nil
	}
	// When the outage ends, the call takes a slot, even if Fallback returned another error.
	if errors.Is(context.Cause(outage), errAvailable) {
		return errAvailable
	}
	return err
}

// Queue returns the time until the latest slot that this replica has taken. While this replica sends
// requests, that is about the length of the queue of all replicas.
func (l *Limiter) Queue() time.Duration { return max(time.Until(l.queue.lastSlot()), 0) }
