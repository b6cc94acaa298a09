package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestSuccessEndsRetries(t *testing.T) {
	for name, fault := range map[string]msgpushtest.Fault{
		"HTTP 503": msgpushtest.Status(503), "connection reset": msgpushtest.Reset(), "connection closed mid-body": msgpushtest.Truncate(),
		"timeout": msgpushtest.Delay(time.Hour), "truncated JSON": msgpushtest.Respond(serveJSON(`{"code":2`)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := msgpushtest.New(t, msgpushtest.InMemory())
				service.SetRecords(msgpushtest.SampleRecords())
				service.Inject(fault, fault)
				page, err := service.Client(defaultRetries).ForwardRuleList(t.Context(), msgpush.PageRequest{})
				require.NoError(t, err)
				assert.Equal(t, service.Records().ForwardRules, page.List)
				assert.Len(t, service.Requests(), 3)
			})
		})
	}
}

func TestMaxAttemptsLimitsAttempts(t *testing.T) {
	for attempts, opts := range map[int][]msgpush.Option{
		1: {msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1})},
		2: {msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 2})},
		7: nil, // the default
		9: {msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 9})},
	} {
		synctest.Test(t, func(t *testing.T) {
			transport := newScript(status(502))
			client, err := msgpush.NewClient("http://push.example.com", testKey,
				append(opts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))...)
			require.NoError(t, err)
			_, err = client.MPList(t.Context(), msgpush.PageRequest{})
			assert.Len(t, transport.times, attempts)
			assertAttempts(t, attempts, err)
		})
	}
}

// drawWaits makes calls that fail with step. It returns the waits before the first
// retry of each call, the waits before the second retry, and so on.
func drawWaits(t *testing.T, policy msgpush.RetryPolicy, draws int, step roundTripFunc) [][]time.Duration {
	t.Helper()
	var waits [][]time.Duration
	policy.Quota = -1
	for range draws {
		transport := newScript(step)
		_, err := newClientWithTransport(t, transport, msgpush.WithRetry(policy)).MPList(t.Context(), msgpush.PageRequest{})
		require.Error(t, err)
		require.Greater(t, len(transport.times), 1, "retries")
		if waits == nil {
			waits = make([][]time.Duration, len(transport.times)-1)
		}
		for i := range waits {
			waits[i] = append(waits[i], transport.times[i+1]-transport.times[i])
		}
	}
	return waits
}

// assertUniform checks that waits are distributed uniformly over an interval.
func assertUniform(t *testing.T, from, to time.Duration, waits []time.Duration) {
	t.Helper()
	var sum time.Duration
	for _, wait := range waits {
		sum += wait - from
	}
	length := to - from
	assert.GreaterOrEqual(t, slices.Min(waits), from)
	assert.LessOrEqual(t, slices.Max(waits), to)
	assert.Less(t, slices.Min(waits), from+length/10)
	assert.Greater(t, slices.Max(waits), to-length/10)
	assert.InEpsilon(t, length/2, sum/time.Duration(len(waits)), 0.2, "the mean")
}

func TestWaitsGrowExponentiallyWithFullJitter(t *testing.T) {
	ms, s := time.Millisecond, time.Second
	tests := []struct {
		name   string
		policy msgpush.RetryPolicy
		bounds []time.Duration
	}{
		{"default", msgpush.RetryPolicy{}, []time.Duration{200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms}},
		{"default MaxWait", msgpush.RetryPolicy{MaxAttempts: 4, MinWait: 20 * s}, []time.Duration{20 * s, 30 * s, 30 * s}},
		{"up to MaxWait", msgpush.RetryPolicy{MaxAttempts: 6, MinWait: s, MaxWait: 5 * s}, []time.Duration{s, 2 * s, 4 * s, 5 * s, 5 * s}},
		{"only MaxWait, shorter than the default MinWait", msgpush.RetryPolicy{MaxAttempts: 3, MaxWait: 50 * ms}, []time.Duration{50 * ms, 50 * ms}},
		{"only MinWait, longer than the default MaxWait", msgpush.RetryPolicy{MaxAttempts: 3, MinWait: time.Hour}, []time.Duration{time.Hour, time.Hour}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				waits := drawWaits(t, tt.policy, 400, status(500))
				require.Len(t, waits, len(tt.bounds))
				for i, bound := range tt.bounds {
					assertUniform(t, 0, bound, waits[i])
				}
			})
		})
	}
}

func TestLongestWaitsDoNotOverflow(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	longest := msgpush.RetryPolicy{MaxAttempts: 2, MinWait: math.MaxInt64, MaxWait: math.MaxInt64}
	t.Run("backoff", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			assert.Positive(t, drawWaits(t, longest, 1, status(500))[0][0])
		})
	})
	t.Run("backoff after Retry-After", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			assert.Greater(t, drawWaits(t, longest, 1, status(503, "Retry-After", "9223372036"))[0][0], century)
		})
	})
	t.Run("70 attempts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			policy := msgpush.RetryPolicy{MaxAttempts: 70, MinWait: 1, MaxWait: time.Minute}
			waits := drawWaits(t, policy, 20, fail(io.EOF))
			require.Len(t, waits, 69)
			assert.LessOrEqual(t, slices.Max(waits[68]), time.Minute)
			assert.Greater(t, slices.Max(waits[68]), time.Second)
		})
	})
}

func TestWaitIsRetryAfterPlusJitter(t *testing.T) {
	const in7Seconds = "the time in 7 seconds as an HTTP date"
	tests := []struct {
		status  int
		header  string // empty: none
		maxWait time.Duration
		want    time.Duration
	}{
		{429, "7", 0, 7 * time.Second},
		{503, "7", 0, 7 * time.Second},
		{503, "30", 0, 30 * time.Second}, // equal to the default MaxWait, not longer
		{429, in7Seconds, 0, 7 * time.Second},
		{503, in7Seconds, 0, 7 * time.Second},
		{429, "Sat, 01 Jan 2000 00:00:00 GMT", 0, 0},
		{429, "0", 0, 0},
		{503, "0", 0, 0},
		{503, "", 0, 0},
		{503, "soon", 0, 0},
		{503, "-7", 0, 0},
		{500, "7", 0, 0},
		{502, "7", 0, 0},
		{429, "", 0, time.Second},
		{429, "soon", 0, time.Second},
		{429, "-7", 0, time.Second},
		{429, "", 300 * time.Millisecond, 300 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d %q, MaxWait %v", tt.status, tt.header, tt.maxWait), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				step := status(tt.status)
				if tt.header == in7Seconds {
					step = func(r *http.Request) (*http.Response, error) {
						time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // an HTTP date has whole seconds
						return status(tt.status, "Retry-After", time.Now().Add(7*time.Second).UTC().Format(http.TimeFormat))(r)
					}
				} else if tt.header != "" {
					step = status(tt.status, "Retry-After", tt.header)
				}
				const jitter = 200 * time.Millisecond
				waits := drawWaits(t, msgpush.RetryPolicy{MaxAttempts: 2, MaxWait: tt.maxWait}, 400, step)
				if tt.header == in7Seconds {
					for i := range waits[0] {
						waits[0][i] -= time.Second // the duration of the first response
					}
				}
				assertUniform(t, tt.want, tt.want+jitter, waits[0])
			})
		})
	}
}

func TestJitterSpreadsCallersWithSameRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 150
		start := time.Now()
		service := msgpushtest.New(t, msgpushtest.InMemory())
		busy := msgpushtest.Status(503).WithHeader("Retry-After", "1")
		service.Inject(slices.Repeat([]msgpushtest.Fault{busy}, callers)...)
		client := service.Client(defaultRetries)
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		require.Len(t, service.Requests(), 2*callers)
		retries := map[time.Duration]int{} // in intervals of 10 ms
		for _, r := range service.Requests()[callers:] {
			retries[r.Time.Sub(start).Truncate(10*time.Millisecond)]++
		}
		for since, n := range retries {
			assert.GreaterOrEqual(t, since, time.Second)
			assert.Less(t, n, callers/4, "retries after %v", since)
		}
	})
}

func TestRetryAfterLongerThanMaxWaitFailsImmediately(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"31": 31 * time.Second, "86400": 24 * time.Hour, "99999999999999999999": math.MaxInt64, "9223372036": 9223372036 * time.Second,
	} {
		for name, step := range map[string]roundTripFunc{
			"429": status(429, "Retry-After", header), "503": status(503, "Retry-After", header), "503 with a truncated body": respondFrom(503, cutBody(`{"code":200,`), "Retry-After", header),
		} {
			t.Run(name+" "+header, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					transport := newScript(step)
					_, err := newClientWithTransport(t, transport, defaultRetries).MPList(t.Context(), msgpush.PageRequest{})
					assert.Equal(t, want, onlyError[*msgpush.APIError](t, err).RetryAfter)
					assertAttempts(t, 1, err)
					assert.ErrorContains(t, err, "retry after "+want.String())
					assert.ErrorContains(t, err, "Retry-After is longer than MaxWait, 30s")
					assert.Equal(t, []time.Duration{0}, transport.times)
					assert.Zero(t, time.Since(transport.start))
				})
			})
		}
	}
}

func TestDoesNotRetryIfWaitExceedsDeadline(t *testing.T) {
	ms := time.Millisecond
	tests := []struct {
		name    string
		step    roundTripFunc
		timeout time.Duration
		fits    bool
	}{
		{"Retry-After of 5s, 1s left", status(503, "Retry-After", "5"), time.Second, false},
		{"Retry-After of 5s, 4s left", status(503, "Retry-After", "5"), 4 * time.Second, false},
		{"Retry-After of 5s, 5s left", status(503, "Retry-After", "5"), 5 * time.Second, false},
		{"Retry-After of 5s, 5.2s left", status(503, "Retry-After", "5"), 5200*ms + 1, true},
		{"429 without Retry-After, 1s left", status(429), time.Second, false},
		{"429 without Retry-After, 1.2s left", status(429), 1200*ms + 1, true},
		{"connection closed, 200ms left", fail(io.EOF), 200*ms + 1, true},
		{"truncated JSON, 200ms left", respond(200, `{"code":2`), 200*ms + 1, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				transport := newScript(tt.step, succeed)
				_, err := newClientWithTransport(t, transport, defaultRetries).MPList(ctx, msgpush.PageRequest{})
				if tt.fits {
					require.NoError(t, err)
					return
				}
				assert.Zero(t, time.Since(transport.start))
				onlyError[*msgpush.APIError](t, err)
				assert.NotErrorIs(t, err, context.DeadlineExceeded, "no deadline has passed")
				assertAttempts(t, 1, err)
				assert.ErrorContains(t, err, "no time for a retry before the deadline")
			})
		})
	}
	t.Run("failures without Retry-After", func(t *testing.T) {
		for _, step := range []roundTripFunc{fail(io.EOF), respond(200, `{"code":2`), respondFrom(200, cutBody("{"))} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 1)
				defer cancel()
				transport := newScript(step)
				policy := msgpush.RetryPolicy{MinWait: math.MaxInt64, MaxWait: math.MaxInt64}
				_, err := newClientWithTransport(t, transport, msgpush.WithRetry(policy)).MPList(ctx, msgpush.PageRequest{})
				assert.Zero(t, time.Since(transport.start))
				assert.NotErrorIs(t, err, context.DeadlineExceeded, "no deadline has passed")
				assertAttempts(t, 1, err)
				assert.ErrorContains(t, err, "no time for a retry before the deadline")
			})
		}
	})
}

func TestReturnsLastFailure(t *testing.T) {
	tests := []struct {
		name     string
		steps    []roundTripFunc
		attempts int
		check    func(*testing.T, error)
	}{
		{"HTTP 503", []roundTripFunc{fail(io.EOF), status(500), status(503, "Retry-After", "2")}, 7, func(t *testing.T, err error) {
			assert.Equal(t, 5030, onlyError[*msgpush.APIError](t, err).Code)
		}},
		{"connection closed", []roundTripFunc{status(500), respond(200, ""), fail(io.EOF)}, 7, func(t *testing.T, err error) {
			assert.NoError(t, onlyError[*msgpush.RequestError](t, err).Last)
			assert.ErrorIs(t, err, io.EOF)
		}},
		{"JSON that ends too early", []roundTripFunc{status(500), respond(200, `{"code":2`)}, 7, func(t *testing.T, err error) {
			assert.Equal(t, `{"code":2`, string(onlyError[*msgpush.DecodeError](t, err).Body))
		}},
		{"permanent failure after transient ones", []roundTripFunc{status(500), fail(io.EOF), status(404)}, 3, func(t *testing.T, err error) {
			assert.Equal(t, 4040, onlyError[*msgpush.APIError](t, err).Code)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := newClientWithTransport(t, newScript(tt.steps...), defaultRetries).MPList(t.Context(), msgpush.PageRequest{})
				assertAttempts(t, tt.attempts, err)
				tt.check(t, err)
			})
		})
	}
}

func TestRetriesOnlyTransientStatuses(t *testing.T) {
	transient := []int{408, 425, 429, 500, 502, 503, 504}
	synctest.Test(t, func(t *testing.T) {
		for code := 201; code < 600; code++ {
			attempts := 1
			if slices.Contains(transient, code) {
				attempts = 3
			}
			transport := newScript(status(code))
			_, err := newClientWithTransport(t, transport, threeAttempts).MPList(t.Context(), msgpush.PageRequest{})
			assert.Equal(t, code, onlyError[*msgpush.APIError](t, err).HTTPStatus)
			assert.Len(t, transport.times, attempts, "HTTP %d", code)
		}
	})
}

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
	return callsOf(newClientWithTransport(t, transport, msgpush.WithRetry(policy)), transport)
}

func TestEachRetryTakesOneUnitOfQuota(t *testing.T) {
	tests := []struct {
		name                  string
		quota, maxAttempts    int
		calls                 int
		requests, quotaErrors int // of all calls
	}{
		{"quota of 1", 1, 7, 3, 3 + 1, 3},
		{"quota for one and a half calls", 9, 7, 4, 4 + 9, 3},
		{"0 means 1,000", 0, 7, 200, 200 + 1000, 34},
		{"0 means 1,000 within one call", 0, 1200, 1, 1 + 1000, 1},
		{"negative means no limit", -1, 1200, 2, 2400, 0},
		{"largest quota", math.MaxInt, 10, 20, 200, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				call := callsWithQuota(t, msgpush.RetryPolicy{Quota: tt.quota, MaxAttempts: tt.maxAttempts, MinWait: 1, MaxWait: 1})
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
		})
	}
	t.Run("client without WithRetry", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			transport := newScript(status(503))
			client, err := msgpush.NewClient("http://push.example.com", testKey, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			require.NoError(t, err)
			for range 200 {
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				require.Error(t, err)
			}
			assert.Len(t, transport.times, 200+1000)
		})
	})
}

func TestReturnsFailureImmediatelyWithoutQuota(t *testing.T) {
	for name, tt := range map[string]struct {
		step  roundTripFunc
		check func(*testing.T, error)
	}{
		"HTTP 503":          {status(503), func(t *testing.T, err error) { onlyError[*msgpush.APIError](t, err) }},
		"truncated JSON":    {respond(200, `{"code":2`), func(t *testing.T, err error) { onlyError[*msgpush.DecodeError](t, err) }},
		"connection closed": {fail(io.EOF), func(t *testing.T, err error) { onlyError[*msgpush.RequestError](t, err) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				call := callsWithQuota(t, msgpush.RetryPolicy{Quota: 1, MaxAttempts: 2})
				_, err := call(t.Context(), tt.step)
				assertAttempts(t, 2, err)
				assert.NotContains(t, err.Error(), quotaUsedUp, "the quota was enough")
				start := time.Now()
				_, err = call(t.Context(), tt.step)
				assert.Zero(t, time.Since(start))
				tt.check(t, err)
				assertAttempts(t, 1, err)
				assert.Equal(t, 1, strings.Count(err.Error(), quotaUsedUp), err.Error())
			})
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
		{"HTTP 429", []roundTripFunc{status(429)}, false},
		{"Retry-After longer than MaxWait", []roundTripFunc{status(503, "Retry-After", "3600")}, false},
		{"connection closed", []roundTripFunc{fail(io.EOF)}, false},
		{"timeout", []roundTripFunc{noResponse}, false},
		{"truncated JSON", []roundTripFunc{respond(200, `{"code":2`)}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := newScript()
				call := callsOf(newClientWithSource(t, growingSource, transport, msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1, MaxAttempts: 2})), transport)
				for i := range 30 {
					requests, _ := call(t.Context(), append([]roundTripFunc{status(503)}, tt.retry...)...)
					if i == 0 || tt.returns {
						assert.Equal(t, 1+len(tt.retry), requests, "call %d", i+1)
					} else {
						assert.Equal(t, 1, requests, "call %d", i+1)
					}
				}
			})
		})
	}
}

func TestRetryNotMadeReturnsQuota(t *testing.T) {
	// onRetry returns err once the call has sent a request, so that only its retry fails.
	type onRetry func(err error) error
	tests := map[string]func(onRetry) msgpush.Option{ // nil: the wait is cancelled
		"cancelled wait": nil,
		"failure of the limiter": func(f onRetry) msgpush.Option {
			return msgpush.WithRateLimiter(limiterFunc(func(context.Context) error { return f(errors.New("no tokens")) }))
		},
		"failure of the key source": func(f onRetry) msgpush.Option {
			return msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(context.Context, string) (string, error) {
				return testKey, f(errors.New("no key"))
			}))
		},
	}
	for name, opt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := newScript()
				opts := []msgpush.Option{msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1})}
				if opt != nil {
					opts = append(opts, opt(func(err error) error {
						if len(transport.times) > 0 {
							return err
						}
						return nil
					}))
				}
				call := callsOf(newClientWithSource(t, fixedSource, transport, opts...), transport)
				for range 5 {
					ctx, cancel := context.WithCancel(t.Context())
					if opt == nil {
						time.AfterFunc(time.Second, cancel)
					}
					requests, err := call(ctx, status(503, "Retry-After", "10"))
					cancel()
					assert.Equal(t, 1, requests)
					onlyError[*msgpush.APIError](t, onlyError[*msgpush.RequestError](t, err).Last)
					assert.NotContains(t, err.Error(), quotaUsedUp)
				}
			})
		})
	}
}

func TestTenCallsWithoutRetryReturnOneUnitOfQuota(t *testing.T) {
	for name, good := range map[string][]roundTripFunc{
		"successes": {succeed}, "permanent failures": {status(404)}, "HTML pages": {respond(200, "<html>")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
		})
	}
}

func TestRetriedCallReturnsNoMoreQuotaThanItTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := callsWithQuota(t, msgpush.RetryPolicy{Quota: 2, MaxAttempts: 2})
		requests, _ := call(t.Context(), status(503))
		require.Equal(t, 2, requests)
		for range 20 { // the quota has one retry left
			requests, err := call(t.Context(), status(503), succeed)
			require.NoError(t, err)
			require.Equal(t, 2, requests)
		}
		requests, _ = call(t.Context(), status(503))
		assert.Equal(t, 2, requests)
		requests, _ = call(t.Context(), status(503))
		assert.Equal(t, 1, requests)
	})
}

// A loadOfCallers is a number of callers, each of which makes one call after another.
type loadOfCallers struct {
	callers, calls int           // calls of each caller
	interval       time.Duration // from one call to the next; if a call takes longer, the next one follows immediately
}

// run makes the calls with a new client that has the default policy. It returns how many
// failed, and the number of requests.
func (l loadOfCallers) run(t *testing.T, service roundTripFunc) (failed, requests int64) {
	t.Helper()
	var failures, sent atomic.Int64
	client := newClientWithTransport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
		sent.Add(1)
		return service(r)
	}), defaultRetries)
	var wg sync.WaitGroup
	for range l.callers {
		wg.Go(func() {
			time.Sleep(rand.N(l.interval + 1))
			for range l.calls {
				next := time.Now().Add(l.interval)
				if _, err := client.MPList(t.Context(), msgpush.PageRequest{}); err != nil {
					failures.Add(1)
				}
				time.Sleep(time.Until(next))
			}
		})
	}
	wg.Wait()
	return failures.Load(), sent.Load()
}

// after returns a service that responds with step after d.
func after(d time.Duration, step roundTripFunc) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		time.Sleep(d)
		return step(r)
	}
}

// downFor2Seconds returns a service that, after 3 s, cannot be reached for 2 s.
func downFor2Seconds() roundTripFunc {
	start := time.Now()
	return func(r *http.Request) (*http.Response, error) {
		if since := time.Since(start); since >= 3*time.Second && since < 5*time.Second {
			return nil, errors.New("connection refused")
		}
		return after(20*time.Millisecond, succeed)(r)
	}
}

func TestDefaultQuotaOutlastsShortOutageForAnyNumberOfCallers(t *testing.T) {
	for _, callers := range []int{64, 250, 400, 800} {
		t.Run(fmt.Sprint(callers, " callers"), func(t *testing.T) {
			var failed, calls int64
			for range 1 + 800/callers { // more outages for fewer callers, so that chance does not decide
				synctest.Test(t, func(t *testing.T) {
					load := loadOfCallers{callers: callers, calls: 10, interval: time.Second}
					n, _ := load.run(t, downFor2Seconds())
					failed += n
					calls += int64(load.callers * load.calls)
				})
			}
			t.Logf("%d of %d calls failed", failed, calls)
			assert.LessOrEqual(t, float64(failed), 0.003*float64(calls), "calls that failed")
		})
	}
	t.Run("64 callers without a pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			failed, _ := loadOfCallers{callers: 64, calls: 200}.run(t, downFor2Seconds())
			assert.LessOrEqual(t, failed, int64(64*200*3/1000))
		})
	})
}

func TestDefaultQuotaLimitsLoadOfLastingOutage(t *testing.T) {
	for _, tt := range []struct{ callers, calls, retries int }{
		{1, 800, 1000},
		{64, 12_800, 1000}, // 1.08 requests a call
		{125, 12_500, 1000},
		{126, 12_600, 8 * 126},
		{800, 12_800, 8 * 800},
	} {
		t.Run(fmt.Sprint(tt.callers, " callers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failed, requests := loadOfCallers{callers: tt.callers, calls: tt.calls / tt.callers}.run(t, after(20*time.Millisecond, status(503)))
				t.Logf("%d calls, %d requests", tt.calls, requests)
				assert.EqualValues(t, tt.calls, failed)
				assert.EqualValues(t, tt.calls+tt.retries, requests)
			})
		})
	}
}

func TestDefaultQuotaSufficesForServiceThatLimitsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := loadOfCallers{callers: 600, calls: 40}
		failed, _ := load.run(t, after(20*time.Millisecond, func(r *http.Request) (*http.Response, error) {
			if rand.N(3) == 0 {
				return status(429)(r)
			}
			return succeed(r)
		}))
		t.Logf("%d of %d calls failed", failed, load.callers*load.calls)
		assert.LessOrEqual(t, failed, int64(load.callers*load.calls/100))
	})
}

func TestDefaultQuotaIsEightRetriesForEachOfTheMostCallsAtATime(t *testing.T) {
	useOneThread(t)
	const most = 300
	for name, tt := range map[string]struct{ quota, retries int }{"default": {0, 8 * most}, "fixed": {500, 500}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
				client := newClientWithTransport(t, after(time.Second, func(r *http.Request) (*http.Response, error) {
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
		})
	}
}

func TestQuotaLimitsRetriesDuringOutageAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, callsEach, quota = 16, 100, 1000
		service := msgpushtest.New(t, msgpushtest.InMemory())
		service.Inject(msgpushtest.Status(503).Always())
		client := service.Client(defaultRetries)
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range callsEach {
					_, err := client.MPList(t.Context(), msgpush.PageRequest{})
					assert.Error(t, err)
				}
			})
		}
		wg.Wait()
		assert.Len(t, service.Requests(), callers*callsEach+quota)

		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		assert.ErrorContains(t, err, quotaUsedUp)
		service.ClearFaults()
		for range 10 {
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			require.NoError(t, err)
		}
		service.ClearRequests()
		service.Inject(msgpushtest.Status(503))
		_, err = client.MPList(t.Context(), msgpush.PageRequest{})
		require.NoError(t, err)
		assert.Len(t, service.Requests(), 2)
	})
}

func TestParsesRetryAfter(t *testing.T) {
	// in returns a date relative to the response, which arrives after 9 s.
	in := func(d time.Duration) func() string {
		return func() string { return time.Now().Add(9*time.Second + d).UTC().Format(http.TimeFormat) }
	}
	is := func(header string) func() string { return func() string { return header } }
	tests := []struct {
		name   string
		header func() string // nil: none
		want   time.Duration
	}{
		{"seconds", is("120"), 2 * time.Minute},
		{"zero", is("0"), 0},
		{"date", in(time.Hour), time.Hour},
		{"past date", in(-time.Hour), 0},
		{"negative", is("-5"), 0},
		{"fraction", is("1.5"), 0},
		{"words", is("soon"), 0},
		{"empty", is(""), 0},
		{"missing", nil, 0},
		{"more seconds than a Duration holds", is("10000000000"), math.MaxInt64},
		{"more seconds than an integer holds", is(strings.Repeat("9", 40)), math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				response := respond(http.StatusConflict, "")
				if tt.header != nil {
					response = respond(http.StatusConflict, "", "Retry-After", tt.header())
				}
				_, err := newClientWithTransport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
					time.Sleep(9 * time.Second)
					return response(r)
				})).MPList(t.Context(), msgpush.PageRequest{})
				assert.Equal(t, tt.want, onlyError[*msgpush.APIError](t, err).RetryAfter)
			})
		})
	}
}

func TestRetriesNonIdempotentRequestOnlyIfNoConnectionWasMade(t *testing.T) {
	failingDials := func(n int) *http.Transport {
		return &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if n--; n >= 0 {
				return nil, errors.New("no route")
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
	}
	tests := []struct {
		name      string
		transport http.RoundTripper
		attempts  int
		arrived   int // requests
	}{
		{"connection lost", failingDials(0), 1, 1},
		{"two dials fail, then the connection is lost", failingDials(2), 3, 1},
		{"every dial fails", failingDials(100), 5, 0},
		{"transport without httptrace, dial fails", fail(&net.OpError{Op: "dial", Err: errors.New("refused")}), 5, 0},
		{"transport without httptrace, write fails", fail(&net.OpError{Op: "write", Err: errors.New("broken pipe")}), 1, 0},
		{"transport without httptrace, untyped error", fail(errors.New("refused")), 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			service := msgpushtest.New(t)
			service.Inject(msgpushtest.Reset().Always())
			if transport, ok := tt.transport.(*http.Transport); ok {
				defer transport.CloseIdleConnections()
			}
			client := service.Client(msgpush.WithHTTPClient(&http.Client{Transport: tt.transport}),
				msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 5, MinWait: 1, MaxWait: 1}))
			_, err := msgpush.Call[any](t.Context(), client, msgpush.Request{Method: "POST", Path: "/api/open/x", Body: 1})
			onlyError[*msgpush.RequestError](t, err)
			assertAttempts(t, tt.attempts, err)
			assert.Len(t, service.Requests(), tt.arrived)
			service.ClearFaults() // an unused fault fails the test, but a case may send no request
		})
	}
}

func TestPanicReturnsRetryQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := newScript(status(503), func(*http.Request) (*http.Response, error) { panic("broken transport") },
			status(503), func(*http.Request) (*http.Response, error) { panic("broken transport") },
			status(503), succeed)
		client := newClientWithTransport(t, transport, msgpush.WithRetry(msgpush.RetryPolicy{Quota: 1}))
		for range 2 {
			assert.PanicsWithValue(t, "broken transport", func() { _, _ = client.MPList(t.Context(), msgpush.PageRequest{}) })
		}
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		assert.NoError(t, err, "no quota is left")
	})
}

// reach sends a request with ctx, as a key source or a limiter may do that uses
// net/http. It reports whether there was a response.
func reach(ctx context.Context, url string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(r)
	if err == nil {
		resp.Body.Close()
	}
	return err == nil
}

// refusedURL returns a URL at which no server listens.
func refusedURL(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(nil)
	server.Close()
	return server.URL
}

// A key source, a limiter and a transport may use net/http with the context that they
// get. Whether these requests find a server says nothing about the request of the call.
func TestRequestThatIsNotIdempotentIsSentOnceWhateverUsesItsContext(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for name, elsewhere := range map[string]string{"which finds a server": other.URL, "which finds no server": refusedURL(t)} {
		var sent atomic.Int32
		untraced := func(*http.Request) (*http.Response, error) { sent.Add(1); return nil, io.EOF } // as if it had sent the request
		service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			sent.Add(1)
			panic(http.ErrAbortHandler)
		}))
		defer service.Close()
		traced := &http.Transport{}
		defer traced.CloseIdleConnections()
		dialing := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			reach(ctx, elsewhere)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
		defer dialing.CloseIdleConnections()
		source := msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(ctx context.Context, _ string) (string, error) {
			reach(ctx, elsewhere)
			return testKey, nil
		}))
		limiter := msgpush.WithRateLimiter(limiterFunc(func(ctx context.Context) error { reach(ctx, elsewhere); return nil }))
		before := func(next roundTripFunc) http.RoundTripper {
			return roundTripFunc(func(r *http.Request) (*http.Response, error) {
				reach(r.Context(), elsewhere) // for a token
				return next(r)
			})
		}
		after := func(next roundTripFunc) http.RoundTripper {
			return roundTripFunc(func(r *http.Request) (*http.Response, error) {
				resp, err := next(r)
				reach(r.Context(), elsewhere) // to report the failure
				return resp, err
			})
		}
		for user, tt := range map[string]struct {
			transport http.RoundTripper
			opt       msgpush.Option
		}{
			"key source, transport without a trace": {roundTripFunc(untraced), source},
			"key source, transport of net/http":     {traced, source},
			"limiter, transport without a trace":    {roundTripFunc(untraced), limiter},
			"limiter, transport of net/http":        {traced, limiter},
			"dialer, transport of net/http":         {dialing, threeAttempts},
			"transport before it sends, untraced":   {before(untraced), threeAttempts},
			"transport before it sends, net/http":   {before(traced.RoundTrip), threeAttempts},
			"transport after it has sent, untraced": {after(untraced), threeAttempts},
			"transport after it has sent, net/http": {after(traced.RoundTrip), threeAttempts},
			"transport that drops the trace, net/http": {roundTripFunc(func(r *http.Request) (*http.Response, error) {
				return traced.RoundTrip(r.WithContext(context.Background()))
			}), threeAttempts},
		} {
			t.Run(user+", "+name, func(t *testing.T) {
				sent.Store(0)
				opts := []msgpush.Option{threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: tt.transport}), tt.opt}
				key := testKey
				if strings.HasPrefix(user, "key source") {
					key = ""
				}
				client, err := msgpush.NewClient(service.URL, key, opts...)
				require.NoError(t, err)
				_, err = msgpush.Call[any](t.Context(), client, post)
				onlyError[*msgpush.RequestError](t, err)
				assertAttempts(t, 1, err)
				assert.EqualValues(t, 1, sent.Load())
			})
		}
	}
}

func TestRequestThatIsNotIdempotentIsRetriedIfNoConnectionWasMadeWhateverUsesItsContext(t *testing.T) {
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	uses := map[string]msgpush.Option{
		"key source": msgpush.WithAccessKeySource(msgpush.AccessKeyFunc(func(ctx context.Context, _ string) (string, error) {
			reach(ctx, other.URL)
			return testKey, nil
		})),
		"limiter": msgpush.WithRateLimiter(limiterFunc(func(ctx context.Context) error { reach(ctx, other.URL); return nil })),
	}
	plain := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route") }}
	transports := map[string]http.RoundTripper{
		"transport of net/http": plain,
		"wrapped transport":     roundTripFunc(plain.RoundTrip),
		"error of a dial":       fail(&net.OpError{Op: "dial", Err: errors.New("refused")}),
		"error of a proxy":      fail(&net.OpError{Op: "proxyconnect", Err: errors.New("refused")}),
	}
	for user, opt := range uses {
		for name, transport := range transports {
			t.Run(user+", "+name, func(t *testing.T) {
				key := testKey
				if user == "key source" {
					key = ""
				}
				client, err := msgpush.NewClient("http://push.example.com", key, threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: transport}), opt)
				require.NoError(t, err)
				_, err = msgpush.Call[any](t.Context(), client, post)
				assertAttempts(t, 3, err)
			})
		}
	}
}

// net/http makes another connection if it has written nothing to a stale one.
func TestRequestThatIsNotIdempotentIsRetriedIfNoConnectionReplacesStaleOne(t *testing.T) {
	refused := func(context.Context) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	tests := []struct {
		name    string
		scheme  string
		method  string
		failing func(context.Context) (net.Conn, error) // the second dial
		retried bool
	}{
		{"connection refused", "http", "POST", refused, true},
		{"untyped error", "http", "PUT", func(context.Context) (net.Conn, error) { return nil, errors.New("no route") }, true},
		{"timeout", "http", "DELETE", func(context.Context) (net.Conn, error) { return nil, context.DeadlineExceeded }, true},
		{"handshake that breaks off", "https", "POST", func(context.Context) (net.Conn, error) {
			client, server := net.Pipe()
			server.Close()
			return client, nil
		}, true},
		// net/http also resends a GET if the server may have processed it.
		{"GET", "http", "GET", refused, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var requests, dials atomic.Int32
			server, transport := newTLSService(t, false, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				serveJSON(success)(w, r)
			})
			if tt.scheme == "http" {
				server = httptest.NewServer(server.Config.Handler)
				defer server.Close()
			}
			transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				n := dials.Add(1)
				if n == 2 {
					return tt.failing(ctx)
				}
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if n == 1 && err == nil {
					return &staleConn{Conn: conn, requests: &requests}, nil
				}
				return conn, err
			}
			client := newClientAt(t, server.URL, threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			r := msgpush.Request{Method: tt.method, Path: "/x"}
			_, err := msgpush.Call[any](t.Context(), client, r)
			require.NoError(t, err)
			_, err = msgpush.Call[any](t.Context(), client, r)
			if !tt.retried {
				assertAttempts(t, 1, err)
				return
			}
			require.NoError(t, err)
			assert.EqualValues(t, 2, requests.Load())
			assert.EqualValues(t, 3, dials.Load())
		})
	}
}
