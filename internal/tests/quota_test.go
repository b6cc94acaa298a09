package tests_test

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
	"example.com/msgpush/internal/tests/faults"
	"example.com/msgpush/internal/tests/fixtures"
)

// quotaUsedUp is in the error text if a retry was not made because the retry quota was used up.
const quotaUsedUp = "the retry quota is used up"

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
		{"client without WithRetry", nil, 200, 200 + 1000, 34},
		{"0 means 1,000 within one call", policy(0, 1200), 1, 1 + 1000, 1},
		{"negative means no limit", policy(-1, 1200), 2, 2400, 0},
		{"largest quota", policy(math.MaxInt, 10), 20, 200, 0},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			transport := fixtures.NewScript()
			client, err := msgpush.NewClient(
				"http://push.example.com",
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

func TestRetryReturnsQuotaUnlessItFailsTransiently(t *testing.T) {
	tests := []struct {
		name    string
		retry   []fixtures.RoundTripFunc // after the first attempt
		returns bool                     // the retry gives its quota back
	}{
		{"success", []fixtures.RoundTripFunc{fixtures.Succeed}, true},
		{"HTTP 404", []fixtures.RoundTripFunc{fixtures.Status(404)}, true},
		{"envelope with an error code", []fixtures.RoundTripFunc{fixtures.Respond(200, `{"code":500}`)}, true},
		{"HTML page", []fixtures.RoundTripFunc{fixtures.Respond(200, "<html>")}, true},
		{"permanent failure of the transport", []fixtures.RoundTripFunc{fixtures.Fail(http.ErrSchemeMismatch)}, true},
		{"rejected key, then success", []fixtures.RoundTripFunc{fixtures.Status(401), fixtures.Succeed}, true},
		{"rejected key, then HTTP 503", []fixtures.RoundTripFunc{fixtures.Status(401), fixtures.Status(503)}, true},

		{"HTTP 503", []fixtures.RoundTripFunc{fixtures.Status(503)}, false},
		{"Retry-After longer than MaxWait", []fixtures.RoundTripFunc{fixtures.Status(503, "Retry-After", "3600")}, false},
		{"connection closed", []fixtures.RoundTripFunc{fixtures.Fail(io.EOF)}, false},
		{"timeout", []fixtures.RoundTripFunc{fixtures.NoResponse}, false},
		{"truncated JSON", []fixtures.RoundTripFunc{fixtures.Respond(200, `{"code":2`)}, false},
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
				requests, _ := call(t.Context(), append([]fixtures.RoundTripFunc{fixtures.Status(503)}, tt.retry...)...)
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
		transport := fixtures.NewScript()
		call := callsOf(
			fixtures.NewClientWithKey(t, "", transport, msgpush.WithAccessKeySource(fixtures.GrowingSource),
				msgpush.WithRetry(msgpush.RetryPolicy{Quota: 2, MaxAttempts: 2})),
			transport,
		)
		busy := fixtures.Status(503)
		for i, tt := range []struct {
			calls    int
			steps    []fixtures.RoundTripFunc
			requests int
		}{
			{1, []fixtures.RoundTripFunc{busy, busy}, 2}, // costs one of two retries
			{20, []fixtures.RoundTripFunc{busy, fixtures.Succeed}, 2},
			{20, []fixtures.RoundTripFunc{busy, fixtures.Status(401), fixtures.Succeed}, 3},
			{1, []fixtures.RoundTripFunc{busy, busy}, 2}, // costs the other one
			{1, []fixtures.RoundTripFunc{busy}, 1},
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
	for _, cause := range []string{
		"cancelled wait",
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
					return fixtures.Status(503, "Retry-After", "10")(r)
				}),
				msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1}),
				msgpush.WithRateLimiter(fixtures.LimiterFunc(func(context.Context) error { return retry("limiter") })),
				msgpush.WithAccessKeySource(
					msgpush.AccessKeyFunc(
						func(context.Context, string) (string, error) { return fixtures.TestKey, retry("key source") }),
				),
			)
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
					fixtures.OnlyError[*msgpush.APIError](t, fixtures.OnlyError[*msgpush.RequestError](t, err).Last)
					assert.NotContains(t, err.Error(), quotaUsedUp)
				}
				cancel()
				assert.Equal(t, 1, requests)
			}
		})
	}
}

func TestTenCallsWithoutRetryReturnOneUnitOfQuota(t *testing.T) {
	for name, good := range map[string][]fixtures.RoundTripFunc{
		"successes":          {fixtures.Succeed},
		"permanent failures": {fixtures.Status(404)},
		"HTML pages":         {fixtures.Respond(200, "<html>")},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			call := callsWithQuota(t, msgpush.RetryPolicy{Quota: 3, MinWait: 1, MaxWait: 1})
			retries := func() int {
				requests, err := call(t.Context(), fixtures.Status(503))
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

func TestSecondInWhichCallsSucceedReturnsTwentiethOfQuota(t *testing.T) {
	tests := []struct {
		name              string
		succeeded, failed int // first attempts in a second
		want              int // retries in the next second
	}{
		{"one success", 1, 0, 5},
		{"as many failures", 3, 3, 5},
		{"more failures", 3, 4, 0},
		{"only failures", 0, 1, 0},
		{"no call", 0, 0, 0},
		{"every ten successes return one, too", 10, 0, 5 + 1},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			call := callsWithQuota(t, msgpush.RetryPolicy{Quota: 100, MaxAttempts: 1000, MinWait: 1, MaxWait: 1})
			retries := func() int {
				requests, err := call(t.Context(), fixtures.Status(503))
				require.ErrorContains(t, err, quotaUsedUp)
				return requests - 1
			}
			require.Equal(t, 100, retries())
			time.Sleep(time.Minute)
			for range tt.failed {
				assert.Zero(t, retries())
			}
			for range tt.succeeded {
				_, err := call(t.Context(), fixtures.Succeed)
				require.NoError(t, err)
			}
			time.Sleep(time.Second)
			assert.Equal(t, tt.want, retries())
			time.Sleep(time.Minute)
			assert.Zero(t, retries(), "no other call has succeeded")
		})
	}
}

func TestTwentySecondsOfSuccessesFillQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := callsWithQuota(t, msgpush.RetryPolicy{Quota: 100, MaxAttempts: 1000, MinWait: 1, MaxWait: 1})
		for range 2 {
			requests, err := call(t.Context(), fixtures.Status(503))
			require.ErrorContains(t, err, quotaUsedUp)
			assert.Equal(t, 1+100, requests)
			for range 25 {
				time.Sleep(990 * time.Millisecond)
				_, err := call(t.Context(), fixtures.Succeed)
				require.NoError(t, err)
			}
		}
	})
}

func TestSmallQuotaIsRefilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := callsWithQuota(t, msgpush.RetryPolicy{Quota: 2, MinWait: 1, MaxWait: 1})
		for _, want := range []int{1 + 2, 1 + 1, 1 + 1} {
			requests, err := call(t.Context(), fixtures.Status(503))
			require.ErrorContains(t, err, quotaUsedUp)
			assert.Equal(t, want, requests)
			time.Sleep(time.Second)
			_, err = call(t.Context(), fixtures.Succeed)
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
	})
}

// The end of the context of the caller says nothing about the service.
func TestCallsThatTheirCallerEndsReturnNoQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := callsWithQuota(t, msgpush.RetryPolicy{Quota: 100, MaxAttempts: 1000, MinWait: 1, MaxWait: 1})
		_, err := call(t.Context(), fixtures.Status(503))
		require.ErrorContains(t, err, quotaUsedUp)
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := call(ctx, fixtures.NoResponse)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		requests, _ := call(t.Context(), fixtures.Status(503))
		assert.Equal(t, 1, requests)
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

func TestRetryThatTheContextEndsUsesUpQuotaUnlessItIsCanceled(t *testing.T) {
	silent := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	withTimeout := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Second)
	}
	withCancel := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		return ctx, cancel
	}
	tests := []struct {
		name     string
		end      func(context.Context) (context.Context, context.CancelFunc)
		requests []int // of each call
	}{
		{"the deadline passes", withTimeout, []int{2, 1, 1}},
		{"the caller cancels", withCancel, []int{2, 2, 2}}, // the service has not failed
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			call := callsWithQuota(t, msgpush.RetryPolicy{Quota: 1, MinWait: 1, MaxWait: 1})
			for _, want := range tt.requests {
				ctx, cancel := tt.end(t.Context())
				n, err := call(ctx, fixtures.Status(503), silent)
				cancel()
				assert.Equal(t, want, n)
				assert.Error(t, err)
			}
		})
	}
}

// The refill of each second must not overflow.
func TestQuotaWithoutLimitIsNeverUsedUp(t *testing.T) {
	for _, quota := range []int{-1, math.MaxInt, math.MaxInt / 10, math.MaxInt / 20} {
		synctest.Test(t, func(t *testing.T) {
			call := callsWithQuota(t, msgpush.RetryPolicy{Quota: quota, MinWait: 1, MaxWait: 1})
			for range 60 {
				n, err := call(t.Context(), fixtures.Status(503), fixtures.Succeed)
				assert.Equal(t, 2, n)
				assert.NoError(t, err)
				_, err = call(t.Context(), fixtures.Succeed)
				assert.NoError(t, err)
				time.Sleep(time.Second)
			}
		})
	}
}
