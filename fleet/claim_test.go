package fleet

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowCommands delays commands, so that the commands of two goroutines overlap.
type slowCommands struct{}

func (slowCommands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (slowCommands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (slowCommands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(50 * time.Millisecond)
		return next(ctx, cmd)
	}
}

// An announced key ends the wait of a call for a newer one, but not the goroutine that obtains it.
// If the announced key is rejected before that goroutine ends, two of them claim a fetch at the
// same time.
func TestOnlyOneOfTwoClaimsOfAReplicaIsGranted(t *testing.T) {
	if strconv.IntSize == 32 {
		t.Skip("miniredis rejects numbers above 2³¹, such as the milliseconds of a generation")
	}
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	rdb.AddHook(slowCommands{})
	source, err := NewKeySource(rdb, KeyOptions{
		Name:  "acme",
		Fetch: func(context.Context) (string, time.Time, error) { return "key", time.Time{}, nil },
	})
	require.NoError(t, err)
	defer source.Close()
	var states [2]string
	var claims sync.WaitGroup
	for i := range states {
		claims.Go(func() {
			r, err := source.claim(0)
			assert.NoError(t, err)
			states[i] = r.state
		})
	}
	claims.Wait()
	assert.ElementsMatch(t, []string{stateGranted, stateBusy}, states[:])
}
