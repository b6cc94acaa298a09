package msgpush_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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
	for name, response := range map[string]fixtures.RoundTripFunc{
		"code 401":               respondWithCode(200, 401),
		"code 403":               respondWithCode(200, 403),
		"code 403 with HTTP 403": respondWithCode(403, 403),
	} {
		_, err := fixtures.NewClient(t, response).MPList(t.Context(), msgpush.PageRequest{})
		fixtures.OnlyError[*msgpush.APIError](t, err)
		assert.ErrorContains(t, err, "pass it to WithRejectedKeyCodes", name)
	}
}

func TestErrorDoesNotSuggestRejectedKeyCodes(t *testing.T) {
	tests := []struct {
		name     string
		opts     []msgpush.Option
		response fixtures.RoundTripFunc
	}{
		{
			name:     "another code",
			response: respondWithCode(200, 404),
		},
		{
			name:     "HTTP 403 without a code",
			response: fixtures.Respond(403, "<html>"),
		},
		{
			name:     "code 401 with HTTP 401, which means a rejected key",
			response: respondWithCode(401, 401),
		},
		{
			name:     "WithRejectedKeyCodes is given",
			opts:     []msgpush.Option{msgpush.WithRejectedKeyCodes(4010)},
			response: respondWithCode(200, 401),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := fixtures.NewClient(t, tt.response, tt.opts...).MPList(t.Context(), msgpush.PageRequest{})
			fixtures.OnlyError[*msgpush.APIError](t, err)
			assert.NotContains(t, err.Error(), "pass it to WithRejectedKeyCodes")
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
		{
			name:     "static key",
			reject:   fixtures.Status(401),
			attempts: 1,
		},
		{
			name:     "static key, retryable status",
			reject:   respondWithCode(503, 4010),
			attempts: 1,
		},
		{
			name:     "source that has no other key",
			reject:   fixtures.Status(401),
			source:   fixtures.FixedSource,
			attempts: 1,
		},
		{
			name:     "source that has no other key, retryable status",
			reject:   respondWithCode(503, 4010),
			source:   fixtures.FixedSource,
			attempts: 1,
		},
		{
			name:     "source that returns another rejected key",
			reject:   fixtures.Status(401),
			source:   fixtures.GrowingSource,
			attempts: 2,
		},
		{
			name:     "source that fails",
			reject:   fixtures.Status(401),
			source:   fixtures.SourceWithOneKey(errNoKey),
			attempts: 1,
			err:      "the vault is sealed",
		},
		{
			name:     "source that returns an empty key",
			reject:   fixtures.Status(401),
			source:   fixtures.SourceWithOneKey(nil),
			attempts: 1,
			err:      "the key is empty",
		},
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
				assert.ErrorIs(t, err, msgpush.ErrNoAccessKey)
				err = fixtures.OnlyError[*msgpush.RequestError](t, err).Last
			}
			assert.True(t, fixtures.OnlyError[*msgpush.APIError](t, err).KeyRejected)
		})
	}
}

func TestErrorSaysThatSourceHasNoOtherKey(t *testing.T) {
	tests := []struct {
		name  string
		keys  []string // returned by the source; the last key repeats
		steps []fixtures.RoundTripFunc
		want  string
	}{
		{
			name:  "at once",
			keys:  []string{"key-1"},
			steps: steps{fixtures.Status(401)},
			want:  "HTTP 401 Unauthorized",
		},
		{
			name:  "after an attempt with another key",
			keys:  []string{"key-1", "key-2", "key-1"},
			steps: steps{fixtures.Status(401), fixtures.Status(503)},
			want:  "HTTP 503 Service Unavailable",
		},
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
			assert.Equal(t, 1, strings.Count(err.Error(), "; the key source has no other key)"), err.Error())
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
		{name: "error", source: fixtures.SourceOf("", errNoKey), want: "the vault is sealed", wraps: errNoKey},
		{name: "empty key", source: fixtures.SourceOf("", nil), want: "the key is empty"},
		{name: "key with a line break", source: fixtures.SourceOf(fixtures.TestKey+"\n", nil), want: "control character"},
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

func assertKeyOf(t *testing.T, source msgpush.AccessKeySource, rejected, want string) {
	t.Helper()
	key, err := source.AccessKey(t.Context(), rejected)
	assert.NoError(t, err)
	assert.Equal(t, want, key)
}

// If the service rejects every key, a fetch for each call would be a burden.
func TestRejectionsCauseOneFetchASecond(t *testing.T) {
	const fetches = 11 // at most; after each, a caller may retry once
	for _, callers := range []int{1, 10} {
		fixtures.RunInBubble(t, fmt.Sprint("another key each time, ", callers, " callers"), func(t *testing.T) {
			retries := retriesOfRejectedCallers(t, &fixtures.Vault{}, callers)
			assert.LessOrEqual(t, retries, callers*fetches)
		})
		fixtures.RunInBubble(t, fmt.Sprint("the same key each time, ", callers, " callers"), func(t *testing.T) {
			retries := retriesOfRejectedCallers(t, &fixtures.Vault{Keys: []string{"key-1"}}, callers)
			assert.Zero(t, retries)
		})
	}
}

// retriesOfRejectedCallers lets callers call a service that rejects every key, for ten seconds. It checks the
// fetches from the vault, and returns how many attempts were made with another key.
func retriesOfRejectedCallers(t *testing.T, v *fixtures.Vault, callers int) (retries int) {
	t.Helper()
	transport := fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		time.Sleep(100 * time.Millisecond)
		return fixtures.Status(401)(r)
	})
	option, calls := fixtures.CallsObserved()
	client := fixtures.NewClientWithKey(t, "", transport, fixtures.DefaultRetries, option,
		msgpush.WithAccessKeySource(msgpush.CachedAccessKey(v.Fetch, msgpush.AccessKeyCacheOptions{})))
	start := time.Now()
	fixtures.Concurrently(callers, func() {
		for time.Since(start) < 10*time.Second {
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			assert.True(t, fixtures.OnlyError[*msgpush.APIError](t, err).KeyRejected)
		}
	})
	assert.LessOrEqual(t, v.Fetches.Load(), int32(1+11), "the first key, and one fetch a second")
	assert.GreaterOrEqual(t, v.Fetches.Load(), int32(1+9))
	for _, r := range calls() {
		retries += r.Attempts - 1
	}
	return retries
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
		require.NoError(t, source.Set("first", time.Now().Add(5*time.Second))) // a renewal may use the old key
		assertKeyOf(t, source, "", "first")
		synctest.Wait()
		assertKeyOf(t, source, "", "first") // the pause after the failed fetch
		time.Sleep(time.Second)
		assertKeyOf(t, source, "", "first")
		synctest.Wait()
		assertKeyOf(t, source, "", "renewed")
	})
}

func TestAccessKeyCacheOfNoConstructorReturnsError(t *testing.T) {
	var source msgpush.AccessKeyCache
	require.EqualError(t, source.Set("key", time.Time{}),
		"msgpush: AccessKeyCache.Set: the AccessKeyCache was not made by CachedAccessKey")
	_, err := source.AccessKey(t.Context(), "")
	require.EqualError(t, err, "the AccessKeyCache was not made by CachedAccessKey")
}

func TestFailedFetchIsReportedWithoutAKey(t *testing.T) {
	fetch := func(context.Context) (string, time.Time, error) {
		return "key-of-the-vault", time.Time{}, errors.New("key-of-the-vault is not signed")
	}
	var log bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	_, err := msgpush.CachedAccessKey(fetch, msgpush.AccessKeyCacheOptions{}).AccessKey(t.Context(), "")
	require.Error(t, err)
	assert.Contains(t, log.String(), "level=WARN")
	assert.Contains(t, log.String(), "access key: [redacted] is not signed")
	assert.NotContains(t, log.String(), "key-of-the-vault")

	log.Reset()
	var reported []error
	o := msgpush.AccessKeyCacheOptions{OnError: func(err error) { reported = append(reported, err) }}
	_, err = msgpush.CachedAccessKey(fetch, o).AccessKey(t.Context(), "")
	require.Error(t, err)
	require.Len(t, reported, 1)
	assert.EqualError(t, reported[0], "access key: [redacted] is not signed")
	assert.Empty(t, log.String())
}

func TestCallSaysThatFetchExceededItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fixtures.Vault{Delay: time.Hour}
		source := msgpush.CachedAccessKey(v.Fetch, msgpush.AccessKeyCacheOptions{})
		client := fixtures.NewClientWithKey(t, "", fixtures.Succeed, msgpush.WithAccessKeySource(source))
		start := time.Now()
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		assert.Equal(t, msgpush.AccessKeyTimeout, time.Since(start))
		fixtures.OnlyError[*msgpush.RequestError](t, err)
		assert.ErrorContains(t, err, "access key: fetch did not return within 30s, the timeout of CachedAccessKey")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestPanicOfKeySourceReachesTheCaller(t *testing.T) {
	source := msgpush.CachedAccessKey((&fixtures.Vault{Panics: 1}).Fetch, msgpush.AccessKeyCacheOptions{})
	client := fixtures.NewClientWithKey(t, "", fixtures.Succeed, msgpush.WithAccessKeySource(source))
	assert.PanicsWithValue(t, "fetch panicked", func() { _, _ = client.MPList(t.Context(), msgpush.PageRequest{}) })
}

func TestAccessKeyFileLeavesOutWhatEditorsAdd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	for _, content := range []string{"the-key", "the-key\n", "\ufeffthe-key\r\n", " the-key\t\n\n"} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		assertKeyOf(t, msgpush.AccessKeyFile(file), "", "the-key")
	}
}

func TestAccessKeyFileWaitsTenSecondsForAKey(t *testing.T) {
	for name, tt := range map[string]struct {
		first   string // content; "none": there is no file
		after   time.Duration
		waits   time.Duration
		timeout time.Duration // of the call; 0: none
		check   func(t *testing.T, err error)
	}{
		"a missing file":   {first: "none", after: 5500 * time.Millisecond, waits: 6 * time.Second},
		"an empty file":    {first: "\n", after: 5500 * time.Millisecond, waits: 6 * time.Second},
		"the rejected key": {first: "old-key", after: 9500 * time.Millisecond, waits: 10 * time.Second},
		"a file that stays missing": {first: "none", after: time.Hour, waits: 10 * time.Second,
			check: func(t *testing.T, err error) {
				require.ErrorIs(t, err, fs.ErrNotExist)
				assert.Equal(t, "no_access_key", msgpush.Outcome(err))
			}},
		"a file that stays missing, in a shorter call": {first: "none", after: time.Hour, waits: 3 * time.Second,
			timeout: 3 * time.Second, check: func(t *testing.T, err error) {
				require.ErrorIs(t, err, fs.ErrNotExist)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, "no_access_key", msgpush.Outcome(err))
			}},
		"a file that stays empty": {first: "", after: time.Hour, waits: 10 * time.Second,
			check: func(t *testing.T, err error) { assert.ErrorContains(t, err, "the key is empty") }},
		"a key that stays rejected": {first: "old-key", after: time.Hour, waits: 10 * time.Second,
			check: func(t *testing.T, err error) {
				assert.True(t, fixtures.OnlyError[*msgpush.APIError](t, err).KeyRejected)
				assert.ErrorContains(t, err, "the key source has no other key")
			}},
		"a key that stays rejected, in a shorter call": {first: "old-key", after: time.Hour, waits: 3 * time.Second,
			timeout: 3 * time.Second, check: func(t *testing.T, err error) {
				assert.True(t, fixtures.OnlyError[*msgpush.APIError](t, err).KeyRejected)
			}},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "key")
			if tt.first != "none" {
				require.NoError(t, os.WriteFile(file, []byte(tt.first), 0o600))
			}
			time.AfterFunc(tt.after, func() { _ = os.WriteFile(file, []byte("new-key\n"), 0o600) })
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tt.timeout, time.Minute))
			defer cancel()
			begin := time.Now()
			client := fixtures.NewClientWithKey(t, "", acceptOnly("new-key", fixtures.Status(401)),
				msgpush.WithAccessKeySource(msgpush.AccessKeyFile(file)))
			_, err := client.MPList(ctx, msgpush.PageRequest{})
			assert.Equal(t, tt.waits, time.Since(begin))
			if tt.check == nil {
				require.NoError(t, err)
			} else {
				tt.check(t, err)
			}
		})
	}
}

// Each call with a revoked key would hold a goroutine for ten seconds otherwise.
func TestCallsShareTheWaitForAKeyFile(t *testing.T) {
	fixtures.RunInBubble(t, "", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "key")
		write := func(key string) { require.NoError(t, os.WriteFile(file, []byte(key), 0o600)) }
		write("key-1")
		source := msgpush.AccessKeyFile(file)
		assertWait := func(rejected, want string, wait time.Duration) {
			t.Helper()
			begin := time.Now()
			assertKeyOf(t, source, rejected, want)
			assert.Equal(t, wait, time.Since(begin))
		}
		for range 100 {
			time.AfterFunc(6500*time.Millisecond, func() { assertWait("key-1", "key-1", 4*time.Second) })
		}
		assertWait("key-1", "key-1", 10*time.Second)
		time.Sleep(time.Second)
		assertWait("", "key-1", 0)
		assertWait("key-1", "key-1", 0)
		write("key-2")
		assertWait("key-1", "key-2", 0)
		write("key-1")
		assertWait("key-1", "key-1", 10*time.Second)
		write("key-2")
		assertWait("key-2", "key-2", 10*time.Second)
	})
}

// A shutdown while a secret is not mounted yet is no failure of the key.
func TestCancelledCallThatWaitsForAKeyFileIsCancelled(t *testing.T) {
	for name, content := range map[string]string{"missing": "none", "empty": ""} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "key")
			if content != "none" {
				require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			source := msgpush.WithAccessKeySource(msgpush.AccessKeyFile(file))
			_, err := fixtures.NewClientWithKey(t, "", fixtures.Succeed, source).MPList(ctx, msgpush.PageRequest{})
			require.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, "canceled", msgpush.Outcome(err))
		})
	}
}
