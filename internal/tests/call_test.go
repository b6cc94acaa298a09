package tests_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
	"example.com/msgpush/msgpushtest"
)

func TestEachAttemptGetsKeyWaitsForLimiterAndGetsKeyAgain(t *testing.T) {
	// The number of the key that the source returns after a number of requests.
	type numbering func(requests int) int
	same := numbering(func(int) int { return 0 })
	newForEachAttempt := numbering(func(requests int) int { return requests })
	tests := []struct {
		name  string
		keys  numbering // nil: a key without a source
		steps []fixtures.RoundTripFunc
		want  string // l is a wait for the limiter, k a call of the source, r a request
		fails bool
	}{
		{
			name:  "success",
			keys:  same,
			steps: []fixtures.RoundTripFunc{fixtures.Succeed},
			want:  "klkr",
		},
		{
			name:  "retry",
			keys:  same,
			steps: []fixtures.RoundTripFunc{fixtures.Status(503), fixtures.Succeed},
			want:  "klkrklkr",
		},
		{
			name:  "rejected key, reported to the source before the wait",
			keys:  newForEachAttempt,
			steps: []fixtures.RoundTripFunc{fixtures.Status(401), fixtures.Succeed},
			want:  "klkrk(key-0)lk(key-0)r",
		},
		{
			name:  "rejected key, then a retry",
			keys:  newForEachAttempt,
			steps: []fixtures.RoundTripFunc{fixtures.Status(401), fixtures.Status(503), fixtures.Succeed},
			want:  "klkrk(key-0)lk(key-0)rk(key-0)lk(key-0)r",
		},
		{
			name:  "rejected key, source without another key",
			keys:  same,
			steps: []fixtures.RoundTripFunc{fixtures.Status(401)},
			want:  "klkrk(key-0)",
			fails: true,
		},
		{
			name:  "rejected key without a source",
			steps: []fixtures.RoundTripFunc{fixtures.Status(401)},
			want:  "lr",
			fails: true,
		},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			events, latest := "", "key-0"
			source := msgpush.AccessKeyFunc(func(_ context.Context, rejected string) (string, error) {
				events += "k"
				if rejected != "" {
					events += "(" + rejected + ")"
				}
				latest = fmt.Sprint("key-", tt.keys(strings.Count(events, "r")))
				return latest, nil
			})
			key, opts := "", []msgpush.Option{
				fixtures.DefaultRetries,
				msgpush.WithRateLimiter(fixtures.LimiterFunc(func(context.Context) error { events += "l"; return nil })),
			}
			if tt.keys == nil {
				key = latest
			} else {
				opts = append(opts, msgpush.WithAccessKeySource(source))
			}
			transport := fixtures.NewScript(tt.steps...)
			_, err := fixtures.NewClientWithKey(t, key, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				events += "r"
				assert.Equal(t, latest, r.Header.Get("access-key"), "the key that was returned last")
				return transport.RoundTrip(r)
			}), opts...).MPList(t.Context(), msgpush.PageRequest{})
			assert.Equal(t, tt.want, events)
			if !tt.fails {
				require.NoError(t, err)
				return
			}
			assert.Equal(t, 401, fixtures.OnlyError[*msgpush.APIError](t, err).HTTPStatus)
			fixtures.AssertAttempts(t, 1, err)
		})
	}
}

func TestLimiterErrorEndsCall(t *testing.T) {
	noTokens := errors.New("no tokens")
	for attempts := range 3 {
		synctest.Test(t, func(t *testing.T) {
			transport := fixtures.NewScript(fixtures.Status(503))
			limiter := fixtures.LimiterAfter(attempts, func(context.Context) error { return noTokens })
			_, err := fixtures.NewClient(t, transport, fixtures.DefaultRetries, limiter).
				MPList(t.Context(), msgpush.PageRequest{})
			requestErr := fixtures.OnlyError[*msgpush.RequestError](t, err)
			assert.Equal(t, attempts, requestErr.Attempts)
			assert.Len(t, transport.Times, attempts)
			assert.ErrorIs(t, err, noTokens)
			assert.ErrorContains(t, err, "waiting for the rate limiter: no tokens")
			if attempts == 0 {
				assert.NoError(t, requestErr.Last)
			} else {
				fixtures.OnlyError[*msgpush.APIError](t, requestErr.Last)
			}
		})
	}
}

// worstSecond returns the largest number of requests in any second.
func worstSecond(requests []msgpushtest.Request) int {
	slices.SortFunc(requests, func(a, b msgpushtest.Request) int { return a.Time.Compare(b.Time) })
	worst, from := 0, 0
	for to := range requests {
		for requests[to].Time.Sub(requests[from].Time) >= time.Second {
			from++
		}
		worst = max(worst, to-from+1)
	}
	return worst
}

// rateLimited returns a service and a client that may send it 100 requests a second.
func rateLimited(t *testing.T, source msgpush.AccessKeySource) (*msgpushtest.Server, *msgpush.Client) {
	t.Helper()
	service := msgpushtest.New(t, msgpushtest.InMemory())
	service.SetLatency(time.Millisecond)
	return service, service.Client(fixtures.NoRetries, msgpush.WithAccessKeySource(source),
		msgpush.WithRateLimiter(fixtures.PacedLimiter(10*time.Millisecond)))
}

// Calls that wait for a key must not hold slots of the limiter: when the key arrives, they would
// use all these slots at the same time. Calls that wait for the limiter must not send a key that
// was replaced meanwhile.
func TestRateLimitHoldsWhileKeyIsReplaced(t *testing.T) {
	fixtures.UseOneThread(t)
	const callers, slow = 400, 2 * time.Second
	for name, tt := range map[string]struct {
		firstFetch, fetch time.Duration
		rotate            time.Duration // when the service replaces the key; 0: never
	}{
		"slow fetch at the start":                 {slow, slow, 0},
		"slow fetch at a rejection":               {0, slow, time.Second},
		"slow fetch at the start and a rejection": {slow, slow, 4 * time.Second},
		"instant fetch":                           {0, 0, 2 * time.Second},
		"fetch of 35 ms":                          {0, 35 * time.Millisecond, 2 * time.Second},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			var service *msgpushtest.Server
			var fetches atomic.Int32
			service, client := rateLimited(t, msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
				if fetches.Add(1) == 1 {
					time.Sleep(tt.firstFetch)
				} else {
					time.Sleep(tt.fetch)
				}
				return service.AccessKey(), time.Time{}, nil
			}, msgpush.AccessKeyCacheOptions{}))
			if tt.rotate > 0 {
				time.AfterFunc(tt.rotate, func() { service.ReplaceKey("second-key") })
			}
			fixtures.Concurrently(callers, func() {
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				assert.NoError(t, err)
			})
			requests := service.Requests()
			assert.LessOrEqual(t, worstSecond(requests), 105)
			rejections := len(requests) - callers // the last attempt of each call succeeded
			assert.LessOrEqual(t, rejections, 2)
			assert.EqualValues(t, 1+min(1, rejections), fetches.Load())
			assert.Equal(t, tt.rotate > 0, rejections > 0)
		})
	}
}

// Keys that change while calls wait for the limiter must not make calls send together.
func TestRateLimitHoldsWhileKeysChange(t *testing.T) {
	fixtures.UseOneThread(t)
	const callers, fetchTime = 300, 2 * time.Second
	for name, tt := range map[string]struct {
		lifetime time.Duration // of a key
		response msgpushtest.Fault
	}{
		"keys that live 3 s":             {3 * time.Second, msgpushtest.Respond(fixtures.ServeJSON(fixtures.Success))},
		"service that rejects every key": {time.Hour, msgpushtest.Status(401)},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			keys := &fixtures.Vault{Delay: fetchTime, Life: tt.lifetime}
			service, client := rateLimited(t, msgpush.CachedAccessKey(keys.Fetch, msgpush.AccessKeyCacheOptions{}))
			service.Inject(tt.response.Always())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			fixtures.Concurrently(callers, func() {
				var err error
				// Not ctx.Err: on one thread without preemption, its timer could not fire.
				for !errors.Is(err, context.DeadlineExceeded) {
					_, err = client.MPList(ctx, msgpush.PageRequest{})
				}
			})
			time.Sleep(fetchTime) // a fetch may still run
			requests := service.Requests()
			assert.LessOrEqual(t, worstSecond(requests), 150)
			assert.Greater(t, len(requests), 300, "requests in a minute")
		})
	}
}

func TestLimiterThatPollsItsContextSeesTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := fixtures.LimiterFunc(func(ctx context.Context) error {
			for ctx.Err() == nil {
				time.Sleep(2 * time.Second)
			}
			return ctx.Err()
		})
		client := fixtures.NewClient(t, fixtures.Succeed,
			msgpush.WithTimeout(3*time.Second), msgpush.WithRateLimiter(limiter))
		start := time.Now()
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 4*time.Second, time.Since(start), "the first poll after the timeout")
	})
}

func TestSlowObserverDoesNotDelayTheRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observer := func(_ context.Context, a msgpush.Attempt) {
			if a.Retry {
				time.Sleep(5 * time.Second)
			}
		}
		service := fixtures.NewScript(fixtures.Status(503, "Retry-After", "8"), fixtures.Succeed)
		client := fixtures.NewClient(t, service,
			msgpush.WithTimeout(10*time.Second), fixtures.DefaultRetries, msgpush.WithObserver(observer))
		start := time.Now()
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		assert.NoError(t, err)
		assert.Less(t, time.Since(start), 10*time.Second)
	})
}

func TestCallThatIsNotIdempotentIsNotRetriedAfterAResponseHasBegun(t *testing.T) {
	interrupted := fixtures.RespondFrom(200, func(*http.Request) io.Reader {
		return fixtures.ReaderFunc(func([]byte) (int, error) { return 0, &net.OpError{Op: "dial", Err: io.EOF} })
	})
	service := fixtures.NewScript(interrupted, fixtures.Succeed)
	client := fixtures.NewClient(t, service, fixtures.DefaultRetries)
	request := msgpush.Request{Method: "POST", Path: "/x", Body: map[string]int{}}
	_, err := msgpush.Call[struct{}](t.Context(), client, request)
	assert.Error(t, err)
	assert.Len(t, service.Times, 1)
}

func TestAttemptThatWouldBeginAfterTheTimeoutIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := fixtures.NewScript(fixtures.Status(401), fixtures.Succeed)
		keys := []string{"first-key", "second-key"}
		source := msgpush.AccessKeyFunc(func(context.Context, string) (string, error) {
			return keys[min(1, len(service.Times))], nil
		})
		observer := func(context.Context, msgpush.Attempt) { time.Sleep(5 * time.Second) }
		client := fixtures.NewClientWithKey(t, "", service,
			msgpush.WithTimeout(3*time.Second), msgpush.WithAccessKeySource(source), msgpush.WithObserver(observer))
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		requestErr := fixtures.OnlyError[*msgpush.RequestError](t, err)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 1, requestErr.Attempts)
		fixtures.OnlyError[*msgpush.APIError](t, requestErr.Last)
	})
}
