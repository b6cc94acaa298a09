package tests_test

import (
	"context"
	"errors"
	"io"
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
	"example.com/msgpush/internal/tests/faults"
	"example.com/msgpush/internal/tests/fixtures"
)

// quotaUsedUp is in the error text if a retry was not made because the retry quota was used up.
const quotaUsedUp = "the retry quota is used up"

type steps = []fixtures.RoundTripFunc

// callsOf returns a function that makes a call whose responses are the steps. The function returns
// the number of requests and the error.
func callsOf(
	client *msgpush.Client,
	transport *fixtures.Script,
) func(ctx context.Context, steps ...fixtures.RoundTripFunc) (int, error) {
	return func(ctx context.Context, steps ...fixtures.RoundTripFunc) (int, error) {
		transport.Steps, transport.Times = steps, nil
		_, err := client.MPList(ctx, msgpush.PageRequest{})
		return len(transport.Times), err
	}
}

// callsWithQuota is callsOf for a new client.
func callsWithQuota(
	t *testing.T,
	policy msgpush.RetryPolicy,
) func(ctx context.Context, steps ...fixtures.RoundTripFunc) (int, error) {
	t.Helper()
	transport := fixtures.NewScript()
	return callsOf(fixtures.NewClient(t, transport, msgpush.WithRetry(policy)), transport)
}

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
		{"quota of 1", policy(1, 7), 3, 3 + 1, 3},
		{"quota for one and a half calls", policy(9, 7), 4, 4 + 9, 3},
		{"client without WithRetry", nil, 300, 300 + 1000, 50},
		{"0 means 1,000 within one call", policy(0, 1200), 1, 1 + 1000, 1},
		{"negative means no limit", policy(-1, 1200), 2, 2400, 0},
		{"largest quota", policy(math.MaxInt, 10), 20, 200, 0},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			transport := fixtures.NewScript()
			client, err := msgpush.NewClient(
				"https://push.example.com",
				fixtures.TestKey,
				append(tt.opts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))...)
			require.NoError(t, err)
			call := callsOf(client, transport)
			requests, quotaErrors := 0, 0
			for range tt.calls {
				n, err := call(t.Context(), fixtures.Status(503))
				requests += n
				fixtures.AssertAttempts(t, n, err)
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
		step fixtures.RoundTripFunc
		kind string // of the error
	}{
		"HTTP 503":          {fixtures.Status(503), "APIError"},
		"truncated JSON":    {fixtures.Respond(200, `{"code":2`), "DecodeError"},
		"connection closed": {fixtures.Fail(io.EOF), "RequestError"},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			call := callsWithQuota(t, msgpush.RetryPolicy{Quota: 1, MaxAttempts: 2})
			_, err := call(t.Context(), tt.step)
			fixtures.AssertAttempts(t, 2, err)
			assert.NotContains(t, err.Error(), quotaUsedUp, "the quota was enough")
			start := time.Now()
			_, err = call(t.Context(), tt.step)
			assert.Zero(t, time.Since(start))
			fixtures.AssertFailure(t, err, faults.Failure{Kind: tt.kind}, 1)
			assert.Equal(t, 1, strings.Count(err.Error(), quotaUsedUp), err.Error())
		})
	}
}

// Each call begins with an HTTP 503. Its retry takes one unit of quota.
func TestOnlyRetryThatSucceedsReturnsQuota(t *testing.T) {
	tests := []struct {
		name    string
		retry   steps // after the first attempt
		returns bool  // the retry gives its quota back
	}{
		{"success", steps{fixtures.Succeed}, true},
		{"rejected key, then success", steps{fixtures.Status(401), fixtures.Succeed}, true},

		{"HTTP 404", steps{fixtures.Status(404)}, false},
		{"envelope with an error code", steps{fixtures.Respond(200, `{"code":500}`)}, false},
		{"HTML page", steps{fixtures.Respond(200, "<html>")}, false},
		{"permanent failure of the transport", steps{fixtures.Fail(http.ErrSchemeMismatch)}, false},
		{"rejected key, then HTTP 503", steps{fixtures.Status(401), fixtures.Status(503)}, false},
		{"HTTP 503", steps{fixtures.Status(503)}, false},
		{"Retry-After longer than MaxWait", steps{fixtures.Status(503, "Retry-After", "3600")}, false},
		{"connection closed", steps{fixtures.Fail(io.EOF)}, false},
		{"timeout", steps{fixtures.NoResponse}, false},
		{"truncated JSON", steps{fixtures.Respond(200, `{"code":2`)}, false},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			transport := fixtures.NewScript()
			call := callsOf(
				fixtures.NewClientWithKey(t, "", transport, msgpush.WithAccessKeySource(fixtures.GrowingSource),
					msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1, MaxAttempts: 2})),
				transport,
			)
			for i := range 30 {
				requests, _ := call(t.Context(), append(steps{fixtures.Status(503)}, tt.retry...)...)
				if i == 0 || tt.returns {
					assert.Equal(t, 1+len(tt.retry), requests, "call %d", i+1)
				} else {
					assert.Equal(t, 1, requests, "call %d", i+1)
				}
			}
		})
	}
}

func TestFirstAttemptReturnsQuotaIfItSucceeds(t *testing.T) {
	ended := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	for name, tt := range map[string]struct {
		step    fixtures.RoundTripFunc
		returns bool
	}{
		"success":                   {fixtures.Succeed, true},
		"HTTP 404":                  {fixtures.Status(404), false},
		"HTTP 401":                  {fixtures.Status(401), false},
		"HTML page":                 {fixtures.Respond(200, "<html>"), false},
		"HTTP 503":                  {fixtures.Status(503), false},
		"interrupted by its caller": {ended, false},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			call := callsWithQuota(t, msgpush.RetryPolicy{Quota: 3, MinWait: 1, MaxWait: 1})
			retries := func() int {
				requests, err := call(t.Context(), fixtures.Status(503))
				require.ErrorContains(t, err, quotaUsedUp)
				return requests - 1
			}
			require.Equal(t, 3, retries())
			for _, calls := range []int{1, 2, 3, 100} {
				for range calls {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, _ = call(ctx, tt.step)
					cancel()
				}
				want := 0
				if tt.returns {
					want = min(calls, 3) // at most the quota
				}
				assert.Equal(t, want, retries(), "after %d calls", calls)
			}
		})
	}
}

// A token that was taken is not returned if the retry is not made, or is interrupted: callers that
// cancel would otherwise retry without limit.
func TestRetryThatIsNotMadeOrInterruptedUsesUpQuota(t *testing.T) {
	for _, cause := range []string{
		"cancelled wait",
		"cancelled retry",
		"deadline in the retry",
		"error of the limiter",
		"error of the key source",
		"panic of the limiter",
		"panic of the key source",
		"panic of the transport",
	} {
		fixtures.RunInBubble(t, cause, func(t *testing.T) {
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
			client := fixtures.NewClientWithKey(
				t,
				"",
				fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
					_ = retry("transport")
					requests++
					if requests > 1 {
						return fixtures.NoResponse(r)
					}
					return fixtures.Status(503, "Retry-After", "10")(r)
				}),
				msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1}),
				msgpush.WithAttemptTimeout(time.Hour),
				msgpush.WithRateLimiter(fixtures.LimiterFunc(func(context.Context) error { return retry("limiter") })),
				msgpush.WithAccessKeySource(
					msgpush.AccessKeyFunc(
						func(context.Context, string) (string, error) { return fixtures.TestKey, retry("key source") }),
				),
			)
			call := func() (err error) {
				requests = 0
				defer func() { _ = recover() }()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				switch cause {
				case "cancelled wait":
					time.AfterFunc(time.Second, cancel)
				case "cancelled retry":
					time.AfterFunc(20*time.Second, cancel)
				}
				_, err = client.MPList(ctx, msgpush.PageRequest{})
				return err
			}
			err := call()
			if err != nil {
				assert.NotContains(t, err.Error(), quotaUsedUp)
			}
			for range 3 {
				assert.ErrorContains(t, call(), quotaUsedUp)
				assert.Equal(t, 1, requests)
			}
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

func TestQuotaWithoutLimitIsNeverUsedUp(t *testing.T) {
	for _, quota := range []int{-1, math.MaxInt} {
		synctest.Test(t, func(t *testing.T) {
			call := callsWithQuota(t, msgpush.RetryPolicy{Quota: quota, MinWait: 1, MaxWait: 1})
			for range 60 {
				n, err := call(t.Context(), fixtures.Status(503), fixtures.Succeed)
				assert.Equal(t, 2, n)
				assert.NoError(t, err)
				_, err = call(t.Context(), fixtures.Succeed)
				assert.NoError(t, err)
			}
		})
	}
}
