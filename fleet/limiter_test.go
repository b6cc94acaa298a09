package fleet_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"example.com/msgpush/fleet"
)

func TestLimiterDoesNotWaitBeyondHalfOfTheDeadline(t *testing.T) {
	limiter := newLimiter(t, connect(t, newStore(t)), fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Second})
	require.NoError(t, limiter.Wait(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	for range 3 { // no slot is taken
		err := limiter.Wait(ctx)
		require.ErrorIs(t, err, fleet.ErrBudgetExceeded)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		assert.Regexp(t, `^fleet: request budget exceeded: `+
			`the next free slot is in .*, but the deadline leaves .* for the wait$`, err)
	}
	long, cancelLong := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancelLong()
	begin := time.Now()
	require.NoError(t, limiter.Wait(long))
	assert.Less(t, time.Since(begin), 1900*time.Millisecond, "each slot taken before would cost 1 s")
}

// A gate delays scripts until it is opened.
type gate struct {
	*scriptCounts
	entered chan struct{}
	opened  chan struct{}
}

// newGate returns a limiter whose script is loaded and whose further scripts wait at the gate.
func newGate(t *testing.T, c fleet.LimiterOptions) (*fleet.Limiter, *gate, *redis.Client) {
	t.Helper()
	rdb := connect(t, newStore(t))
	limiter := newLimiter(t, rdb, c)
	require.NoError(t, limiter.Wait(t.Context()))
	g := &gate{countScripts(rdb), make(chan struct{}, 100), make(chan struct{})}
	rdb.AddHook(onScript(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		g.entered <- struct{}{}
		<-g.opened
		return next(ctx, cmd)
	}))
	return limiter, g, rdb
}

func TestCancelledCallDoesNotAffectTheOthersOfItsCommand(t *testing.T) {
	limiter, g, _ := newGate(t, fleet.LimiterOptions{Name: "acme", Rate: 1000, Per: time.Second})
	first, cancel := context.WithCancel(t.Context())
	results := make(chan error, 10)
	go func() { results <- limiter.Wait(first) }()
	<-g.entered // the command of the first call is in flight
	second, cancelSecond := context.WithCancel(t.Context())
	go func() { results <- limiter.Wait(second) }()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.NoError(t, limiter.Wait(t.Context())) })
	}
	cancel()
	cancelSecond()
	for range 2 {
		require.ErrorIs(t, <-results, context.Canceled)
	}
	close(g.opened)
	wg.Wait()
	require.NoError(t, limiter.Ping(t.Context()))
}

// The deadline of one call must not affect the slots of others that share a command.
func TestCallThatWouldMissItsDeadlineTakesNoSlotOfItsCommand(t *testing.T) {
	limiter, g, rdb := newGate(t, fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Minute})
	next := func() (free float64) {
		_, err := fmt.Sscan(rdb.Get(context.Background(), rateKey).Val(), &free)
		require.NoError(t, err)
		return free / 60e6 // in minutes
	}
	before := next()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { assert.ErrorIs(t, limiter.Wait(ctx), context.Canceled) })
	}
	short, cancelShort := context.WithTimeout(t.Context(), time.Minute)
	defer cancelShort()
	for range 3 {
		wg.Go(func() { assert.ErrorIs(t, limiter.Wait(short), fleet.ErrBudgetExceeded) })
	}
	<-g.entered
	close(g.opened)
	require.Eventually(t, func() bool { return next()-before > 2.9 }, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return g.running.Load() == 0 }, 10*time.Second, time.Millisecond)
	assert.Less(t, limiter.Queue(), 4*time.Minute)
	cancel()
	wg.Wait()
	assert.InDelta(t, 3, next()-before, 0.01, "slots taken")
}

func TestCancelledCallTakesNoSlot(t *testing.T) {
	limiter := newLimiter(t, connect(t, newStore(t)), fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		require.ErrorIs(t, limiter.Wait(ctx), context.Canceled)
	}
	require.NoError(t, limiter.Wait(t.Context()))
}

func TestBurstAfterIdleTime(t *testing.T) {
	c := fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Hour, Burst: 3}
	limiter := newLimiter(t, connect(t, newStore(t)), c)
	for range 3 {
		require.NoError(t, limiter.Wait(t.Context()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorIs(t, limiter.Wait(ctx), fleet.ErrBudgetExceeded)
}

// A deployment that changes the rate runs replicas with both. The one with another rate calls
// first.
func TestReplicaWithAnotherRateMovesTheQueueOnByItsOwnInterval(t *testing.T) {
	const replicas, calls = 50, 20
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		other := newLimiter(t, connect(t, store), fleet.LimiterOptions{Name: "acme", Rate: 12_000, Per: time.Minute})
		require.NoError(t, other.Wait(t.Context()))
		start := time.Now()
		var all sync.WaitGroup
		use := func(limiter *fleet.Limiter) {
			for range calls {
				assert.NoError(t, limiter.Wait(t.Context()))
			}
		}
		all.Go(func() { use(other) })
		for range replicas - 1 {
			limiter := newLimiter(t, connect(t, store), fleet.LimiterOptions{Name: "acme", Rate: 100, Per: time.Second})
			all.Go(func() { use(limiter) })
		}
		all.Wait()
		const want = calls*5*time.Millisecond + (replicas-1)*calls*10*time.Millisecond
		assert.InDelta(t, want, time.Since(start), float64(20*time.Millisecond))
	})
}

func TestReplicaWithASmallerBurstKeepsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := connect(t, newStore(t))
		large := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 10, Per: time.Second, Burst: 5})
		small := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 10, Per: time.Second})
		start := time.Now()
		require.NoError(t, small.Wait(t.Context()))
		require.NoError(t, small.Wait(t.Context()))
		assert.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond)
		time.Sleep(time.Second)
		start = time.Now()
		for range 5 {
			require.NoError(t, large.Wait(t.Context()))
		}
		assert.Zero(t, time.Since(start).Truncate(time.Millisecond))
	})
}

// The slots of a replica with a large Burst are forgotten only when its burst is free again.
func TestReplicaWithASmallerBurstKeepsTheSlotsOfTheOthers(t *testing.T) {
	const burst = 10
	store := newStore(t)
	rdb := connect(t, store)
	now := time.Now()
	store.SetTime(now)
	c := fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Minute, Burst: burst}
	large := newLimiter(t, rdb, c)
	for range burst - 1 {
		require.NoError(t, large.Wait(t.Context()))
	}
	small := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 1000, Per: time.Second})
	require.NoError(t, small.Wait(t.Context()))
	store.SetTime(now.Add(10 * time.Second))
	store.FastForward(10 * time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	another := newLimiter(t, rdb, c) // knows none of the slots
	require.NoError(t, another.Wait(ctx), "the last one of the burst")
	require.ErrorIs(t, another.Wait(ctx), fleet.ErrBudgetExceeded)
}

// An overload makes calls wait. A call that has waited until its deadline is useless.
func TestWaitForTheFallbackLeavesHalfOfTheTimeForTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		limiter := newLimiter(t, connect(t, store), fleet.LimiterOptions{
			Name:     "acme",
			Rate:     10,
			Per:      time.Second,
			Fallback: rate.NewLimiter(5, 1),
		})
		store.SetError("down")
		var wg sync.WaitGroup
		var passed atomic.Int64
		for range 3000 { // twice as many as the fallback lets pass, for five minutes
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if limiter.Wait(ctx) != nil {
					return
				}
				deadline, _ := ctx.Deadline()
				assert.GreaterOrEqual(t, time.Until(deadline), 30*time.Second)
				passed.Add(1)
			})
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		assert.Greater(t, passed.Load(), int64(1450))
	})
}

func TestCallDoesNotWaitForTheFallbackBehindALateSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		limiter := newLimiter(t, connect(t, store), fleet.LimiterOptions{
			Name:     "acme",
			Rate:     1,
			Per:      time.Second,
			Fallback: rate.NewLimiter(5, 1),
		})
		var wg sync.WaitGroup
		for range 25 {
			wg.Go(func() { assert.NoError(t, limiter.Wait(t.Context())) })
		}
		time.Sleep(time.Second)
		store.SetError("down")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begin := time.Now()
		require.ErrorIs(t, limiter.Wait(ctx), fleet.ErrBudgetExceeded)
		assert.Less(t, time.Since(begin), time.Second)
		wg.Wait()
	})
}

// The first command notices the outage after a second, which is more than half of the time.
func TestCallWithoutTimeForTheFallbackHasTheErrorOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := connect(t, newStore(t))
		rdb.AddHook(onScript(func(ctx context.Context, _ redis.Cmder, _ redis.ProcessHook) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		limiter := newLimiter(t, rdb, fleet.LimiterOptions{
			Name:     "acme",
			Rate:     100,
			Per:      time.Second,
			Fallback: rate.NewLimiter(5, 1),
		})
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, limiter.Wait(ctx), fleet.ErrStoreUnavailable)
		assert.NoError(t, ctx.Err())
	})
}

type fallback struct{ calls int }

func (f *fallback) Wait(context.Context) error {
	f.calls++
	return nil
}

func TestFallbackReplacesTheStore(t *testing.T) {
	store := newStore(t)
	require.NoError(t, store.Start())
	rdb := redis.NewClient(&redis.Options{Addr: store.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	f := &fallback{}
	limiter := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 1000, Per: time.Second, Fallback: f})
	require.NoError(t, limiter.Wait(t.Context()))
	require.Zero(t, f.calls)
	store.Close()
	require.NoError(t, limiter.Wait(t.Context()))
	require.Equal(t, 1, f.calls)
	assert.Equal(t, fleet.LimiterStats{FromStore: 1, Fallback: 1}, limiter.Stats())
}

// blockingFallback lets no call pass.
type blockingFallback struct{}

func (blockingFallback) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// While the calls wait for Fallback, nothing but the probes uses the store.
func TestCallsThatWaitForFallbackTakeSlotsWhenTheStoreIsAvailable(t *testing.T) {
	const calls, outage = 100, 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		rdb := connect(t, store)
		limiter := newLimiter(t, rdb, fleet.LimiterOptions{
			Name:     "acme",
			Rate:     1000,
			Per:      time.Second,
			Fallback: blockingFallback{},
		})
		require.NoError(t, limiter.Wait(t.Context()))
		store.SetError("MISCONF the store accepts no writes")
		scripts := countScripts(rdb)
		before := runtime.NumGoroutine()
		var all sync.WaitGroup
		for range calls {
			all.Go(func() { assert.NoError(t, limiter.Wait(t.Context())) })
		}
		time.Sleep(outage)
		assert.LessOrEqual(t, runtime.NumGoroutine()-before, calls+5, "a call that waits needs no goroutine")
		assert.InDelta(t, int64(outage/(100*time.Millisecond)), scripts.total.Load(), 10, "probes")
		store.SetError("")
		begin := time.Now()
		all.Wait()
		assert.LessOrEqual(t, time.Since(begin), 100*time.Millisecond+calls*time.Millisecond)
		assert.Equal(t, fleet.LimiterStats{FromStore: 1 + calls}, limiter.Stats())
	})
}
