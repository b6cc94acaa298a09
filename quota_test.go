package msgpush_test

import (
	"context"
	"errors"
	"io"
	"math"
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
	"example.com/msgpush/internal/faults"
)

// quotaUsedUp is in the error text if a retry was not made because the retry quota
// was used up.
const quotaUsedUp = "the retry quota is used up"

// callsOf returns a function that makes a call whose responses are the steps. The function
// returns the number of requests and the error.
func callsOf(client *msgpush.Client, transport *script) func(ctx context.Context, steps ...roundTripFunc) (int, error) {
	return func(ctx context.Context, steps ...roundTripFunc) (int, error) {
		transport.steps, transport.times = steps, nil
		_, err := client.MPList(ctx, msgpush.PageRequest{})
		return len(transport.times), err
	}
}

// callsWithQuota is callsOf for a new client.
func callsWithQuota(t *testing.T, policy msgpush.RetryPolicy) func(ctx context.Context, steps ...roundTripFunc) (int, error) {
	t.Helper()
	transport := newScript()
	return callsOf(newClient(t, transport, msgpush.WithRetry(policy)), transport)
}

func TestEachRetryTakesOneUnitOfQuota(t *testing.T) {
	policy := func(quota, maxAttempts int) []msgpush.Option {
		return []msgpush.Option{msgpush.WithRetry(msgpush.RetryPolicy{Quota: quota, MaxAttempts: maxAttempts, MinWait: 1, MaxWait: 1})}
	}
	tests := []struct {
		name                  string
		opts                  []msgpush.Option
		calls                 int
		requests, quotaErrors int // of all calls
	}{
		{"quota of 1", policy(1, 7), 3, 3 + 1, 3},
		{"quota for one and a half calls", policy(9, 7), 4, 4 + 9, 3},
		{"client without WithRetry", nil, 200, 200 + 1000, 34},
		{"0 means 1,000 within one call", policy(0, 1200), 1, 1 + 1000, 1},
		{"negative means no limit", policy(-1, 1200), 2, 2400, 0},
		{"largest quota", policy(math.MaxInt, 10), 20, 200, 0},
	}
	for _, tt := range tests {
		runInBubble(t, tt.name, func(t *testing.T) {
			transport := newScript()
			client, err := msgpush.NewClient("http://push.example.com", testKey, append(tt.opts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))...)
			require.NoError(t, err)
			call := callsOf(client, transport)
			requests, quotaErrors := 0, 0
			for range tt.calls {
				n, err := call(t.Context(), status(503))
				requests += n
				assertAttempts(t, n, err)
				if strings.Contains(err.Error(), quotaUsedUp) {
					quotaErrors++
				}
			}
			assert.Equal(t, tt.requests, requests)
			assert.Equal(t, tt.quotaErrors, quotaErrors)
		})
	}
}

func TestReturnsFailureImmediatelyWithoutQuota(t *testing.T) {
	for name, tt := range map[string]struct {
		step roundTripFunc
		kind string // of the error
	}{
		"HTTP 503":          {status(503), "APIError"},
		"truncated JSON":    {respond(200, `{"code":2`), "DecodeError"},
		"connection closed": {fail(io.EOF), "RequestError"},
	} {
		runInBubble(t, name, func(t *testing.T) {
			call := callsWithQuota(t, msgpush.RetryPolicy{Quota: 1, MaxAttempts: 2})
			_, err := call(t.Context(), tt.step)
			assertAttempts(t, 2, err)
			assert.NotContains(t, err.Error(), quotaUsedUp, "the quota was enough")
			start := time.Now()
			_, err = call(t.Context(), tt.step)
			assert.Zero(t, time.Since(start))
			assertFailure(t, err, faults.Failure{Kind: tt.kind}, 1)
			assert.Equal(t, 1, strings.Count(err.Error(), quotaUsedUp), err.Error())
		})
	}
}

func TestRetryReturnsQuotaUnlessItFailsTransiently(t *testing.T) {
	tests := []struct {
		name    string
		retry   []roundTripFunc // after the first attempt
		returns bool            // the retry gives its quota back
	}{
		{"success", []roundTripFunc{succeed}, true},
		{"HTTP 404", []roundTripFunc{status(404)}, true},
		{"envelope with an error code", []roundTripFunc{respond(200, `{"code":500}`)}, true},
		{"HTML page", []roundTripFunc{respond(200, "<html>")}, true},
		{"permanent failure of the transport", []roundTripFunc{fail(http.ErrSchemeMismatch)}, true},
		{"rejected key, then success", []roundTripFunc{status(401), succeed}, true},
		{"rejected key, then HTTP 503", []roundTripFunc{status(401), status(503)}, true},

		{"HTTP 503", []roundTripFunc{status(503)}, false},
		{"Retry-After longer than MaxWait", []roundTripFunc{status(503, "Retry-After", "3600")}, false},
		{"connection closed", []roundTripFunc{fail(io.EOF)}, false},
		{"timeout", []roundTripFunc{noResponse}, false},
		{"truncated JSON", []roundTripFunc{respond(200, `{"code":2`)}, false},
	}
	for _, tt := range tests {
		runInBubble(t, tt.name, func(t *testing.T) {
			transport := newScript()
			call := callsOf(newClientWithKey(t, "", transport, msgpush.WithAccessKeySource(growingSource), msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1, MaxAttempts: 2})), transport)
			for i := range 30 {
				requests, _ := call(t.Context(), append([]roundTripFunc{status(503)}, tt.retry...)...)
				if i == 0 || tt.returns {
					assert.Equal(t, 1+len(tt.retry), requests, "call %d", i+1)
				} else {
					assert.Equal(t, 1, requests, "call %d", i+1)
				}
			}
		})
	}
}

func TestRetriedCallReturnsNoMoreQuotaThanItTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := newScript()
		call := callsOf(newClientWithKey(t, "", transport, msgpush.WithAccessKeySource(growingSource), msgpush.WithRetry(msgpush.RetryPolicy{Quota: 2, MaxAttempts: 2})), transport)
		busy := status(503)
		for i, tt := range []struct {
			calls    int
			steps    []roundTripFunc
			requests int
		}{
			{1, []roundTripFunc{busy, busy}, 2}, // costs one of two retries
			{20, []roundTripFunc{busy, succeed}, 2},
			{20, []roundTripFunc{busy, status(401), succeed}, 3},
			{1, []roundTripFunc{busy, busy}, 2}, // costs the other one
			{1, []roundTripFunc{busy}, 1},
		} {
			for range tt.calls {
				requests, _ := call(t.Context(), tt.steps...)
				assert.Equal(t, tt.requests, requests, "row %d", i+1)
			}
		}
	})
}

// A cancelled wait, and an error or a panic of the caller's own code before the retry, cost no
// quota. A panic reaches the caller.
func TestRetryNotMadeReturnsQuota(t *testing.T) {
	for _, cause := range []string{"cancelled wait", "error of the limiter", "error of the key source", "panic of the limiter", "panic of the key source", "panic of the transport"} {
		runInBubble(t, cause, func(t *testing.T) {
			requests := 0 // of a call
			// retry fails if the call makes a retry.
			retry := func(by string) error {
				if requests > 0 && cause == "panic of the "+by {
					panic("broken")
				}
				if requests > 0 && cause == "error of the "+by {
					return errors.New("no more")
				}
				return nil
			}
			client := newClientWithKey(t, "", roundTripFunc(func(r *http.Request) (*http.Response, error) {
				_ = retry("transport")
				requests++
				return status(503, "Retry-After", "10")(r)
			}), msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1}),
				msgpush.WithRateLimiter(limiterFunc(func(context.Context) error { return retry("limiter") })),
				msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(context.Context, string) (string, error) { return testKey, retry("key source") })))
			for range 5 {
				requests = 0
				ctx, cancel := context.WithCancel(t.Context())
				if cause == "cancelled wait" {
					time.AfterFunc(time.Second, cancel)
				}
				call := func() error { _, err := client.MPList(ctx, msgpush.PageRequest{}); return err }
				if strings.HasPrefix(cause, "panic") {
					assert.PanicsWithValue(t, "broken", func() { _ = call() })
				} else {
					err := call()
					onlyError[*msgpush.APIError](t, onlyError[*msgpush.RequestError](t, err).Last)
					assert.NotContains(t, err.Error(), quotaUsedUp)
				}
				cancel()
				assert.Equal(t, 1, requests)
			}
		})
	}
}

func TestTenCallsWithoutRetryReturnOneUnitOfQuota(t *testing.T) {
	for name, good := range map[string][]roundTripFunc{
		"successes": {succeed}, "permanent failures": {status(404)}, "HTML pages": {respond(200, "<html>")},
	} {
		runInBubble(t, name, func(t *testing.T) {
			call := callsWithQuota(t, msgpush.RetryPolicy{Quota: 3})
			retries := func() int {
				requests, err := call(t.Context(), status(503))
				require.Error(t, err)
				return requests - 1
			}
			require.Equal(t, 3, retries())
			for range 2 {
				for range 9 {
					_, _ = call(t.Context(), good...)
				}
				assert.Zero(t, retries(), "after nine calls")
				_, _ = call(t.Context(), good...)
				assert.Equal(t, 1, retries(), "after ten calls")
			}
			for range 1000 {
				_, _ = call(t.Context(), good...)
			}
			assert.Equal(t, 3, retries(), "no more than the quota")
		})
	}
}

func TestEachSecondWithCallThatNeedsNoRetryReturnsTwentiethOfQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := callsWithQuota(t, msgpush.RetryPolicy{Quota: 100, MaxAttempts: 1000, MinWait: 1, MaxWait: 1})
		retries := func() int {
			requests, err := call(t.Context(), status(503))
			require.ErrorContains(t, err, quotaUsedUp)
			return requests - 1
		}
		require.Equal(t, 100, retries())
		time.Sleep(time.Minute)
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := call(ctx, noResponse)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		assert.Zero(t, retries(), "in a lasting outage, nothing gives any back")
		for _, tt := range []struct {
			sleep time.Duration
			calls int // that need no retry
			want  int // retries
		}{
			{0, 1, 5},
			{999 * time.Millisecond, 1, 0},
			{time.Millisecond, 1, 5},
			{time.Minute, 1, 5},     // no call needed no retry
			{time.Second, 7, 5 + 1}, // every ten of these calls give one back, too
		} {
			time.Sleep(tt.sleep)
			for range tt.calls {
				_, err := call(t.Context(), succeed)
				require.NoError(t, err)
			}
			assert.Equal(t, tt.want, retries(), "after %v and %d calls", tt.sleep, tt.calls)
		}
		for range 22 {
			time.Sleep(990 * time.Millisecond)
			_, err := call(t.Context(), succeed)
			require.NoError(t, err)
		}
		assert.Equal(t, 100, retries(), "the quota is full")
	})
}

func TestDefaultQuotaIsEightRetriesForEachOfTheMostCallsAtATime(t *testing.T) {
	useOneThread(t)
	const most = 300
	for name, tt := range map[string]struct{ quota, retries int }{"default": {0, 8 * most}, "fixed": {500, 500}} {
		runInBubble(t, name, func(t *testing.T) {
			var retried sync.Map // the ids of calls whose first attempt has failed
			ends := []roundTripFunc{
				succeed,
				status(404),
				func(r *http.Request) (*http.Response, error) {
					if _, ok := retried.LoadOrStore(r.URL.RawQuery, true); ok {
						return succeed(r)
					}
					return status(503)(r)
				},
				noResponse, // until the context ends
				func(*http.Request) (*http.Response, error) { panic("broken transport") },
				func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil },
			}
			requests := 0 // of the call without an id
			client := newClient(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				id, err := strconv.Atoi(r.URL.Query().Get("mailId"))
				if err != nil {
					requests++
					return status(503)(r)
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
