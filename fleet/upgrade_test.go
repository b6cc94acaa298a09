//go:build unix

package fleet_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/fleet"
)

// The scripts in testdata come from an earlier version with the same data. During a rolling
// upgrade, the scripts of both versions run on the same Redis keys.
func earlierScript(t *testing.T, name string) *redis.Script {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".lua")
	require.NoError(t, err)
	return redis.NewScript(string(text))
}

func TestKeysAreSharedWithAnEarlierVersion(t *testing.T) {
	rdb, script := startRedis(t), earlierScript(t, "key")
	var fetches atomic.Int64
	source, err := fleet.NewKeySource(rdb, fleet.KeyConfig{
		Name:        "acme",
		MinInterval: time.Millisecond,
		Fetch: func(context.Context) (string, time.Time, error) {
			return fmt.Sprintf("key-%d", fetches.Add(1)), time.Now().Add(time.Minute), nil
		},
	})
	require.NoError(t, err)
	defer source.Close()
	const earlier, minInterval, lease, validity = "earlier", 1, 11_000, 60_000
	claim := func(generation int64, mayFetch, rejected bool) []any {
		reply, err := script.Run(t.Context(), rdb, []string{redisKey},
			"claim", generation, earlier, minInterval, mayFetch, rejected, lease).Slice()
		require.NoError(t, err)
		return reply
	}
	rejected := ""
	for round := range 20 {
		key, err := source.AccessKey(t.Context(), rejected)
		require.NoError(t, err)
		reply := claim(0, true, false)
		require.Equal(t, []any{"stored", key}, []any{reply[0], reply[3]}, "the earlier version gets the key")

		generation := reply[1].(int64)
		await(t, 5*time.Second, "the earlier version may fetch", func() bool {
			reply = claim(generation, true, true)
			return reply[0] == "granted"
		})
		earlierKey := fmt.Sprintf("earlier-key-%d", round)
		wait, err := script.Run(t.Context(), rdb, []string{redisKey},
			"put", reply[1], earlier, minInterval, earlierKey, validity, "done").Int64Slice()
		require.NoError(t, err)
		require.Equal(t, []int64{minInterval}, wait)
		next, err := source.AccessKey(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, earlierKey, next, "the present version gets the key of the earlier one")
		rejected = next
	}
	assert.EqualValues(t, 20, fetches.Load(), "one fetch a round")
}

func TestBudgetIsSharedWithAnEarlierVersion(t *testing.T) {
	const (
		rounds, limiters = 50, 4
		interval, burst  = 1000.0, 10 // µs
		earlierLast      = -1_000_000_000
	)
	rdb, script := startRedis(t), earlierScript(t, "take")
	begin := rdb.Time(t.Context()).Val()
	var wg sync.WaitGroup
	wg.Go(func() {
		for range rounds {
			const maxWait = 1_000_000
			waits, err := script.Run(t.Context(), rdb, []string{rateKey}, 1e6, 1000, burst, earlierLast, maxWait).Int64Slice()
			if assert.NoError(t, err) && assert.Len(t, waits, 1) {
				assert.LessOrEqual(t, waits[0], int64(maxWait))
			}
		}
	})
	for range limiters {
		wg.Go(func() {
			limiter, err := fleet.NewLimiter(rdb, fleet.LimiterConfig{Name: "acme", Rate: 1000, Per: time.Second, Burst: burst})
			assert.NoError(t, err)
			for range rounds {
				assert.NoError(t, limiter.Wait(t.Context()))
			}
		})
	}
	wg.Wait()
	var free float64
	_, err := fmt.Sscan(rdb.Get(t.Context(), rateKey).Val(), &free)
	require.NoError(t, err)
	const taken = rounds * (limiters + 1)
	assert.GreaterOrEqual(t, free-float64(begin.UnixMicro()), (taken-burst)*interval, "no slot was given twice")
}
