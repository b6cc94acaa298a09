package keycache_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/internal/keycache"
	"example.com/msgpush/internal/tests/fixtures"
)

const timeout = 30 * time.Second

var errNoKey = errors.New("the vault is sealed")

// newCache returns a cache with the defaults of msgpush.CachedAccessKey.
func newCache(
	fetch func(context.Context) (string, time.Time, error), config keycache.Config,
) *keycache.Cache {
	config.Fetch, config.MinInterval, config.Timeout = fetch, time.Second, timeout
	return keycache.New(config)
}

// assertKeyOf checks which key a source returns.
func assertKeyOf(t *testing.T, source *keycache.Cache, rejected, want string) {
	t.Helper()
	key, err := source.AccessKey(t.Context(), rejected)
	assert.NoError(t, err)
	assert.Equal(t, want, key)
}

// assertKey checks which key a source returns and how long it takes.
func assertKey(t *testing.T, source *keycache.Cache, rejected, want string, after time.Duration) {
	t.Helper()
	start := time.Now()
	key, err := source.AccessKey(t.Context(), rejected)
	assert.NoError(t, err)
	assert.Equal(t, want, key)
	assert.Equal(t, after, time.Since(start))
}

func TestConcurrentCallersShareOneFetch(t *testing.T) {
	for name, rejected := range map[string]string{"first key": "", "rejected key": "key-1"} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			v := &fixtures.Vault{Delay: time.Second}
			source := newCache(v.Fetch, keycache.Config{Early: time.Minute})
			fetches := int32(1)
			if rejected != "" {
				assertKey(t, source, "", "key-1", time.Second)
				fetches = 2
			}
			fixtures.Concurrently(100, func() { assertKey(t, source, rejected, fmt.Sprint("key-", fetches), time.Second) })
			assert.Equal(t, fetches, v.Fetches.Load())
			assertKey(t, source, rejected, fmt.Sprint("key-", fetches), 0)
			time.Sleep(1000 * time.Hour)
			assertKey(t, source, "", fmt.Sprint("key-", fetches), 0)
		})
	}
}

func TestRenewsCachedKeyInBackgroundBeforeExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Delay: time.Second, Life: time.Minute}
		source := newCache(v.Fetch, keycache.Config{Early: 10 * time.Second})
		assertKey(t, source, "", "key-1", time.Second)
		time.Sleep(49 * time.Second)
		assertKey(t, source, "", "key-1", 0)
		assert.Equal(t, int32(1), v.Fetches.Load())
		time.Sleep(time.Second)
		for range 10 {
			assertKey(t, source, "", "key-1", 0)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, int32(2), v.Fetches.Load())
		assertKey(t, source, "", "key-2", 0)
	})
}

func TestDoesNotReturnExpiredKey(t *testing.T) {
	for _, early := range []time.Duration{0, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			source := newCache((&fixtures.Vault{Delay: time.Second, Life: time.Minute}).Fetch, keycache.Config{Early: early})
			assertKey(t, source, "", "key-1", time.Second)
			time.Sleep(time.Minute - 1)
			assertKey(t, source, "", "key-1", 0)
			time.Sleep(time.Nanosecond)
			assertKey(t, source, "", "key-2", time.Second)
		})
	}
}

// A gateway may reject a valid key once. The rejected call gets the same key, so it returns its response.
func TestRejectedKeyStaysInUseIfFetchReturnsItAgainOrFails(t *testing.T) {
	for name, failure := range map[string]error{"the same key": nil, "failed fetch": errNoKey} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			v := &fixtures.Vault{Keys: []string{"key-1"}, Delay: time.Second}
			source := newCache(v.Fetch, keycache.Config{})
			assertKey(t, source, "", "key-1", time.Second)
			if failure != nil {
				v.Err.Store(&failure)
			}
			go assertKey(t, source, "key-1", "key-1", time.Second)
			synctest.Wait()
			assertKey(t, source, "", "key-1", time.Second) // waits for the fetch
			for range 3600 {
				time.Sleep(time.Second)
				assertKey(t, source, "", "key-1", 0)
			}
			assert.EqualValues(t, 2, v.Fetches.Load(), "none for the calls of an hour")
		})
	}
}

func TestSetMakesARejectedKeyValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Keys: []string{"key-1"}}
		source := newCache(v.Fetch, keycache.Config{})
		assertKeyOf(t, source, "", "key-1")
		assertKeyOf(t, source, "key-1", "key-1")
		source.Set("key-1", time.Time{})
		assertKeyOf(t, source, "", "key-1")
		assert.EqualValues(t, 2, v.Fetches.Load())
	})
}

func TestFetchesAfterExpiryAreNotLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Life: 100 * time.Millisecond}
		source := newCache(v.Fetch, keycache.Config{})
		for range 5 {
			_, err := source.AccessKey(t.Context(), "")
			require.NoError(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, int32(5), v.Fetches.Load())
	})
}

func TestRejectionAfterFirstFetchAndAfterExpiryFetchesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newCache((&fixtures.Vault{Life: 10 * time.Second}).Fetch, keycache.Config{})
		assertKeyOf(t, source, "", "key-1")
		assertKeyOf(t, source, "key-1", "key-2")
		assertKeyOf(t, source, "key-2", "key-2") // too early for another fetch
		assertKeyOf(t, source, "", "key-2")
		assertKeyOf(t, source, "key-1", "key-2")
		time.Sleep(10 * time.Second)
		assertKeyOf(t, source, "", "key-3")
		assertKeyOf(t, source, "key-3", "key-4")
	})
}

func TestFetchesAgainIfEarlierFetchReturnsRejectedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Keys: []string{"key-1", "key-1", "key-2"}, Delay: time.Second, Life: time.Minute}
		source := newCache(v.Fetch, keycache.Config{Early: 59 * time.Second})
		assertKey(t, source, "", "key-1", time.Second)
		time.Sleep(2 * time.Second)
		assertKey(t, source, "", "key-1", 0) // starts the renewal
		synctest.Wait()
		assertKey(t, source, "key-1", "key-2", 2*time.Second)
	})
}

// A fetch may end after its key was set, a newer key was set, and the newer key was rejected.
func TestFetchesAgainIfEarlierFetchReturnsKeyOlderThanRejectedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newCache((&fixtures.Vault{Delay: 2 * time.Second}).Fetch, keycache.Config{})
		time.AfterFunc(time.Second, func() { source.Set("key-1", time.Time{}) })
		assertKey(t, source, "", "key-1", time.Second) // the fetch of key-1 goes on
		source.Set("newer", time.Time{})
		assertKey(t, source, "key-1", "newer", 0)
		assertKey(t, source, "newer", "key-2", 2*time.Second)
		assertKey(t, source, "", "key-2", 0)
	})
}

func TestFailedFetchFailsAllWaitingCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Delay: time.Second}
		v.Err.Store(&errNoKey)
		source := newCache(v.Fetch, keycache.Config{})
		var wg sync.WaitGroup
		for _, rejected := range []string{"rejected-key", "", "", "another-key"} {
			wg.Go(func() {
				_, err := source.AccessKey(t.Context(), rejected)
				assert.ErrorIs(t, err, errNoKey)
			})
			synctest.Wait() // so that the first caller starts the fetch
		}
		wg.Wait()
		assert.Equal(t, int32(1), v.Fetches.Load())
		v.Err.Store(nil)
		assertKey(t, source, "", "key-2", time.Second)
	})
}

// A service that makes many calls must not call a key service that is down as often.
func TestFetchesThatFailBeginAtMostTenTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{}
		v.Err.Store(&errNoKey)
		source := newCache(v.Fetch, keycache.Config{})
		begin := time.Now()
		for range 101 {
			_, err := source.AccessKey(t.Context(), "")
			assert.ErrorIs(t, err, errNoKey)
		}
		assert.Equal(t, 10*time.Second, time.Since(begin))
		v.Err.Store(nil)
		assertKey(t, source, "", "key-102", 100*time.Millisecond)
	})
}

func TestFetchAfterOneThatSucceededBeginsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Life: 50 * time.Millisecond}
		v.Err.Store(&errNoKey)
		source := newCache(v.Fetch, keycache.Config{})
		_, err := source.AccessKey(t.Context(), "")
		require.ErrorIs(t, err, errNoKey)
		v.Err.Store(nil)
		assertKey(t, source, "", "key-2", 100*time.Millisecond)
		time.Sleep(50 * time.Millisecond) // the key expires
		assertKey(t, source, "", "key-3", 0)
	})
}

// The key service returns the same key until shortly before its expiry.
func TestKeyThatIsAlwaysAboutToExpireIsRenewedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Life: 30 * time.Second}
		source := newCache(v.Fetch, keycache.Config{Early: time.Minute})
		for range 100 {
			_, err := source.AccessKey(t.Context(), "")
			require.NoError(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		assert.InDelta(t, 11, v.Fetches.Load(), 1)
	})
}

func TestCallerContextEndsOnlyItsOwnWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Delay: 10 * time.Second}
		source := newCache(v.Fetch, keycache.Config{})
		first, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := source.AccessKey(first, "")
			assert.Equal(t, context.DeadlineExceeded, err, "the text does not blame the source")
		})
		synctest.Wait()
		wg.Go(func() { assertKey(t, source, "", "key-1", 10*time.Second) })
		wg.Wait()
		assert.Equal(t, int32(1), v.Fetches.Load())
	})
}

func TestContextOfFetchEndsWithFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctx context.Context
		source := newCache(func(c context.Context) (string, time.Time, error) {
			ctx = c
			return fixtures.TestKey, time.Time{}, nil
		}, keycache.Config{})
		assertKey(t, source, "", fixtures.TestKey, 0)
		synctest.Wait()
		assert.ErrorIs(t, ctx.Err(), context.Canceled)
	})
}

func TestFetchThatCallsGoexitFails(t *testing.T) {
	source := newCache(func(context.Context) (string, time.Time, error) {
		runtime.Goexit() // as t.FailNow does
		return "", time.Time{}, nil
	}, keycache.Config{})
	for range 2 {
		_, err := source.AccessKey(t.Context(), "")
		assert.ErrorContains(t, err, "did not return")
	}
}

func TestFetchOfAnExpiredKeyFails(t *testing.T) {
	cache := newCache(func(context.Context) (string, time.Time, error) {
		return "key-1", time.Now().Add(-time.Hour), nil
	}, keycache.Config{})
	_, err := cache.AccessKey(t.Context(), "")
	assert.ErrorContains(t, err, "the key expired at")
}

func TestKeyThatIsExpiredAndRejectedIsFetchedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Keys: []string{"key-1"}, Delay: time.Second, Life: time.Minute}
		cache := newCache(v.Fetch, keycache.Config{})
		assertKeyOf(t, cache, "", "key-1")
		time.Sleep(time.Minute)
		assertKey(t, cache, "key-1", "key-1", time.Second)
		assert.EqualValues(t, 2, v.Fetches.Load())
	})
}

func TestDoesNotCacheKeyInvalidInHeader(t *testing.T) {
	v := &fixtures.Vault{Keys: []string{fixtures.TestKey + "\n", "", fixtures.TestKey}}
	source := newCache(v.Fetch, keycache.Config{})
	for _, want := range []string{"control character", "empty"} {
		_, err := source.AccessKey(t.Context(), "")
		assert.ErrorContains(t, err, want)
	}
	assertKeyOf(t, source, "", fixtures.TestKey)
}

func TestRejectionDuringARenewalThatFailsStartsAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Delay: time.Second, Life: time.Minute}
		cache := newCache(v.Fetch, keycache.Config{Early: 30 * time.Second})
		assertKeyOf(t, cache, "", "key-1")
		time.Sleep(40 * time.Second)
		v.Err.Store(&errNoKey)
		assertKeyOf(t, cache, "", "key-1") // starts a renewal, which fails after a second
		time.AfterFunc(1500*time.Millisecond, func() { v.Err.Store(nil) })
		assertKey(t, cache, "key-1", "key-3", 2*time.Second)
	})
}

// While a key is valid, an outage of the key service must not cause a fetch for each call.
func TestFailedRenewalIsRepeatedOnceASecondUntilKeyExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Life: time.Hour}
		source := newCache(v.Fetch, keycache.Config{Early: time.Minute})
		assertKeyOf(t, source, "", "key-1")
		v.Err.Store(&errNoKey)
		end := time.Now().Add(time.Hour)
		for time.Now().Before(end) {
			assertKeyOf(t, source, "", "key-1")
			time.Sleep(100 * time.Millisecond)
		}
		assert.InDelta(t, 1+60, v.Fetches.Load(), 1)
		_, err := source.AccessKey(t.Context(), "")
		assert.ErrorIs(t, err, errNoKey)
	})
}

func TestKeyThatWasSetIsReturnedWithoutFetchUntilItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{}
		source := newCache(v.Fetch, keycache.Config{})
		source.Set("set", time.Now().Add(time.Minute))
		assertKeyOf(t, source, "other", "set")
		assertKeyOf(t, source, "", "set")
		assert.Zero(t, v.Fetches.Load())
		time.Sleep(time.Minute)
		assertKeyOf(t, source, "", "key-1")
	})
}

// A key that was set is newer than the key of a fetch that began before.
func TestFetchInProgressDoesNotReplaceKeyThatWasSet(t *testing.T) {
	for name, fetchErr := range map[string]error{"key": nil, "error": errNoKey} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			v := &fixtures.Vault{Delay: 2 * time.Second}
			if fetchErr != nil {
				v.Err.Store(&fetchErr)
			}
			source := newCache(v.Fetch, keycache.Config{})
			time.AfterFunc(time.Second, func() { source.Set("set", time.Time{}) })
			assertKey(t, source, "", "set", time.Second) // before the fetch ends
			time.Sleep(time.Minute)
			assertKey(t, source, "", "set", 0)
		})
	}
}

func TestWaitingCallerGetsTheFirstUsableKeyThatIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newCache((&fixtures.Vault{Delay: time.Hour}).Fetch, keycache.Config{})
		time.AfterFunc(time.Second, func() { source.Set("first", time.Now().Add(time.Second)) })
		time.AfterFunc(5*time.Second, func() { source.Set("second", time.Time{}) })
		assertKeyOf(t, source, "", "first")
		time.Sleep(2 * time.Second) // the first one expires
		assertKeyOf(t, source, "", "second")
		time.Sleep(time.Minute) // the fetch ends
	})
}

func TestSetRejectsKeyThatIsOfNoUse(t *testing.T) {
	for name, set := range map[string]func(*keycache.Cache) error{
		"invisible":         func(c *keycache.Cache) error { return c.Set("key\ufeff", time.Time{}) },
		"expires now":       func(c *keycache.Cache) error { return c.Set("expired", time.Now()) },
		"invalid in header": func(c *keycache.Cache) error { return c.Set("line\n", time.Time{}) },
		"empty":             func(c *keycache.Cache) error { return c.Set("", time.Time{}) },
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			source := newCache((&fixtures.Vault{Delay: 2 * time.Second}).Fetch, keycache.Config{})
			time.AfterFunc(time.Second, func() { assert.ErrorContains(t, set(source), "the key ") })
			assertKeyOf(t, source, "rejected", "key-1")
		})
	}
}

func TestPanicOfFetchReachesEveryWaitingCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newCache((&fixtures.Vault{Delay: time.Second, Panics: 1}).Fetch, keycache.Config{})
		fixtures.Concurrently(10, func() {
			assert.PanicsWithValue(t, "fetch panicked", func() { _, _ = source.AccessKey(t.Context(), "") })
		})
		assertKey(t, source, "", "key-2", time.Second)
	})
}

func TestOnErrorGetsTheErrorOfEachFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Life: time.Minute, Panics: 3}
		var mu sync.Mutex
		var errs []string
		source := newCache(v.Fetch, keycache.Config{
			Early: 30 * time.Second,
			OnError: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err.Error())
			},
		})
		assertKeyOf(t, source, "", "key-1")
		time.Sleep(40 * time.Second)
		v.Err.Store(&errNoKey)
		assertKeyOf(t, source, "", "key-1") // starts a renewal, which fails
		time.Sleep(time.Second)
		assertKeyOf(t, source, "", "key-1") // starts a renewal, which panics
		time.Sleep(time.Second)
		v.Err.Store(nil)
		assertKeyOf(t, source, "", "key-1")
		synctest.Wait()
		assertKeyOf(t, source, "", "key-4")
		require.Len(t, errs, 2)
		assert.Equal(t, "access key: "+errNoKey.Error(), errs[0])
		assert.Contains(t, errs[1], "access key: fetch panicked (panic of another goroutine)\n\ngoroutine ")
		assert.Contains(t, errs[1], "fixtures.(*Vault).Fetch(", "the stack")
	})
}

// The error of a vault may quote the key that is to be replaced.
func TestErrorOfFetchShowsNoKeyToItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		source := newCache(func(context.Context) (string, time.Time, error) {
			calls++
			if calls == 1 {
				return "the-first-key", time.Now().Add(time.Minute), nil
			}
			return "", time.Time{}, fmt.Errorf("%w: the-first-key cannot be renewed", errNoKey)
		}, keycache.Config{OnError: func(err error) { assert.NotContains(t, err.Error(), "the-first-key") }})
		assertKeyOf(t, source, "", "the-first-key")
		time.Sleep(time.Minute)
		_, err := source.AccessKey(t.Context(), "")
		assert.EqualError(t, err, "the vault is sealed: [redacted] cannot be renewed")
		assert.ErrorIs(t, err, errNoKey)
	})
}

func TestFetchEndsAfterItsTimeout(t *testing.T) {
	for name, fetch := range map[string]func(context.Context) (string, time.Time, error){
		"honours its context": func(ctx context.Context) (string, time.Time, error) {
			<-ctx.Done()
			return "", time.Time{}, fmt.Errorf("vault: %w", ctx.Err())
		},
		"ignores its context": fetchThatIgnoresItsContext(time.Hour),
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			source := newCache(fetch, keycache.Config{})
			fixtures.Concurrently(3, func() { assertTimeout(t, source, timeout) })
			time.Sleep(2 * time.Hour)
		})
	}
}

// fetchThatIgnoresItsContext returns a fetch that takes the first delay, then the second one and so on. The
// last delay repeats. Its keys are key-1, key-2, …
func fetchThatIgnoresItsContext(delays ...time.Duration) func(context.Context) (string, time.Time, error) {
	var fetches atomic.Int32
	return func(context.Context) (string, time.Time, error) {
		n := int(fetches.Add(1))
		time.Sleep(delays[min(n, len(delays))-1])
		return fmt.Sprint("key-", n), time.Time{}, nil
	}
}

// assertTimeout checks that a source returns the error of a fetch that exceeded its timeout.
func assertTimeout(t *testing.T, source *keycache.Cache, after time.Duration) {
	t.Helper()
	start := time.Now()
	_, err := source.AccessKey(t.Context(), "")
	assert.Equal(t, after, time.Since(start))
	assert.ErrorContains(t, err, "fetch did not return within 30s, the timeout of CachedAccessKey")
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestAnotherFetchStartsAfterOneThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newCache(fetchThatIgnoresItsContext(time.Hour, time.Second), keycache.Config{})
		assertTimeout(t, source, timeout)
		assertKey(t, source, "", "key-2", time.Second)
		time.Sleep(2 * time.Hour)
		assertKey(t, source, "", "key-2", 0) // newer than the late key
	})
}

func TestAnotherRenewalStartsAfterOneThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newCache(fetchThatIgnoresItsContext(time.Hour, time.Second), keycache.Config{Early: time.Hour})
		source.Set("set", time.Now().Add(10*time.Minute))
		assertKey(t, source, "", "set", 0) // starts the first renewal
		time.Sleep(timeout + time.Second)
		assertKey(t, source, "", "set", 0) // starts the second renewal
		time.Sleep(time.Second)
		synctest.Wait()
		assertKey(t, source, "", "key-2", 0)
		time.Sleep(2 * time.Hour)
	})
}

func TestAnotherFetchForRejectionStartsAfterOneThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newCache(fetchThatIgnoresItsContext(time.Hour, time.Second), keycache.Config{})
		source.Set("set", time.Time{})
		assertKey(t, source, "set", "set", timeout) // waits for the first fetch
		assertKey(t, source, "set", "key-2", time.Second)
		time.Sleep(2 * time.Hour)
	})
}

// Each fetch that does not return leaves a goroutine.
func TestNumberOfFetchesThatDoNotReturnIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		release := make(chan struct{})
		source := newCache(func(context.Context) (string, time.Time, error) {
			running.Add(1)
			defer running.Add(-1)
			<-release
			return "", time.Time{}, errNoKey
		}, keycache.Config{})
		for range keycache.MaxRunning {
			assertTimeout(t, source, timeout)
		}
		assertTimeout(t, source, 0)
		assert.EqualValues(t, keycache.MaxRunning, running.Load())

		source.Set("set", time.Now().Add(time.Hour))
		assertKey(t, source, "set", "set", 0) // no fetch starts
		time.Sleep(time.Hour)
		assertTimeout(t, source, 0)

		release <- struct{}{} // one of them returns
		synctest.Wait()
		assertTimeout(t, source, timeout)
		close(release)
		synctest.Wait()
		_, err := source.AccessKey(t.Context(), "")
		assert.ErrorIs(t, err, errNoKey)
	})
}

func TestFetchWhoseOnErrorBlocksCountsAsRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		v := &fixtures.Vault{}
		v.Err.Store(&errNoKey)
		source := newCache(v.Fetch, keycache.Config{OnError: func(error) { <-release }})
		for range 2 * keycache.MaxRunning {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := source.AccessKey(ctx, "")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		assert.EqualValues(t, keycache.MaxRunning, v.Fetches.Load())
		close(release)
	})
}

func TestLateKeyIsUsedUnlessThereIsANewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetch := fetchThatIgnoresItsContext(time.Hour, timeout+time.Second, time.Hour/2, time.Second)
		source := newCache(fetch, keycache.Config{})
		assertTimeout(t, source, timeout)
		assertTimeout(t, source, timeout)
		assertKey(t, source, "", "key-2", timeout) // waits for the third fetch; the second one returns meanwhile
		assertKey(t, source, "", "key-2", 0)
		time.Sleep(time.Hour / 2)
		assertKey(t, source, "", "key-3", 0) // the third fetch began after the second one
		time.Sleep(time.Hour)
		assertKey(t, source, "", "key-3", 0) // the first fetch has returned
	})
}

func TestLateKeyDoesNotReplaceKeyThatWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newCache(fetchThatIgnoresItsContext(time.Hour), keycache.Config{})
		assertTimeout(t, source, timeout)
		source.Set("set", time.Time{})
		time.Sleep(2 * time.Hour)
		assertKey(t, source, "", "set", 0)
	})
}
