//go:build unix

package fleet_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/fleet"
)

// The scripts in testdata come from an earlier version, which used these Redis keys.
const earlierKey, earlierRate = "msgpush:key:{acme}", "msgpush:rate:{acme}"

func earlierScript(t *testing.T, name string) *redis.Script {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".lua")
	require.NoError(t, err)
	return redis.NewScript(string(text))
}

// During a rolling upgrade, the scripts of both versions run on one store. They must not share
// Redis keys.
func TestScriptsOfAnEarlierVersionRunBesideThePresentOnes(t *testing.T) {
	rdb := startRedis(t)
	const rounds = 50
	var wg sync.WaitGroup
	wg.Go(func() { earlierLimiter(t, rdb.Client, rounds) })
	wg.Go(func() { earlierKeySource(t, rdb.Client, rounds) })
	for range 4 {
		wg.Go(func() {
			limiter, err := fleet.NewLimiter(rdb, fleet.LimiterConfig{Name: "acme", Rate: 1000, Per: time.Second, Burst: 10})
			assert.NoError(t, err)
			for range rounds {
				assert.NoError(t, limiter.Wait(t.Context()))
			}
		})
	}
	fetches := 0
	source, err := fleet.NewKeySource(rdb, fleet.KeyConfig{Name: "acme", MinInterval: time.Millisecond, Fetch: func(context.Context) (string, time.Time, error) {
		fetches++
		return "key-" + string(rune('a'+fetches)), time.Now().Add(time.Minute), nil
	}})
	require.NoError(t, err)
	defer source.Close()
	rejected := ""
	for n := range rounds / 10 {
		key, err := source.AccessKey(t.Context(), rejected)
		require.NoError(t, err)
		assert.Equal(t, "key-"+string(rune('b'+n)), key)
		rejected = key
	}
	wg.Wait()
	assert.Positive(t, rdb.Exists(t.Context(), earlierKey).Val())
	assert.Positive(t, rdb.Exists(t.Context(), earlierRate).Val())
	assert.ElementsMatch(t, []string{earlierKey, earlierRate, redisKey, "msgpush:1:rate:{acme}"}, rdb.Keys(t.Context(), "*").Val())
}

func earlierLimiter(t *testing.T, rdb *redis.Client, rounds int) {
	take := earlierScript(t, "take")
	for range rounds {
		const perMicroseconds, rate, burst, maxWait, last = 1e6, 1000, 10, 1_000_000, -1_000_000_000
		reply, err := take.Run(t.Context(), rdb, []string{earlierRate}, perMicroseconds, rate, burst, maxWait, last).Int64Slice()
		if assert.NoError(t, err) && assert.Len(t, reply, 1) {
			assert.Less(t, reply[0], int64(maxWait), "microseconds until the slot")
		}
	}
}

// earlierKeySource fetches a key in each round.
func earlierKeySource(t *testing.T, rdb *redis.Client, rounds int) {
	claim, put := earlierScript(t, "claim"), earlierScript(t, "put")
	generation := int64(0)
	for range rounds {
		const mayFetch, lease, minInterval, validity = true, 11_000, 0, 60_000
		reply, err := claim.Run(t.Context(), rdb, []string{earlierKey}, generation, mayFetch, lease, "earlier").Slice()
		if !assert.NoError(t, err) || !assert.Equal(t, "granted", reply[0]) {
			return
		}
		granted := reply[1].(int64)
		assert.Greater(t, granted, generation)
		const failed, claimer = false, ""
		stored, err := put.Run(t.Context(), rdb, []string{earlierKey}, granted, "earlier-key", validity, minInterval, failed, claimer).Int64Slice()
		assert.NoError(t, err)
		assert.Equal(t, []int64{1}, stored)
		reply, err = claim.Run(t.Context(), rdb, []string{earlierKey}, generation, false, lease, "earlier").Slice()
		if !assert.NoError(t, err) {
			return
		}
		assert.Equal(t, []any{"stored", granted, reply[2], "earlier-key"}, reply)
		generation = granted
	}
}
