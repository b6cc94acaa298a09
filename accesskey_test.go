package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

func respondWithCode(status, code int) roundTripFunc {
	return respond(status, fmt.Sprintf(`{"code":%d,"msg":"key?"}`, code))
}

var errNoKey = errors.New("the vault is sealed")

func TestReplacesRejectedKeyOnceWithoutWaiting(t *testing.T) {
	tests := []struct {
		name     string
		reject   roundTripFunc
		rejected bool
	}{
		{"HTTP 401", status(401), true},
		{"HTTP 401 without an envelope", respond(401, "<html>"), true},
		{"HTTP 401 with a truncated body", respondFrom(401, cutBody(`{"code":200,`)), true},
		{"HTTP 401 with Retry-After", status(401, "Retry-After", "9"), true},
		{"rejection code", respondWithCode(200, 4010), true},
		{"rejection code with HTTP 403", respondWithCode(403, 4010), true},
		{"rejection code with HTTP 500", respondWithCode(500, 4010), true},
		{"rejection code 0", respondWithCode(200, 0), true},
		{"code that is not a rejection code", respondWithCode(200, 4011), false},
		{"HTTP 403", status(403), false},
		{"HTTP 502 without a code", respond(502, "<html>"), false},
		{"success whose data contains a rejection code", respond(200, successOf(`{"code":4010,"id":1,"list":[]}`)), false},
	}
	for _, tt := range tests {
		for _, kind := range kindsOfCalls() {
			runInBubble(t, tt.name+"/"+kind.name, func(t *testing.T) {
				var rejections []string
				source := msgpush.AccessKeyFunc(func(_ context.Context, rejected string) (string, error) {
					rejections = append(rejections, rejected)
					if rejected == "old-key" {
						return "new-key", nil
					}
					return "old-key", nil
				})
				transport := newScript(acceptOnly("new-key", tt.reject))
				_, err := kind.do(t.Context(), newClientWithKey(t, "", transport, msgpush.WithAccessKeySource(source), msgpush.WithRejectedKeyCodes(4010, 0)))
				if tt.rejected {
					require.NoError(t, err)
					assert.Equal(t, []string{"", "old-key"}, rejections)
					assert.Equal(t, []time.Duration{0, 0}, transport.times)
				} else {
					assert.Equal(t, []string{""}, rejections)
					assert.Len(t, transport.times, 1)
				}

				_, err = kind.do(t.Context(), newClientWithKey(t, "", newScript(tt.reject), msgpush.WithAccessKeySource(fixedSource), msgpush.WithRejectedKeyCodes(4010, 0)))
				apiErr, _ := errors.AsType[*msgpush.APIError](err)
				assert.Equal(t, tt.rejected, apiErr != nil && apiErr.KeyRejected, "%v", err)
			})
		}
	}
}

// The API document does not say which code means a rejected key: users must find it out.
func TestErrorSuggestsRejectedKeyCodes(t *testing.T) {
	source := msgpush.WithAccessKeySource(fixedSource)
	tests := []struct {
		name     string
		key      string
		opts     []msgpush.Option
		response roundTripFunc
		suggests bool
	}{
		{"code 401", "", []msgpush.Option{source}, respondWithCode(200, 401), true},
		{"code 403", "", []msgpush.Option{source}, respondWithCode(200, 403), true},
		{"code 403 with HTTP 403", "", []msgpush.Option{source}, respondWithCode(403, 403), true},
		{"another code", "", []msgpush.Option{source}, respondWithCode(200, 404), false},
		{"HTTP 403 without a code", "", []msgpush.Option{source}, respond(403, "<html>"), false},
		{"code 401 with HTTP 401, which means a rejected key", "", []msgpush.Option{source}, respondWithCode(401, 401), false},
		{"WithRejectedKeyCodes is given", "", []msgpush.Option{source, msgpush.WithRejectedKeyCodes(4010)}, respondWithCode(200, 401), false},
		{"static key, which cannot be replaced", testKey, nil, respondWithCode(200, 401), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newClientWithKey(t, tt.key, tt.response, tt.opts...).MPList(t.Context(), msgpush.PageRequest{})
			onlyError[*msgpush.APIError](t, err)
			assert.Equal(t, tt.suggests, strings.Contains(err.Error(), "pass it to WithRejectedKeyCodes"), err.Error())
		})
	}
}

func TestKeyReplacementIsNotCountedAsRetry(t *testing.T) {
	tests := []struct {
		name    string
		steps   []roundTripFunc
		success bool
	}{
		{"rejection first", []roundTripFunc{status(401), status(503), succeed}, true},
		{"rejection in the last attempt", []roundTripFunc{status(503), status(401), succeed}, true},
		{"rejection first, then only failures", []roundTripFunc{status(401), status(503)}, false},
		{"rejection in the last attempt, then a failure", []roundTripFunc{status(503), status(401), status(503)}, false},
	}
	for _, tt := range tests {
		runInBubble(t, tt.name, func(t *testing.T) {
			transport := newScript(tt.steps...)
			twoAttempts := msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 2})
			_, err := newClientWithKey(t, "", transport, msgpush.WithAccessKeySource(growingSource), twoAttempts).MPList(t.Context(), msgpush.PageRequest{})
			assert.Len(t, transport.times, 3)
			if tt.success {
				require.NoError(t, err)
			} else {
				assert.Equal(t, 503, onlyError[*msgpush.APIError](t, err).HTTPStatus)
				assertAttempts(t, 3, err)
			}
		})
	}
}

func TestCallFailsIfNoKeyIsAccepted(t *testing.T) {
	tests := []struct {
		name     string
		reject   roundTripFunc
		source   msgpush.AccessKeySource // nil: a static key
		attempts int
		err      string // of the source; empty: the call returns the rejection
	}{
		{"static key", status(401), nil, 1, ""},
		{"static key, retryable status", respondWithCode(503, 4010), nil, 1, ""},
		{"source that has no other key", status(401), fixedSource, 1, ""},
		{"source that has no other key, retryable status", respondWithCode(503, 4010), fixedSource, 1, ""},
		{"source that returns another rejected key", status(401), growingSource, 2, ""},
		{"source that fails", status(401), sourceWithOneKey(errNoKey), 1, "the vault is sealed"},
		{"source that returns an empty key", status(401), sourceWithOneKey(nil), 1, "the key is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			transport := newScript(tt.reject)
			key, opts := testKey, []msgpush.Option{defaultRetries, msgpush.WithRejectedKeyCodes(4010)}
			if tt.source != nil {
				key, opts = "", append(opts, msgpush.WithAccessKeySource(tt.source))
			}
			_, err := newClientWithKey(t, key, transport, opts...).MPList(t.Context(), msgpush.PageRequest{})
			assertAttempts(t, tt.attempts, err)
			assert.Len(t, transport.times, tt.attempts)
			if tt.err != "" {
				assert.ErrorContains(t, err, "access key: "+tt.err)
				err = onlyError[*msgpush.RequestError](t, err).Last
			}
			assert.True(t, onlyError[*msgpush.APIError](t, err).KeyRejected)
		})
	}
}

func TestErrorSaysThatSourceReturnedRejectedKeyAgain(t *testing.T) {
	tests := []struct {
		name  string
		keys  []string // returned by the source; the last key repeats
		steps []roundTripFunc
		want  string
	}{
		{"at once", []string{"key-1"}, []roundTripFunc{status(401)}, "HTTP 401 Unauthorized"},
		{"after an attempt with another key", []string{"key-1", "key-2", "key-1"}, []roundTripFunc{status(401), status(503)}, "HTTP 503 Service Unavailable"},
	}
	for _, tt := range tests {
		runInBubble(t, tt.name, func(t *testing.T) {
			keys := &vault{keys: tt.keys}
			source := msgpush.AccessKeyFunc(func(ctx context.Context, _ string) (string, error) {
				key, _, err := keys.fetch(ctx)
				return key, err
			})
			client := newClientWithKey(t, "", newScript(tt.steps...), msgpush.WithAccessKeySource(source), defaultRetries)
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			assertAttempts(t, len(tt.steps), err)
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
		{"error", sourceOf("", errNoKey), "the vault is sealed", errNoKey},
		{"empty key", sourceOf("", nil), "the key is empty", nil},
		{"key with a line break", sourceOf(testKey+"\n", nil), "control character", nil},
		{"CachedAccessKey without a function", msgpush.CachedAccessKey(nil, 0), "CachedAccessKey: fetch is nil", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			transport := newScript(succeed)
			_, err := newClientWithKey(t, "", transport, msgpush.WithAccessKeySource(tt.source)).MailDetail(t.Context(), "1")
			requestErr := onlyError[*msgpush.RequestError](t, err)
			assert.Zero(t, requestErr.Attempts)
			assert.NoError(t, requestErr.Last)
			assert.ErrorContains(t, err, "msgpush: MailDetail: access key: ")
			assert.ErrorContains(t, err, tt.want)
			if tt.wraps != nil {
				assert.ErrorIs(t, err, tt.wraps)
			}
			assert.Empty(t, transport.times)
		})
	}
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

func TestConcurrentCallersShareOneFetch(t *testing.T) {
	for name, rejected := range map[string]string{"first key": "", "rejected key": "key-1"} {
		runInBubble(t, name, func(t *testing.T) {
			v := &vault{delay: time.Second}
			source := msgpush.CachedAccessKey(v.fetch, time.Minute)
			fetches := int32(1)
			if rejected != "" {
				assertKey(t, source, "", "key-1", time.Second)
				fetches = 2
			}
			concurrently(100, func() { assertKey(t, source, rejected, fmt.Sprint("key-", fetches), time.Second) })
			assert.Equal(t, fetches, v.fetches.Load())
			assertKey(t, source, rejected, fmt.Sprint("key-", fetches), 0)
			time.Sleep(1000 * time.Hour)
			assertKey(t, source, "", fmt.Sprint("key-", fetches), 0)
		})
	}
}

func TestEachRejectionCausesAtMostOneFetch(t *testing.T) {
	useOneThread(t)
	tests := []struct {
		name    string
		callers int
		keys    []string // returned by the fetches; the last key repeats
		early   time.Duration
		limited bool
	}{
		{"one caller, limiter", 1, []string{"rejected-1"}, 0, true},
		{"one caller, fetch returns several rejected keys", 1, []string{"rejected-1", "rejected-2", "rejected-1", "rejected-2", "rejected-3"}, 0, false},
		{"many callers, limiter", 100, []string{"rejected-1"}, 0, true},
		{"many callers, background renewal", 100, []string{"rejected-1"}, 10 * time.Minute, false},
	}
	for _, tt := range tests {
		runInBubble(t, tt.name, func(t *testing.T) {
			var rejections atomic.Int32
			v := &vault{keys: tt.keys, delay: 7 * time.Millisecond, life: time.Hour}
			opts := []msgpush.Option{msgpush.WithAccessKeySource(msgpush.CachedAccessKey(v.fetch, tt.early)), defaultRetries}
			if tt.limited {
				opts = append(opts, msgpush.WithRateLimiter(pacedLimiter(time.Millisecond)))
			}
			client := newClientWithKey(t, "", roundTripFunc(func(r *http.Request) (*http.Response, error) {
				rejections.Add(1)
				time.Sleep(time.Duration(rejections.Load()%5) * time.Millisecond)
				return status(401)(r)
			}), opts...)
			concurrently(tt.callers, func() {
				for range 10 {
					_, err := client.MPList(t.Context(), msgpush.PageRequest{})
					onlyError[*msgpush.APIError](t, err)
				}
			})
			assert.LessOrEqual(t, v.fetches.Load(), 1+rejections.Load(), "plus one fetch for the first key")
		})
	}
	runInBubble(t, "concurrent callers without a client", func(t *testing.T) {
		v := &vault{keys: []string{"rejected-key"}, delay: time.Second}
		source := msgpush.CachedAccessKey(v.fetch, 0)
		assertKey(t, source, "", "rejected-key", time.Second)
		for range 3 {
			concurrently(100, func() { assertKey(t, source, "rejected-key", "rejected-key", time.Second) })
		}
		assert.Equal(t, int32(1+3), v.fetches.Load())
	})
}

func TestRenewsCachedKeyInBackgroundBeforeExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{delay: time.Second, life: time.Minute}
		source := msgpush.CachedAccessKey(v.fetch, 10*time.Second)
		assertKey(t, source, "", "key-1", time.Second)
		time.Sleep(49 * time.Second)
		assertKey(t, source, "", "key-1", 0)
		assert.Equal(t, int32(1), v.fetches.Load())
		time.Sleep(time.Second)
		for range 10 {
			assertKey(t, source, "", "key-1", 0)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, int32(2), v.fetches.Load())
		assertKey(t, source, "", "key-2", 0)
	})
}

func TestDoesNotReturnExpiredKey(t *testing.T) {
	for _, early := range []time.Duration{0, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			source := msgpush.CachedAccessKey((&vault{delay: time.Second, life: time.Minute}).fetch, early)
			assertKey(t, source, "", "key-1", time.Second)
			time.Sleep(time.Minute - 1)
			assertKey(t, source, "", "key-1", 0)
			time.Sleep(time.Nanosecond)
			assertKey(t, source, "", "key-2", time.Second)
		})
	}
}

func TestDoesNotReturnRejectedKeyToOtherCallers(t *testing.T) {
	v := &vault{}
	source := msgpush.CachedAccessKey(v.fetch, 0)
	key, err := source.AccessKey(t.Context(), "")
	require.NoError(t, err)
	v.err.Store(&errNoKey)
	for _, rejected := range []string{key, ""} {
		_, err = source.AccessKey(t.Context(), rejected)
		assert.ErrorIs(t, err, errNoKey)
	}
	v.err.Store(nil)
	another, err := source.AccessKey(t.Context(), "")
	require.NoError(t, err)
	assert.NotEqual(t, key, another)
}

func TestFetchesAgainIfEarlierFetchReturnsRejectedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{keys: []string{"key-1", "key-1", "key-2"}, delay: time.Second, life: time.Minute}
		source := msgpush.CachedAccessKey(v.fetch, 59*time.Second)
		assertKey(t, source, "", "key-1", time.Second)
		time.Sleep(2 * time.Second)
		assertKey(t, source, "", "key-1", 0) // starts the renewal
		synctest.Wait()
		assertKey(t, source, "key-1", "key-2", 2*time.Second)
	})
}

func TestFailedFetchFailsAllWaitingCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{delay: time.Second}
		v.err.Store(&errNoKey)
		source := msgpush.CachedAccessKey(v.fetch, 0)
		var wg sync.WaitGroup
		for _, rejected := range []string{"rejected-key", "", "", "another-key"} {
			wg.Go(func() {
				_, err := source.AccessKey(t.Context(), rejected)
				assert.ErrorIs(t, err, errNoKey)
			})
			synctest.Wait() // so that the first caller starts the fetch
		}
		wg.Wait()
		assert.Equal(t, int32(1), v.fetches.Load())
		v.err.Store(nil)
		assertKey(t, source, "", "key-2", time.Second)
	})
}

func TestFailedRenewalKeepsKeyUntilExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{life: time.Minute}
		source := msgpush.CachedAccessKey(v.fetch, 30*time.Second)
		assertKey(t, source, "", "key-1", 0)
		v.err.Store(&errNoKey)
		time.Sleep(40 * time.Second)
		assertKey(t, source, "", "key-1", 0)
		synctest.Wait()
		assertKey(t, source, "", "key-1", 0)
		synctest.Wait()
		assert.Equal(t, int32(3), v.fetches.Load())
		time.Sleep(20 * time.Second)
		_, err := source.AccessKey(t.Context(), "")
		assert.ErrorIs(t, err, errNoKey)
	})
}

func TestCallerContextEndsOnlyItsOwnWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{delay: 10 * time.Second}
		source := msgpush.CachedAccessKey(v.fetch, 0)
		first, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := source.AccessKey(first, "")
			assert.Equal(t, context.DeadlineExceeded, err, "the text does not blame the source")
		})
		synctest.Wait()
		wg.Go(func() { assertKey(t, source, "", "key-1", 10*time.Second) })
		wg.Wait()
		assert.Equal(t, int32(1), v.fetches.Load())
	})
}

func TestContextOfFetchEndsWithFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctx context.Context
		source := msgpush.CachedAccessKey(func(c context.Context) (string, time.Time, error) {
			ctx = c
			return testKey, time.Time{}, nil
		}, 0)
		assertKey(t, source, "", testKey, 0)
		synctest.Wait()
		assert.ErrorIs(t, ctx.Err(), context.Canceled)
	})
}

func TestFetchThatCallsGoexitFails(t *testing.T) {
	source := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
		runtime.Goexit() // as t.FailNow does
		return "", time.Time{}, nil
	}, 0)
	for range 2 {
		_, err := source.AccessKey(t.Context(), "")
		assert.ErrorContains(t, err, "did not return")
	}
}

func TestPanicOfFetchReachesEveryWaitingCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{delay: time.Second, panics: 1}
		source := msgpush.CachedAccessKey(v.fetch, 0)
		client := newClientWithKey(t, "", succeed, msgpush.WithAccessKeySource(source))
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

func TestPanicOfFetchWithoutWaitingCallerReachesNextCaller(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(*testing.T, msgpush.AccessKeySource) // returns after fetch has panicked
	}{
		{"background renewal", func(t *testing.T, source msgpush.AccessKeySource) {
			assertKey(t, source, "", "key-1", time.Second)
			time.Sleep(40 * time.Second)
			assertKey(t, source, "", "key-1", 0)
			time.Sleep(2 * time.Second)
		}},
		{"context of the caller has ended", func(t *testing.T, source msgpush.AccessKeySource) {
			assertKey(t, source, "", "key-1", time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := source.AccessKey(ctx, "key-1")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(2 * time.Second)
		}},
	}
	for _, tt := range tests {
		runInBubble(t, tt.name, func(t *testing.T) {
			v := &vault{delay: time.Second, life: time.Minute, panics: 2}
			source := msgpush.CachedAccessKey(v.fetch, 30*time.Second)
			tt.prepare(t, source)
			assert.Equal(t, int32(2), v.fetches.Load())
			assert.PanicsWithValue(t, "fetch panicked", func() { _, _ = source.AccessKey(t.Context(), "") })
			assertKey(t, source, "key-1", "key-3", time.Second)
		})
	}
}

func TestDoesNotCacheKeyInvalidInHeader(t *testing.T) {
	v := &vault{keys: []string{testKey + "\n", "", testKey}}
	source := msgpush.CachedAccessKey(v.fetch, 0)
	for _, want := range []string{"control character", "empty"} {
		_, err := source.AccessKey(t.Context(), "")
		assert.ErrorContains(t, err, want)
	}
	key, err := source.AccessKey(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, testKey, key)
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
			return testKey, time.Time{}, nil
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			source := msgpush.CachedAccessKey(fetch, 0)
			client := newClientWithKey(t, "", succeed, msgpush.WithAccessKeySource(source))
			concurrently(3, func() {
				start := time.Now()
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				assert.Equal(t, 30*time.Second, time.Since(start))
				onlyError[*msgpush.RequestError](t, err)
				assert.ErrorContains(t, err, "access key: "+limit)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
			if name == "ignores its context" {
				start := time.Now()
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				assert.ErrorContains(t, err, limit)
				assert.Zero(t, time.Since(start), "later callers do not wait, and no second fetch starts")
				time.Sleep(time.Hour)
				assertKey(t, source, "", testKey, 0)
			}
		})
	}
}
