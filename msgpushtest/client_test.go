package msgpushtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestClientWithRejectedKeyFailsAfterOneAttempt(t *testing.T) {
	server := msgpushtest.New(t)
	client := server.Client()
	server.SetAccessKey("another-key")
	for name, call := range calls {
		server.ClearRequests()
		var apiErr *msgpush.APIError
		require.ErrorAs(t, call(client), &apiErr, name)
		assert.Equal(t, msgpushtest.CodeAccessKey, apiErr.Code)
		assert.Equal(t, 1, apiErr.Attempts)
		assert.Len(t, server.Requests(), 1)
	}
	assert.NoError(t, calls[msgpushtest.MPList](server.Client()), "a new client uses the new key")
}

func TestClientOptionsOverrideDefaults(t *testing.T) {
	server := msgpushtest.New(t)
	var rejected []string
	source := msgpush.AccessKeyFunc(func(_ context.Context, key string) (string, error) {
		rejected = append(rejected, key)
		if key == "" {
			return "old-key", nil
		}
		return server.AccessKey(), nil
	})
	client := server.Client(msgpush.WithAccessKeySource(source), msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1}))
	require.NoError(t, calls[msgpushtest.MPList](client))
	assert.Equal(t, []string{"", "old-key"}, rejected)

	server.ClearRequests()
	server.Inject(msgpushtest.Status(503))
	assert.Error(t, calls[msgpushtest.MPList](client))
	assert.Len(t, server.Requests(), 1)
}

func TestClientPanicsIfOptionIsInvalid(t *testing.T) {
	server := msgpushtest.New(t)
	assert.PanicsWithValue(t, "msgpushtest: Client: msgpush: WithTimeout: -1ns is not positive",
		func() { server.Client(msgpush.WithTimeout(-1)) })
}

func TestCachedKeyIsReplacedAfterRotation(t *testing.T) {
	for name, rotate := range map[string]func(*msgpushtest.Server){
		"SetAccessKey":   func(server *msgpushtest.Server) { server.SetAccessKey("another-key") },
		"SetKeyLifetime": func(server *msgpushtest.Server) { server.SetKeyLifetime(1) },
	} {
		t.Run(name, func(t *testing.T) {
			server := msgpushtest.New(t)
			client := server.Client(msgpush.WithAccessKeySource(cachedKey(server)))
			require.NoError(t, calls[msgpushtest.MPList](client))
			rotate(server)
			require.NoError(t, calls[msgpushtest.MPList](client))
			require.NoError(t, calls[msgpushtest.MPList](client))
			assert.Greater(t, len(server.Requests()), 3, "a request was rejected")
		})
	}
}

// cachedKey returns a source that uses the key of the server until it is rejected.
func cachedKey(server *msgpushtest.Server) msgpush.AccessKeySource {
	return msgpush.CachedAccessKey(
		func(context.Context) (string, time.Time, error) { return server.AccessKey(), time.Time{}, nil }, 0)
}

func TestKeyLifetimeLimitsRequestsPerKey(t *testing.T) {
	server := msgpushtest.New(t)
	server.SetKeyLifetime(3)
	key := server.AccessKey()
	client := server.Client()
	require.NoError(t, calls[msgpushtest.MPList](client))
	require.NoError(t, calls[msgpushtest.MPList](client))
	server.Inject(msgpushtest.Status(418))
	require.Error(t, calls[msgpushtest.MPList](client), "a fault does not use the key")
	assert.Equal(t, key, server.AccessKey())
	require.NoError(t, calls[msgpushtest.MPList](client))
	assert.NotEqual(t, key, server.AccessKey())
	require.Error(t, calls[msgpushtest.MPList](client))

	key = server.AccessKey()
	server.SetKeyLifetime(0)
	client = server.Client()
	for range 5 {
		require.NoError(t, calls[msgpushtest.MPList](client))
	}
	assert.Equal(t, key, server.AccessKey())
}

func TestRateLimitRejectsRequestsUntilWindowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := msgpushtest.New(t, msgpushtest.InMemory())
		client := clientOf(t, server)
		server.SetRateLimit(2, 90*time.Second/60) // 1.5 s
		server.Inject(msgpushtest.Status(500))
		retryAfter := func() time.Duration {
			err := calls[msgpushtest.MPList](client)
			apiErr, ok := errors.AsType[*msgpush.APIError](err)
			if !ok || apiErr.HTTPStatus != 429 {
				return 0
			}
			assert.Equal(t, msgpushtest.CodeRateLimit, apiErr.Code)
			return apiErr.RetryAfter
		}
		var got []time.Duration
		for range 4 {
			got = append(got, retryAfter())
			time.Sleep(400 * time.Millisecond)
		}
		assert.Equal(t, []time.Duration{0, 0, time.Second, time.Second}, got)
		got = nil
		for range 3 {
			got = append(got, retryAfter())
		}
		assert.Equal(t, []time.Duration{0, 0, 2 * time.Second}, got, "the next window")
		server.SetRateLimit(0, 0)
		assert.Zero(t, retryAfter())

		server.SetRateLimit(10, time.Hour)
		start := time.Now()
		retrying := server.Client(msgpush.WithRetry(msgpush.RetryPolicy{MaxWait: 2 * time.Hour}))
		for range 25 {
			require.NoError(t, calls[msgpushtest.MPList](retrying))
		}
		assert.Equal(t, 2*time.Hour, time.Since(start).Truncate(time.Hour))
	})
}

func TestInvalidLimitsPanic(t *testing.T) {
	server := msgpushtest.New(t)
	assert.PanicsWithValue(t,
		"msgpushtest: SetRateLimit: -1 requests in 1s: n must not be negative, and window must be positive unless n is 0",
		func() { server.SetRateLimit(-1, time.Second) })
	assert.PanicsWithValue(t,
		"msgpushtest: SetRateLimit: 5 requests in 0s: n must not be negative, and window must be positive unless n is 0",
		func() { server.SetRateLimit(5, 0) })
	assert.PanicsWithValue(t, "msgpushtest: SetKeyLifetime: -1 requests: n must not be negative",
		func() { server.SetKeyLifetime(-1) })
}

func TestClientMadeWhileEveryKeyIsRejected(t *testing.T) {
	server := msgpushtest.New(t)
	server.SetAccessKey("")
	_, err := server.Client().MPList(t.Context(), msgpush.PageRequest{})
	var apiErr *msgpush.APIError
	require.ErrorAs(t, err, &apiErr)
	assert.True(t, apiErr.KeyRejected)
}
