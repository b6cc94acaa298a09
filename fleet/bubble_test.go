package fleet_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/fleet"
)

// newStore returns a store in memory, which a synctest bubble may use. The tests with redis-server
// run on 32 bits, too.
func newStore(t *testing.T) *miniredis.Miniredis {
	t.Helper()
	if strconv.IntSize == 32 {
		t.Skip("miniredis rejects numbers above 2³¹, such as the milliseconds of 50 years")
	}
	store := miniredis.NewMiniRedis()
	t.Cleanup(store.Close)
	return store
}

// newSources returns the key sources of n replicas.
func newSources(t *testing.T, n int, rdb *redis.Client, c fleet.KeyOptions) []*fleet.KeySource {
	t.Helper()
	var sources []*fleet.KeySource
	for range n {
		sources = append(sources, newSource(t, rdb, c))
	}
	return sources
}

// connect returns a client of a store in memory, which a synctest bubble may use.
func connect(t *testing.T, store *miniredis.Miniredis) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr:                  "192.0.2.1:6379", // an IP address: go-redis looks up others, outside of virtual time
		Dialer:                func(context.Context, string, string) (net.Conn, error) { return store.Dial() },
		ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	return rdb
}

// Callers whose HTTP request ends have no deadline, but a context that is cancelled. If the slots
// of such calls stayed unused, a queue that is longer than their patience would never serve
// anybody.
func TestSlotsOfCancelledCallsAreUsedByOthers(t *testing.T) {
	const (
		replicas = 5
		patience = time.Second
		peak     = 5 * time.Second
	)
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		var limiters []*fleet.Limiter
		for range replicas {
			limiter := newLimiter(t, connect(t, store), fleet.LimiterOptions{Name: "acme", Rate: 100, Per: time.Second})
			limiters = append(limiters, limiter)
		}
		var calls sync.WaitGroup
		var served [30]atomic.Int64 // in each second
		start := time.Now()
		arrivals := 0
		for time.Since(start) < 25*time.Second {
			limiter := limiters[arrivals%replicas]
			arrivals++
			calls.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(patience, cancel).Stop()
				if limiter.Wait(ctx) == nil {
					served[time.Since(start)/time.Second].Add(1)
				}
				cancel()
			})
			if time.Since(start) < peak {
				time.Sleep(time.Second / 300)
			} else {
				time.Sleep(time.Second / 50)
			}
		}
		calls.Wait()
		total := int64(0)
		var text string
		for second := range served {
			n := served[second].Load()
			total += n
			text += fmt.Sprint(n, " ")
			assert.LessOrEqual(t, n, int64(101), "second %d", second)
			if second > 5 && second < 25 {
				assert.GreaterOrEqual(t, n, int64(45), "second %d, in which 50 calls arrive", second)
			}
		}
		t.Logf("%d of %d calls served: %s", total, arrivals, text)
		assert.GreaterOrEqual(t, total, int64(1400))
	})
}

func TestStatsCountSlotsBySource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter(t, connect(t, newStore(t)),
			fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Second})
		assert.Zero(t, limiter.Stats())
		require.NoError(t, limiter.Wait(t.Context()))
		assert.Equal(t, fleet.LimiterStats{FromStore: 1}, limiter.Stats())

		first, cancelFirst := context.WithCancel(t.Context())
		second, cancelSecond := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{first, second} {
			go func() { assert.ErrorIs(t, limiter.Wait(ctx), context.Canceled) }()
			synctest.Wait()
		}
		cancelFirst() // the second call moves up
		synctest.Wait()
		cancelSecond()
		synctest.Wait()
		require.NoError(t, limiter.Wait(t.Context()))
		assert.Equal(t, fleet.LimiterStats{FromStore: 1, Reused: 1}, limiter.Stats())
		time.Sleep(time.Second) // no call waits for the second slot
		assert.Equal(t, fleet.LimiterStats{FromStore: 1, Reused: 1, Discarded: 1}, limiter.Stats())
	})
}

func TestEachCallOfOneCallerCostsOneCommand(t *testing.T) {
	const calls = 1000
	synctest.Test(t, func(t *testing.T) {
		rdb := connect(t, newStore(t))
		scripts := countScripts(rdb)
		limiter := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 1000, Per: time.Second})
		for range calls {
			require.NoError(t, limiter.Wait(t.Context()))
		}
		assert.EqualValues(t, calls, scripts.total.Load())
	})
}

// A command blocks the store while it runs.
func TestCommandTakesSlotsOfAtMost10000Calls(t *testing.T) {
	const calls = 25_000
	synctest.Test(t, func(t *testing.T) {
		rdb := connect(t, newStore(t))
		var sizes []int // calls of each command
		rdb.AddHook(onScript(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			time.Sleep(time.Millisecond)
			const others = 4 + 3 // evalsha, digest, the number of keys, the key; interval, Burst and the last slot
			sizes = append(sizes, len(cmd.Args())-others)
			return next(ctx, cmd)
		}))
		limiter := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 10_000, Per: time.Second})
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() { assert.NoError(t, limiter.Wait(t.Context())) })
			if i == 0 {
				synctest.Wait() // so that the other calls wait for the first command
			}
		}
		all.Wait()
		assert.Equal(t, []int{1, 10_000, 10_000, 4_999}, sizes)
	})
}

func TestPingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := connect(t, newStore(t))
		rdb.AddHook(onScript(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			time.Sleep(200 * time.Millisecond)
			return next(ctx, cmd)
		}))
		limiter := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begin := time.Now()
		err := limiter.Ping(ctx)
		require.ErrorIs(t, err, fleet.ErrStoreUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 50*time.Millisecond, time.Since(begin))
		require.NoError(t, limiter.Wait(t.Context()), "the store is available for others")
		require.NoError(t, limiter.Ping(t.Context()))
	})
}

// The key of another replica may be announced just when a call with the key before it begins.
func TestAnnouncedKeyIsUsedWithoutAnotherFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetches := 0
		sources := newSources(t, 2, connect(t, newStore(t)), fleet.KeyOptions{
			Name: "acme",
			Fetch: func(context.Context) (string, time.Time, error) {
				fetches++
				return fmt.Sprint("key-", fetches), time.Time{}, nil
			},
		})
		const rounds = 500
		for n := range rounds {
			for _, source := range sources {
				require.Equal(t, fmt.Sprint("key-", n+1), accessKey(t, source, fmt.Sprint("key-", n)))
			}
			time.Sleep(time.Minute) // so that the rejection is not soon after the fetch
		}
		assert.Equal(t, rounds, fetches)
	})
}

// A replica retries to store its key until the store accepts it.
func TestClosedSourceDoesNotRetryToStoreItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		rdb := connect(t, store)
		scripts := countScripts(rdb)
		source := newSource(t, rdb, fleet.KeyOptions{
			Name: "acme",
			Fetch: func(context.Context) (string, time.Time, error) {
				store.SetError("MISCONF the store accepts no writes")
				return "secret-key", time.Time{}, nil
			},
		})
		require.Equal(t, "secret-key", accessKey(t, source, ""))
		begun := scripts.total.Load()
		time.Sleep(1100 * time.Millisecond) // between two retries
		require.Greater(t, scripts.total.Load(), begun, "retries before Close")
		require.NoError(t, source.Close())
		synctest.Wait()
		atClose := scripts.total.Load()
		time.Sleep(time.Minute)
		assert.Equal(t, atClose, scripts.total.Load())
	})
}

func TestCloseWithoutAClaimRunsNoScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := connect(t, newStore(t))
		scripts := countScripts(rdb)
		source := newSource(t, rdb, fleet.KeyOptions{Name: "acme", Fetch: fetchConstant})
		synctest.Wait() // until the subscription has begun, which polls the store
		begun := scripts.total.Load()
		require.NoError(t, source.Close())
		assert.Equal(t, begun, scripts.total.Load())
	})
}

// While a fetch hangs, its replica polls the store for the key of another one.
func TestHangingFetchPollsTheStoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := connect(t, newStore(t))
		scripts := countScripts(rdb)
		sources := newSources(t, 1, rdb, fleet.KeyOptions{
			Name:         "acme",
			FetchTimeout: time.Second,
			Fetch: func(context.Context) (string, time.Time, error) {
				time.Sleep(20 * time.Second) // ignores its context
				return "late-key", time.Time{}, nil
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := sources[0].AccessKey(ctx, "")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, scripts.total.Load(), int64(60), "scripts in 10 s")
		time.Sleep(time.Minute) // until the fetch has ended
		assert.Equal(t, "late-key", accessKey(t, sources[0], ""))
	})
}
