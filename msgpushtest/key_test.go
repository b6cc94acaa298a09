package msgpushtest_test

import (
	"net/http"
	"testing"

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
	server.ReplaceKey("another-key")
	for name, call := range calls {
		var apiErr *msgpush.APIError
		require.ErrorAs(t, call(client), &apiErr, name)
		assert.Equal(t, msgpushtest.CodeAccessKey, apiErr.Code)
		assert.True(t, apiErr.KeyRejected)
		assert.Equal(t, 1, apiErr.Attempts)
	}
	assert.NoError(t, listChannels(server.Client()), "a new client uses the new key")
}

func TestEachRejectionOfAKeyHasTheCodeOfTheServer(t *testing.T) {
	const code = 1003
	server := msgpushtest.New(t, msgpushtest.RejectedKeyCode(code))
	rejects := map[string]func(){
		"fault":        func() { server.Inject(msgpushtest.RejectKey()) },
		"replaced key": func() { server.ReplaceKey("another-key") },
	}
	for name, reject := range rejects {
		client := server.Client()
		reject()
		apiErr := rejection(t, client)
		assert.Equal(t, code, apiErr.Code, name)
		assert.True(t, apiErr.KeyRejected, name)
	}
	other := rejection(t, newClient(t, server, "other-key", msgpush.WithRejectedKeyCodes(code)))
	assert.Equal(t, code, other.Code)
	assert.True(t, other.KeyRejected)
}

// rejection returns the error of a client whose key is rejected.
func rejection(t *testing.T, client *msgpush.Client) *msgpush.APIError {
	t.Helper()
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	var apiErr *msgpush.APIError
	require.ErrorAs(t, err, &apiErr)
	return apiErr
}

// newClient returns the client of a program, which puts its own options behind the server's.
func newClient(t *testing.T, s *msgpushtest.Server, key string, opts ...msgpush.Option) *msgpush.Client {
	t.Helper()
	client, err := msgpush.NewClient(s.URL, key, append(s.Options(), opts...)...)
	require.NoError(t, err)
	return client
}

func TestProgramThatForgetsTheCodeOfARejectedKeySeesNoRejection(t *testing.T) {
	server := msgpushtest.New(t)
	client := newClient(t, server, server.AccessKey())
	server.ReplaceKey("another-key")
	assert.False(t, rejection(t, client).KeyRejected)
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

	server.ReplaceKey("second")
	assert.Contains(t, msg(first), replaced)
	server.ReplaceKey("second")
	assert.Equal(t, "success", msg("second"), "set once more")

	server.ReplaceKey(first)
	assert.Equal(t, "success", msg(first), "accepted once more")

	server.Inject(msgpushtest.RejectKey())
	assert.Contains(t, msg(first), "by a fault")
}
