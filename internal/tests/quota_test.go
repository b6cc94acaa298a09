package tests_test

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

// quotaUsedUp is in the error text if a retry was not made because the retry quota was used up.
const quotaUsedUp = "the retry quota is used up"

func TestEachRetryTakesOneUnitOfQuota(t *testing.T) {
	policy := func(quota, maxAttempts int) []msgpush.Option {
		return []msgpush.Option{
			msgpush.WithRetry(msgpush.RetryPolicy{Quota: quota, MaxAttempts: maxAttempts, MinWait: 1, MaxWait: 1}),
		}
	}
	tests := []struct {
		name                  string
		opts                  []msgpush.Option
		calls                 int
		requests, quotaErrors int // of all calls
	}{
		{name: "quota of 1", opts: policy(1, 7), calls: 3, requests: 3 + 1, quotaErrors: 3},
		{name: "quota for one and a half calls", opts: policy(9, 7), calls: 4, requests: 4 + 9, quotaErrors: 3},
		{name: "client without WithRetry", calls: 300, requests: 300 + 1000, quotaErrors: 50},
		{name: "0 means 1,000 within one call", opts: policy(0, 1200), calls: 1, requests: 1 + 1000, quotaErrors: 1},
		{name: "negative means no limit", opts: policy(-1, 1200), calls: 2, requests: 2400, quotaErrors: 0},
		{name: "largest quota", opts: policy(math.MaxInt, 10), calls: 20, requests: 200, quotaErrors: 0},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			transport := fixtures.NewScript(fixtures.Status(503))
			client, err := msgpush.NewClient(
				"https://push.example.com",
				fixtures.TestKey,
				append(tt.opts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))...)
			require.NoError(t, err)
			requests, quotaErrors := 0, 0
			for range tt.calls {
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				fixtures.AssertAttempts(t, len(transport.Times)-requests, err)
				requests = len(transport.Times)
				if strings.Contains(err.Error(), quotaUsedUp) {
					quotaErrors++
				}
			}
			assert.Equal(t, tt.requests, requests)
			assert.Equal(t, tt.quotaErrors, quotaErrors)
		})
	}
}

// docs/reliability.md states this bound.
func TestRetriesExceedSuccessesByAtMostTheQuota(t *testing.T) {
	const calls, quota = 500, 10
	t.Run("503 and 404 in turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			requests := 0
			client := fixtures.NewClient(t, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				requests++
				return fixtures.Status([]int{404, 503}[requests%2])(r)
			}), msgpush.WithRetry(msgpush.RetryPolicy{Quota: quota}))
			for range calls {
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				require.Error(t, err)
			}
			assert.LessOrEqual(t, requests-calls, quota)
		})
	})
	t.Run("silent service, callers that cancel", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			transport := fixtures.NewScript(fixtures.NoResponse)
			client := fixtures.NewClient(t, transport, msgpush.WithRetry(msgpush.RetryPolicy{Quota: quota}))
			for range calls {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(12*time.Second, cancel)
				_, err := client.MPList(ctx, msgpush.PageRequest{})
				require.Error(t, err)
			}
			assert.LessOrEqual(t, len(transport.Times)-calls, quota)
		})
	})
	t.Run("random responses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			option, attempts := fixtures.Observed()
			client := fixtures.NewClient(t, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				return fixtures.Status([]int{200, 404, 503, 502}[rand.IntN(4)])(r)
			}), msgpush.WithRetry(msgpush.RetryPolicy{Quota: quota, MinWait: 1}), option)
			retries, successes := 0, 0
			for range 20 * calls {
				*attempts = nil
				_, _ = client.MPList(t.Context(), msgpush.PageRequest{})
				for _, a := range *attempts {
					if a.Number > 1 {
						retries++
					}
					if a.Err == nil {
						successes++
					}
				}
				require.LessOrEqual(t, retries-successes, quota)
			}
		})
	})
}

func TestDefaultQuotaIsEightRetriesForEachOfTheMostCallsAtATime(t *testing.T) {
	fixtures.UseOneThread(t)
	const most = 300
	for name, tt := range map[string]struct{ quota, retries int }{"default": {0, 8 * most}, "fixed": {500, 500}} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			var retried sync.Map // the ids of calls whose first attempt has failed
			ends := []fixtures.RoundTripFunc{
				fixtures.Succeed,
				fixtures.Status(404),
				func(r *http.Request) (*http.Response, error) {
					if _, ok := retried.LoadOrStore(r.URL.RawQuery, true); ok {
						return fixtures.Succeed(r)
					}
					return fixtures.Status(503)(r)
				},
				fixtures.NoResponse, // until the context ends
				func(*http.Request) (*http.Response, error) { panic("broken transport") },
				func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil },
			}
			requests := 0 // of the call without an id
			client := fixtures.NewClient(t, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				id, err := strconv.Atoi(r.URL.Query().Get("mailId"))
				if err != nil {
					requests++
					return fixtures.Status(503)(r)
				}
				return ends[id%len(ends)](r)
			}), msgpush.WithRetry(msgpush.RetryPolicy{Quota: tt.quota, MaxAttempts: 10_000, MinWait: 1, MaxWait: 1}))
			id := 0
			for _, callers := range []int{most, most / 2, most, 1, 1} {
				var calls sync.WaitGroup
				for range callers {
					id++
					mailID := strconv.Itoa(id)
					calls.Go(func() {
						defer func() { _ = recover() }()
						ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
						defer cancel()
						_, _ = client.MailDetail(ctx, mailID)
					})
				}
				calls.Wait()
			}
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			require.ErrorContains(t, err, quotaUsedUp)
			assert.Equal(t, tt.retries, requests-1, "retries, however the calls have ended")
		})
	}
}
