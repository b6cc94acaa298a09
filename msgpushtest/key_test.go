package msgpushtest_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

func TestEachServerHasItsOwnKey(t *testing.T) {
	one, other := msgpushtest.New(t), msgpushtest.New(t)
	assert.NotEqual(t, one.AccessKey(), other.AccessKey())
}

func TestReplacedKeyIsRejected(t *testing.T) {
	server := newServer(t)
	client := server.Client()
	server.SetAccessKey("another-key")
	for name, call := range calls {
		var apiErr *msgpush.APIError
		require.ErrorAs(t, call(client), &apiErr, name)
		assert.Equal(t, msgpushtest.CodeAccessKey, apiErr.Code)
		assert.True(t, apiErr.KeyRejected)
		assert.Equal(t, 1, apiErr.Attempts)
	}
	assert.NoError(t, listChannels(server.Client()), "a new client uses the new key")
}

func TestRejectionSaysWhatIsWrongWithTheKey(t *testing.T) {
	const missing, replaced, other = "missing or empty", "was replaced", "another one"
	server := newServer(t)
	first := server.AccessKey()
	msg := func(key string) string {
		header := http.Header{"Content-Type": {"application/json"}}
		if key != "" {
			header.Set("access-key", key)
		}
		envelope := exchange(t, "POST", server.URL+"/api/open/mp/list", header, "{}")
		if envelope.Code != 200 {
			assert.Equal(t, msgpushtest.CodeAccessKey, envelope.Code)
		}
		return envelope.Msg
	}
	assert.Contains(t, msg(""), missing)
	assert.Contains(t, msg("x"), other)
	assert.Equal(t, "success", msg(first))

	server.SetAccessKey("second")
	assert.Contains(t, msg(first), replaced)
	server.SetAccessKey("second")
	assert.Equal(t, "success", msg("second"), "set once more")

	server.SetKeyLifetime(1)
	assert.Equal(t, "success", msg("second"))
	assert.Contains(t, msg("second"), replaced, "the key has expired")

	server.SetAccessKey("")
	assert.Contains(t, msg("second"), replaced)
	assert.Contains(t, msg("x"), other)
	assert.Contains(t, msg(""), missing, "no key is accepted")

	server.SetAccessKey(first)
	assert.Equal(t, "success", msg(first), "accepted once more")

	server.Inject(msgpushtest.RejectKey())
	assert.Contains(t, msg(first), "by a fault")
}

func TestEveryKeyIsRejectedIfTheKeyIsEmpty(t *testing.T) {
	server := msgpushtest.New(t)
	server.SetAccessKey("")
	var apiErr *msgpush.APIError
	require.ErrorAs(t, listChannels(server.Client()), &apiErr)
	assert.True(t, apiErr.KeyRejected)
	envelope := exchange(t, "GET", server.URL+"/api/open/mail/detail?mailId=1", nil, "")
	assert.Equal(t, msgpushtest.CodeAccessKey, envelope.Code)
}

func TestCachedKeyIsReplacedAfterRotation(t *testing.T) {
	for name, rotate := range map[string]func(*msgpushtest.Server){
		"SetAccessKey":   func(server *msgpushtest.Server) { server.SetAccessKey("another-key") },
		"SetKeyLifetime": func(server *msgpushtest.Server) { server.SetKeyLifetime(1) },
	} {
		t.Run(name, func(t *testing.T) {
			server := msgpushtest.New(t)
			keys := msgpush.CachedAccessKey(
				func(context.Context) (string, time.Time, error) { return server.AccessKey(), time.Time{}, nil },
				msgpush.AccessKeyCacheOptions{})
			client := server.Client(msgpush.WithAccessKeySource(keys))
			require.NoError(t, listChannels(client))
			rotate(server)
			require.NoError(t, listChannels(client))
			require.NoError(t, listChannels(client))
			assert.Greater(t, len(server.Requests()), 3, "a request was rejected")
		})
	}
}

func TestKeyLifetimeLimitsRequestsPerKey(t *testing.T) {
	server := msgpushtest.New(t)
	server.SetKeyLifetime(3)
	key := server.AccessKey()
	client := server.Client()
	require.NoError(t, listChannels(client))
	require.NoError(t, listChannels(client))
	server.Inject(msgpushtest.Status(418))
	require.Error(t, listChannels(client), "a fault does not use the key")
	assert.Equal(t, key, server.AccessKey())
	require.NoError(t, listChannels(client))
	assert.NotEqual(t, key, server.AccessKey())
	require.Error(t, listChannels(client), "the client has the old key")

	key = server.AccessKey()
	client = server.Client()
	for range 2 {
		require.NoError(t, listChannels(client))
	}
	assert.Equal(t, key, server.AccessKey(), "the new key has the whole lifetime")

	key = server.AccessKey()
	server.SetKeyLifetime(0)
	client = server.Client()
	for range 5 {
		require.NoError(t, listChannels(client))
	}
	assert.Equal(t, key, server.AccessKey())
}
