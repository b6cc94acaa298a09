package fleet_test

import (
	"context"
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

// The clock of the store must change neither expiry nor slots.
func TestClockOfTheStoreMayBeWrong(t *testing.T) {
	for _, tt := range []struct {
		name         string
		stored, read time.Duration // clock of the store minus clock of the replicas, at a store and a read
	}{
		{"an hour behind", -time.Hour, -time.Hour},
		{"an hour ahead", time.Hour, time.Hour},
		{"set back by an hour after a key was stored", 0, -time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				rdb := connect(t, store)
				var fetches atomic.Int64
				c := fleet.KeyOptions{Name: "acme", Fetch: numberedKeys(&fetches, 5*time.Second)}
				now := time.Now()
				store.SetTime(now.Add(tt.stored))
				require.Equal(t, "key-1", accessKey(t, newSource(t, rdb, c), ""))
				store.SetTime(now.Add(tt.read))
				require.Equal(t, "key-1", accessKey(t, newSource(t, rdb, c), ""))
				store.SetTime(now.Add(tt.read + 5*time.Second))
				require.Equal(t, "key-2", accessKey(t, newSource(t, rdb, c), ""), "key-1 has expired")

				limiter := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 10, Per: time.Second})
				require.NoError(t, limiter.Wait(t.Context()))
				require.NoError(t, limiter.Wait(t.Context()))
				assert.Equal(t, 100*time.Millisecond, time.Since(now), "from slot to slot")
			})
		})
	}
}

func TestJumpOfTheStoreClockDelaysNoFetch(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			store := newStore(t)
			setOffset := runClock(t, store)
			var fetches atomic.Int64
			source := newSource(t, connect(t, store), fleet.KeyOptions{
				Name:         "acme",
				FetchTimeout: 200 * time.Millisecond,
				MinInterval:  200 * time.Millisecond,
				Fetch:        numberedKeys(&fetches, 10*time.Minute),
			})
			require.Equal(t, "key-1", accessKey(t, source, ""))
			setOffset(jump)
			begin := time.Now()
			require.Equal(t, "key-2", accessKey(t, source, "key-1"))
			assert.Less(t, time.Since(begin), 1200*time.Millisecond, "FetchTimeout + 1 s")
		})
	}
}

func TestJumpOfTheStoreClockDelaysNoSlot(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			store := newStore(t)
			setOffset := runClock(t, store)
			limiter := newLimiter(t, connect(t, store), fleet.LimiterOptions{
				Name:  "acme",
				Rate:  20,
				Per:   time.Second,
				Burst: 2,
			})
			takeSlots := func() {
				for range 4 {
					require.NoError(t, limiter.Wait(t.Context()))
				}
			}
			takeSlots()
			setOffset(jump)
			begin := time.Now()
			takeSlots()
			assert.Less(t, time.Since(begin), 5*time.Second)
		})
	}
}

// runClock makes the clock of the store run with an offset, which setOffset sets. A clock of
// miniredis stands still after SetTime, so runClock sets it again and again.
func runClock(t *testing.T, store *miniredis.Miniredis) (setOffset func(time.Duration)) {
	t.Helper()
	var offset atomic.Int64
	setTime := func() { store.SetTime(time.Now().Add(time.Duration(offset.Load()))) }
	go func() {
		for t.Context().Err() == nil {
			time.Sleep(5 * time.Millisecond)
			setTime()
		}
	}()
	return func(d time.Duration) {
		offset.Store(int64(d))
		setTime()
	}
}

func TestUnexpectedReplyOfTheStoreIsAnError(t *testing.T) {
	for name, reply := range map[string]any{
		"nil":                               nil,
		"text":                              "secret-key",
		"integer":                           int64(1),
		"fraction":                          1.5,
		"empty list":                        []any{},
		"list of nil":                       []any{nil},
		"list of a text":                    []any{"secret-key"},
		"list of two integers":              []any{int64(1), int64(2)},
		"list in a list":                    []any{[]any{int64(1)}},
		"record whose generation is a text": []any{"stored", "1", int64(1000), "secret-key", ""},
		"record whose key is nil":           []any{"stored", int64(1), int64(1000), nil, ""},
		"record whose state is an integer":  []any{int64(1), int64(1), int64(1000), "secret-key", ""},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := connect(t, newStore(t))
			rdb.AddHook(onScript(func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
				cmd.(*redis.Cmd).SetVal(reply)
				return nil
			}))
			source := newSource(t, rdb, fleet.KeyOptions{Name: "acme", Fetch: fetchConstant})
			limiter := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Second})
			_, keyErr := source.AccessKey(t.Context(), "")
			for _, err := range []error{keyErr, limiter.Wait(t.Context())} {
				require.ErrorIs(t, err, fleet.ErrStoreUnavailable)
				assert.NotContains(t, err.Error(), "secret-key")
			}
		})
	}
}

// go-redis repeats the dial until the context ends.
func TestErrorOfADialIsReturned(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + freePort(t), ContextTimeoutEnabled: true})
	defer rdb.Close()
	limiter := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 100, Per: time.Second})
	err := limiter.Wait(t.Context())
	assert.ErrorIs(t, err, fleet.ErrStoreUnavailable)
	assert.ErrorContains(t, err, "connection refused")
	assert.NotErrorIs(t, err, context.DeadlineExceeded)
}
