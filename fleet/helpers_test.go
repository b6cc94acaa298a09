package fleet_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/fleet"
)

func newSource(t *testing.T, rdb redis.UniversalClient, c fleet.KeyOptions) *fleet.KeySource {
	t.Helper()
	source, err := fleet.NewKeySource(rdb, c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, source.Close()) })
	return source
}

func newLimiter(t *testing.T, rdb redis.UniversalClient, c fleet.LimiterOptions) *fleet.Limiter {
	t.Helper()
	limiter, err := fleet.NewLimiter(rdb, c)
	require.NoError(t, err)
	return limiter
}

func accessKey(t *testing.T, source *fleet.KeySource, rejected string) string {
	t.Helper()
	key, err := source.AccessKey(t.Context(), rejected)
	require.NoError(t, err)
	return key
}

type fetch = func(context.Context) (string, time.Time, error)

func fetchConstant(context.Context) (string, time.Time, error) {
	return "secret-key", time.Time{}, nil
}

// fetchOf returns a Fetch with a constant result.
func fetchOf(key string, expires time.Time, err error) fetch {
	return func(context.Context) (string, time.Time, error) { return key, expires, err }
}

// numberedKeys returns a Fetch of key-1, key-2 and so on.
func numberedKeys(fetches *atomic.Int64, validity time.Duration) fetch {
	return func(context.Context) (string, time.Time, error) {
		return fmt.Sprint("key-", fetches.Add(1)), time.Now().Add(validity), nil
	}
}

func newNumberedSource(t *testing.T, rdb redis.UniversalClient, fetches *atomic.Int64) *fleet.KeySource {
	t.Helper()
	return newSource(t, rdb, fleet.KeyOptions{
		Name:        "acme",
		MinInterval: time.Millisecond,
		Fetch:       numberedKeys(fetches, time.Hour),
	})
}

// An onScript is a hook of a client that runs scripts in place of next.
type onScript func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (onScript) DialHook(next redis.DialHook) redis.DialHook { return next }

func (onScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h onScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" { // such as the commands of a new connection
			return next(ctx, cmd)
		}
		return h(ctx, cmd, next)
	}
}

type scriptCounts struct{ running, maximum, total atomic.Int64 }

// countScripts counts the scripts that are sent to the store.
func countScripts(rdb redis.UniversalClient) *scriptCounts {
	c := new(scriptCounts)
	rdb.AddHook(onScript(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		c.total.Add(1)
		running := c.running.Add(1)
		defer c.running.Add(-1)
		for m := c.maximum.Load(); running > m && !c.maximum.CompareAndSwap(m, running); {
			m = c.maximum.Load()
		}
		return next(ctx, cmd)
	}))
	return c
}
