package msgpush_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

func respondWithCode(status, code int) fixtures.RoundTripFunc {
	return fixtures.Respond(status, fmt.Sprintf(`{"code":%d,"msg":"key?"}`, code))
}

var errNoKey = errors.New("the vault is sealed")

func TestReplacesRejectedKeyOnceWithoutWaiting(t *testing.T) {
	tests := []struct {
		name     string
		reject   fixtures.RoundTripFunc
		rejected bool
	}{
		{"HTTP 401", fixtures.Status(401), true},
		{"HTTP 401 without an envelope", fixtures.Respond(401, "<html>"), true},
		{"HTTP 401 with a truncated body", fixtures.RespondFrom(401, fixtures.CutBody(`{"code":200,`)), true},
		{"HTTP 401 with Retry-After", fixtures.Status(401, "Retry-After", "9"), true},
		{"rejection code", respondWithCode(200, 4010), true},
		{"rejection code with HTTP 403", respondWithCode(403, 4010), true},
		{"rejection code with HTTP 500", respondWithCode(500, 4010), true},
		{"rejection code 0", respondWithCode(200, 0), true},
		{"code that is not a rejection code", respondWithCode(200, 4011), false},
		{"HTTP 403", fixtures.Status(403), false},
		{"HTTP 502 without a code", fixtures.Respond(502, "<html>"), false},
		{"success whose data contains a rejection code",
			fixtures.Respond(200, fixtures.SuccessOf(`{"code":4010,"id":1,"list":[]}`)), false},
	}
	for _, tt := range tests {
		for _, kind := range fixtures.KindsOfCalls() {
			fixtures.RunInBubble(t, tt.name+"/"+kind.Name, func(t *testing.T) {
				var rejections []string
				source := msgpush.AccessKeyFunc(func(_ context.Context, rejected string) (string, error) {
					rejections = append(rejections, rejected)
					if rejected == "old-key" {
						return "new-key", nil
					}
					return "old-key", nil
				})
				transport := fixtures.NewScript(acceptOnly("new-key", tt.reject))
				_, err := kind.Do(
					t.Context(),
					fixtures.NewClientWithKey(t, "", transport, msgpush.WithAccessKeySource(source),
						msgpush.WithRejectedKeyCodes(4010, 0)),
				)
				if tt.rejected {
					require.NoError(t, err)
					assert.Equal(t, []string{"", "old-key"}, rejections)
					assert.Equal(t, []time.Duration{0, 0}, transport.Times)
				} else {
					assert.Equal(t, []string{""}, rejections)
					assert.Len(t, transport.Times, 1)
				}

				_, err = kind.Do(
					t.Context(),
					fixtures.NewClientWithKey(t, "", fixtures.NewScript(tt.reject), msgpush.WithAccessKeySource(fixtures.FixedSource),
						msgpush.WithRejectedKeyCodes(4010, 0)),
				)
				apiErr, _ := errors.AsType[*msgpush.APIError](err)
				assert.Equal(t, tt.rejected, apiErr != nil && apiErr.KeyRejected, "%v", err)
			})
		}
	}
}

// The API document does not say which code means a rejected key: users must find it out.
func TestErrorSuggestsRejectedKeyCodes(t *testing.T) {
	source := msgpush.WithAccessKeySource(fixtures.FixedSource)
	tests := []struct {
		name     string
		key      string
		opts     []msgpush.Option
		response fixtures.RoundTripFunc
		suggests bool
	}{
		{"code 401", "", []msgpush.Option{source}, respondWithCode(200, 401), true},
		{"code 403", "", []msgpush.Option{source}, respondWithCode(200, 403), true},
		{"code 403 with HTTP 403", "", []msgpush.Option{source}, respondWithCode(403, 403), true},
		{"another code", "", []msgpush.Option{source}, respondWithCode(200, 404), false},
		{"HTTP 403 without a code", "", []msgpush.Option{source}, fixtures.Respond(403, "<html>"), false},
		{"code 401 with HTTP 401, which means a rejected key",
			"", []msgpush.Option{source}, respondWithCode(401, 401), false},
		{"WithRejectedKeyCodes is given",
			"", []msgpush.Option{source, msgpush.WithRejectedKeyCodes(4010)}, respondWithCode(200, 401), false},
		{"static key, which cannot be replaced", fixtures.TestKey, nil, respondWithCode(200, 401), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := fixtures.NewClientWithKey(t, tt.key, tt.response, tt.opts...).MPList(t.Context(), msgpush.PageRequest{})
			fixtures.OnlyError[*msgpush.APIError](t, err)
			assert.Equal(t, tt.suggests, strings.Contains(err.Error(), "pass it to WithRejectedKeyCodes"), err.Error())
		})
	}
}

func TestKeyReplacementIsNotCountedAsRetry(t *testing.T) {
	tests := []struct {
		name    string
		steps   []fixtures.RoundTripFunc
		success bool
	}{
		{"rejection first", steps{fixtures.Status(401), fixtures.Status(503), fixtures.Succeed}, true},
		{"rejection in the last attempt", steps{fixtures.Status(503), fixtures.Status(401), fixtures.Succeed}, true},
		{"rejection first, then only failures", steps{fixtures.Status(401), fixtures.Status(503)}, false},
		{"rejection in the last attempt, then a failure",
			steps{fixtures.Status(503), fixtures.Status(401), fixtures.Status(503)}, false},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			transport := fixtures.NewScript(tt.steps...)
			twoAttempts := msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 2})
			source := msgpush.WithAccessKeySource(fixtures.GrowingSource)
			client := fixtures.NewClientWithKey(t, "", transport, source, twoAttempts)
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			assert.Len(t, transport.Times, 3)
			if tt.success {
				require.NoError(t, err)
			} else {
				assert.Equal(t, 503, fixtures.OnlyError[*msgpush.APIError](t, err).HTTPStatus)
				fixtures.AssertAttempts(t, 3, err)
			}
		})
	}
}

func TestCallFailsIfNoKeyIsAccepted(t *testing.T) {
	tests := []struct {
		name     string
		reject   fixtures.RoundTripFunc
		source   msgpush.AccessKeySource // nil: a static key
		attempts int
		err      string // of the source; empty: the call returns the rejection
	}{
		{"static key", fixtures.Status(401), nil, 1, ""},
		{"static key, retryable status", respondWithCode(503, 4010), nil, 1, ""},
		{"source that has no other key", fixtures.Status(401), fixtures.FixedSource, 1, ""},
		{"source that has no other key, retryable status", respondWithCode(503, 4010), fixtures.FixedSource, 1, ""},
		{"source that returns another rejected key", fixtures.Status(401), fixtures.GrowingSource, 2, ""},
		{"source that fails", fixtures.Status(401), fixtures.SourceWithOneKey(errNoKey), 1, "the vault is sealed"},
		{"source that returns an empty key", fixtures.Status(401), fixtures.SourceWithOneKey(nil), 1, "the key is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			transport := fixtures.NewScript(tt.reject)
			key, opts := fixtures.TestKey, []msgpush.Option{fixtures.DefaultRetries, msgpush.WithRejectedKeyCodes(4010)}
			if tt.source != nil {
				key, opts = "", append(opts, msgpush.WithAccessKeySource(tt.source))
			}
			_, err := fixtures.NewClientWithKey(t, key, transport, opts...).MPList(t.Context(), msgpush.PageRequest{})
			fixtures.AssertAttempts(t, tt.attempts, err)
			assert.Len(t, transport.Times, tt.attempts)
			if tt.err != "" {
				assert.ErrorContains(t, err, "access key: "+tt.err)
				err = fixtures.OnlyError[*msgpush.RequestError](t, err).Last
			}
			assert.True(t, fixtures.OnlyError[*msgpush.APIError](t, err).KeyRejected)
		})
	}
}

func TestErrorSaysThatSourceReturnedRejectedKeyAgain(t *testing.T) {
	tests := []struct {
		name  string
		keys  []string // returned by the source; the last key repeats
		steps []fixtures.RoundTripFunc
		want  string
	}{
		{"at once", []string{"key-1"}, steps{fixtures.Status(401)}, "HTTP 401 Unauthorized"},
		{"after an attempt with another key",
			[]string{"key-1", "key-2", "key-1"}, steps{fixtures.Status(401), fixtures.Status(503)},
			"HTTP 503 Service Unavailable"},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			keys := &fixtures.Vault{Keys: tt.keys}
			source := msgpush.AccessKeyFunc(func(ctx context.Context, _ string) (string, error) {
				key, _, err := keys.Fetch(ctx)
				return key, err
			})
			client := fixtures.NewClientWithKey(t, "", fixtures.NewScript(tt.steps...), msgpush.WithAccessKeySource(source),
				fixtures.DefaultRetries)
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			fixtures.AssertAttempts(t, len(tt.steps), err)
			assert.ErrorContains(t, err, tt.want)
			assert.Equal(t, 1, strings.Count(err.Error(), "; the key source returned the rejected key again)"), err.Error())
		})
	}
}

func TestCallWithoutKeySendsNothing(t *testing.T) {
	tests := []struct {
		name   string
		source msgpush.AccessKeySource
		want   string
		wraps  error
	}{
		{"error", fixtures.SourceOf("", errNoKey), "the vault is sealed", errNoKey},
		{"empty key", fixtures.SourceOf("", nil), "the key is empty", nil},
		{"key with a line break", fixtures.SourceOf(fixtures.TestKey+"\n", nil), "control character", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			transport := fixtures.NewScript(fixtures.Succeed)
			_, err := fixtures.NewClientWithKey(t, "", transport, msgpush.WithAccessKeySource(tt.source)).
				MailDetail(t.Context(), "1")
			requestErr := fixtures.OnlyError[*msgpush.RequestError](t, err)
			assert.Zero(t, requestErr.Attempts)
			assert.NoError(t, requestErr.Last)
			assert.ErrorContains(t, err, "msgpush: MailDetail: access key: ")
			assert.ErrorContains(t, err, tt.want)
			if tt.wraps != nil {
				assert.ErrorIs(t, err, tt.wraps)
			}
			assert.Empty(t, transport.Times)
		})
	}
}

// A planned renewal replaces the key while calls wait for the rate limiter: they keep their slots.
func TestKeyThatChangesAtOnceKeepsSlotsOfLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		source := msgpush.AccessKeyFunc(func(context.Context, string) (string, error) {
			if time.Since(start) < time.Second {
				return "old-key", nil
			}
			return "new-key", nil
		})
		transport := fixtures.NewScript(fixtures.Succeed)
		client := fixtures.NewClientWithKey(t, "", transport, msgpush.WithAccessKeySource(source),
			msgpush.WithRateLimiter(fixtures.PacedLimiter(10*time.Millisecond)))
		fixtures.Concurrently(300, func() {
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			assert.NoError(t, err)
		})
		assert.Equal(t, 299*10*time.Millisecond, time.Since(start))
		assert.Len(t, transport.Times, 300)
	})
}

// assertKey checks which key a source returns and how long it takes.
func assertKey(t *testing.T, source msgpush.AccessKeySource, rejected, want string, after time.Duration) {
	t.Helper()
	start := time.Now()
	key, err := source.AccessKey(t.Context(), rejected)
	assert.NoError(t, err)
	assert.Equal(t, want, key)
	assert.Equal(t, after, time.Since(start))
}

// assertKeyOf checks which key a source returns.
func assertKeyOf(t *testing.T, source msgpush.AccessKeySource, rejected, want string) {
	t.Helper()
	key, err := source.AccessKey(t.Context(), rejected)
	assert.NoError(t, err)
	assert.Equal(t, want, key)
}

func TestEachRejectionCausesAtMostOneFetch(t *testing.T) {
	fixtures.UseOneThread(t)
	tests := []struct {
		name    string
		callers int
		keys    []string // returned by the fetches; the last key repeats
		early   time.Duration
		limited bool
	}{
		{"one caller, limiter", 1, []string{"rejected-1"}, 0, true},
		{"one caller, fetch returns several rejected keys",
			1, []string{"rejected-1", "rejected-2", "rejected-1", "rejected-2", "rejected-3"}, 0, false},
		{"many callers, limiter", 100, []string{"rejected-1"}, 0, true},
		{"many callers, background renewal", 100, []string{"rejected-1"}, 10 * time.Minute, false},
	}
	for _, tt := range tests {
		fixtures.RunInBubble(t, tt.name, func(t *testing.T) {
			var rejections atomic.Int32
			v := &fixtures.Vault{Keys: tt.keys, Delay: 7 * time.Millisecond, Life: time.Hour}
			opts := []msgpush.Option{
				msgpush.WithAccessKeySource(msgpush.CachedAccessKey(v.Fetch, msgpush.AccessKeyCacheOptions{Early: tt.early})),
				fixtures.DefaultRetries,
			}
			if tt.limited {
				opts = append(opts, msgpush.WithRateLimiter(fixtures.PacedLimiter(time.Millisecond)))
			}
			client := fixtures.NewClientWithKey(t, "", fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				rejections.Add(1)
				time.Sleep(time.Duration(rejections.Load()%5) * time.Millisecond)
				return fixtures.Status(401)(r)
			}), opts...)
			fixtures.Concurrently(tt.callers, func() {
				for range 10 {
					_, err := client.MPList(t.Context(), msgpush.PageRequest{})
					fixtures.OnlyError[*msgpush.APIError](t, err)
				}
			})
			assert.LessOrEqual(t, v.Fetches.Load(), 1+rejections.Load(), "plus one fetch for the first key")
		})
	}
	fixtures.RunInBubble(t, "concurrent callers without a client", func(t *testing.T) {
		v := &fixtures.Vault{Keys: []string{"rejected-key"}, Delay: time.Second}
		source := msgpush.CachedAccessKey(v.Fetch, msgpush.AccessKeyCacheOptions{})
		assertKey(t, source, "", "rejected-key", time.Second)
		for range 3 {
			fixtures.Concurrently(100, func() { assertKey(t, source, "rejected-key", "rejected-key", time.Second) })
		}
		assert.Equal(t, int32(1+3), v.Fetches.Load())
	})
}

// If the service rejects every key, a fetch for each call would be a burden.
func TestRejectionsCauseOneFetchASecond(t *testing.T) {
	for name, keys := range map[string][]string{"another key each time": nil, "the same key each time": {"key-1"}} {
		for _, callers := range []int{1, 10} {
			fixtures.RunInBubble(t, fmt.Sprint(name, ", ", callers, " callers"), func(t *testing.T) {
				v := &fixtures.Vault{Keys: keys}
				transport := fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
					time.Sleep(100 * time.Millisecond)
					return fixtures.Status(401)(r)
				})
				option, attempts := fixtures.CallsObserved()
				client := fixtures.NewClientWithKey(t, "", transport, fixtures.DefaultRetries, option,
					msgpush.WithAccessKeySource(msgpush.CachedAccessKey(v.Fetch, msgpush.AccessKeyCacheOptions{})))
				start := time.Now()
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for time.Since(start) < 10*time.Second {
							_, err := client.MPList(t.Context(), msgpush.PageRequest{})
							apiErr := fixtures.OnlyError[*msgpush.APIError](t, err)
							assert.True(t, apiErr.KeyRejected)
						}
					})
				}
				all.Wait()
				assert.LessOrEqual(t, v.Fetches.Load(), int32(1+11), "the first key, and one fetch a second")
				assert.GreaterOrEqual(t, v.Fetches.Load(), int32(1+9))
				second := 0
				for _, r := range attempts() {
					second += r.Attempts - 1
				}
				if keys != nil {
					assert.Zero(t, second, "second attempts")
				} else {
					assert.LessOrEqual(t, second, callers*11, "second attempts")
				}
			})
		}
	}
}

func TestMinIntervalLimitsFetchesBecauseOfRejections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := msgpush.CachedAccessKey((&fixtures.Vault{}).Fetch, msgpush.AccessKeyCacheOptions{MinInterval: -1})
		for i := range 5 {
			assertKeyOf(t, source, fmt.Sprint("key-", i), fmt.Sprint("key-", i+1))
		}
		o := msgpush.AccessKeyCacheOptions{MinInterval: time.Minute}
		source = msgpush.CachedAccessKey((&fixtures.Vault{}).Fetch, o)
		assertKeyOf(t, source, "", "key-1")
		assertKeyOf(t, source, "key-1", "key-2")
		time.Sleep(time.Minute - 1)
		assertKeyOf(t, source, "key-2", "key-2")
		time.Sleep(time.Nanosecond)
		assertKeyOf(t, source, "key-2", "key-3")
	})
}

func TestPanicOfFetchReachesEveryWaitingCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Delay: time.Second, Panics: 1}
		source := msgpush.CachedAccessKey(v.Fetch, msgpush.AccessKeyCacheOptions{})
		client := fixtures.NewClientWithKey(t, "", fixtures.Succeed, msgpush.WithAccessKeySource(source))
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				assert.PanicsWithValue(t, "fetch panicked", func() { _, _ = source.AccessKey(t.Context(), "") })
				assertKey(t, source, "", "key-2", time.Second)
			})
			wg.Go(func() {
				assert.PanicsWithValue(t, "fetch panicked", func() { _, _ = client.MPList(t.Context(), msgpush.PageRequest{}) })
			})
		}
		wg.Wait()
		assertKey(t, source, "", "key-2", 0)
	})
}

func TestOnErrorGetsTheErrorOfEachFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Life: time.Minute, Panics: 3}
		var mu sync.Mutex
		var errs []string
		source := msgpush.CachedAccessKey(v.Fetch, msgpush.AccessKeyCacheOptions{
			Early: 30 * time.Second,
			OnError: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err.Error())
			},
		})
		assertKeyOf(t, source, "", "key-1")
		time.Sleep(40 * time.Second)
		v.Err.Store(&errNoKey)
		assertKeyOf(t, source, "", "key-1") // starts a renewal, which fails
		time.Sleep(time.Second)
		assertKeyOf(t, source, "", "key-1") // starts a renewal, which panics
		time.Sleep(time.Second)
		v.Err.Store(nil)
		assertKeyOf(t, source, "", "key-1")
		synctest.Wait()
		assertKeyOf(t, source, "", "key-4")
		assert.Equal(t, []string{"access key: " + errNoKey.Error(), "access key: fetch panicked: fetch panicked"}, errs)
	})
}

func TestFailedFetchIsLoggedWithoutAKey(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	source := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
		return "key-of-the-vault", time.Time{}, errors.New("key-of-the-vault is not signed")
	}, msgpush.AccessKeyCacheOptions{})
	_, err := source.AccessKey(t.Context(), "")
	require.Error(t, err)
	assert.Contains(t, log.String(), "level=WARN")
	assert.Contains(t, log.String(), "access key: [redacted] is not signed")
	assert.NotContains(t, log.String(), "key-of-the-vault")
}

func TestFetchThatNeedsItsOwnKeyFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var client *msgpush.Client
		source := msgpush.CachedAccessKey(func(ctx context.Context) (string, time.Time, error) {
			key, err := msgpush.Call[string](ctx, client, msgpush.Request{Method: http.MethodGet, Path: "/key"})
			return key, time.Now().Add(time.Minute), err
		}, msgpush.AccessKeyCacheOptions{Early: 10 * time.Second})
		client = fixtures.NewClientWithKey(t, "", fixtures.Respond(200, fixtures.SuccessOf(`"renewed"`)),
			msgpush.WithAccessKeySource(source))
		start := time.Now()
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		assert.ErrorContains(t, err, "fetch of CachedAccessKey makes a call that needs the key it fetches")
		assert.Zero(t, time.Since(start))
		source.Set("first", time.Now().Add(5*time.Second)) // a renewal may use the old key
		assertKeyOf(t, source, "", "first")
		synctest.Wait()
		assertKeyOf(t, source, "", "first") // the pause after the failed fetch
		time.Sleep(time.Second)
		assertKeyOf(t, source, "", "first")
		synctest.Wait()
		assertKeyOf(t, source, "", "renewed")
	})
}

// A fetch may ignore its context. Its callers must not wait for it without end.
func TestFetchThatExceedsItsTimeSaysWhoseTimeItWas(t *testing.T) {
	const limit = "fetch did not return within 30s, the timeout of CachedAccessKey"
	for name, fetch := range map[string]func(context.Context) (string, time.Time, error){
		"honours its context": func(ctx context.Context) (string, time.Time, error) {
			<-ctx.Done()
			return "", time.Time{}, fmt.Errorf("vault: %w", ctx.Err())
		},
		"ignores its context": func(context.Context) (string, time.Time, error) {
			time.Sleep(time.Hour)
			return fixtures.TestKey, time.Time{}, nil
		},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			source := msgpush.CachedAccessKey(fetch, msgpush.AccessKeyCacheOptions{})
			client := fixtures.NewClientWithKey(t, "", fixtures.Succeed, msgpush.WithAccessKeySource(source))
			fixtures.Concurrently(3, func() {
				start := time.Now()
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				assert.Equal(t, 30*time.Second, time.Since(start))
				fixtures.OnlyError[*msgpush.RequestError](t, err)
				assert.ErrorContains(t, err, "access key: "+limit)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
			if name == "ignores its context" {
				start := time.Now()
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				assert.ErrorContains(t, err, limit)
				assert.Zero(t, time.Since(start), "no other fetch starts")
				time.Sleep(2 * time.Hour)
			}
		})
	}
	fixtures.RunInBubble(t, "fails in time", func(t *testing.T) {
		fetch := func(context.Context) (string, time.Time, error) { return "", time.Time{}, errors.New("sealed") }
		client := fixtures.NewClientWithKey(t, "", fixtures.Succeed,
			msgpush.WithAccessKeySource(msgpush.CachedAccessKey(fetch, msgpush.AccessKeyCacheOptions{})))
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		assert.ErrorContains(t, err, "access key: sealed")
	})
}

func TestAccessKeyCacheOfNoConstructorReturnsError(t *testing.T) {
	var source msgpush.AccessKeyCache
	source.Set("key", time.Time{})
	_, err := source.AccessKey(t.Context(), "")
	require.EqualError(t, err, "the AccessKeyCache was not made by CachedAccessKey")
}
