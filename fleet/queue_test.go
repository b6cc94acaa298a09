package fleet_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/fleet"
)

// The first call has a slot 1 s ahead. While the command of the second call is sent, the first call
// is cancelled, and the second one moves up to its slot.
func TestCallThatMovesUpIsIndependentOfItsCommand(t *testing.T) {
	for _, tt := range []struct {
		name     string
		err      error         // of the command
		deadline time.Duration // of the second call
		want     error         // of the second call
	}{
		{name: "the command fails", err: errors.New("ERR broken"), deadline: time.Minute},
		{name: "the slot of the command is too late", deadline: 3900 * time.Millisecond},
		{name: "both slots are too late", deadline: 1500 * time.Millisecond, want: fleet.ErrBudgetExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rdb := connect(t, newStore(t))
				var held chan struct{} // nil: not held; closed: no longer held
				rdb.AddHook(onScript(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					if held == nil {
						return next(ctx, cmd)
					}
					<-held
					if tt.err == nil {
						return next(ctx, cmd)
					}
					cmd.SetErr(tt.err)
					return tt.err
				}))
				limiter := newLimiter(t, rdb, fleet.LimiterOptions{Name: "acme", Rate: 1, Per: time.Second})
				require.NoError(t, limiter.Wait(t.Context()))
				start := time.Now()
				first, cancel := context.WithCancel(t.Context())
				go func() { assert.ErrorIs(t, limiter.Wait(first), context.Canceled) }()
				synctest.Wait()

				held = make(chan struct{})
				var err error
				var end time.Duration
				go func() {
					second, cancel := context.WithTimeout(t.Context(), tt.deadline)
					defer cancel()
					err = limiter.Wait(second)
					end = time.Since(start)
				}()
				synctest.Wait()
				cancel()
				synctest.Wait()
				close(held)
				time.Sleep(time.Minute)
				synctest.Wait()
				if tt.want != nil {
					require.ErrorIs(t, err, tt.want)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, time.Second, end)
			})
		})
	}
}

// The store adds the time between two slots to a time in microseconds since 1970, as a float64.
func TestHighRateIsNotExceededByRounding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, rate = 3000, 295_000
		limiter := newLimiter(t, connect(t, newStore(t)), fleet.LimiterOptions{Name: "acme", Rate: rate, Per: time.Second})
		begin := time.Now()
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() { assert.NoError(t, limiter.Wait(t.Context())) })
		}
		wg.Wait()
		assert.GreaterOrEqual(t, time.Since(begin), (calls-1)*time.Second/rate-time.Microsecond)
	})
}
