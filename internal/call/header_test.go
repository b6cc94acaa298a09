package call

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachAttemptHasHeaderOfItsOwn(t *testing.T) {
	c, s, req := newStep(t)
	s.key = "first-key"
	req.Header.Set("Cookie", "session=1")
	var sent []http.Header
	c.Transport = roundTripFunc(func(r *http.Request) (*http.Response, error) {
		assert.NotSame(t, req, r)
		sent = append(sent, r.Header)
		return respond(200, http.NoBody)(r)
	})
	for range 2 {
		_, err := c.attempt(s, req) //nolint:bodyclose // in memory
		require.NoError(t, err)
	}
	want := http.Header{
		"Access-Key": {"first-key"},
		"User-Agent": {"test/1"},
		"Accept":     {"application/json"},
		"Cookie":     {"session=1"},
	}
	assert.Equal(t, want, sent[1])
	assert.Equal(t, http.Header{"Cookie": {"session=1"}}, req.Header, "the request is not changed")
	for _, values := range sent[0] {
		values[0] = "changed"
		if len(values) == 1 {
			_ = append(values, "more")
		}
	}
	sent[0].Set("X-More", "more")
	want.Set("Cookie", "changed") // http.Client makes the values of the cookies
	assert.Equal(t, want, sent[1], "attempts share no values")
}

func TestContentTypeIsSetForPostOrBody(t *testing.T) {
	for name, tt := range map[string]struct {
		spec Spec
		want []string
	}{
		"GET":           {Spec{Method: "GET"}, nil},
		"POST":          {Spec{Method: "POST"}, []string{"application/json"}},
		"PUT with body": {Spec{Method: "PUT", Body: 1}, []string{"application/json"}},
	} {
		c, s, _ := newStep(t)
		s.spec = tt.spec
		assert.Equal(t, tt.want, c.newHeader(s, nil)["Content-Type"], name)
	}
}

func TestRetryBeginsWithoutCookies(t *testing.T) {
	old := http.Header{"Cookie": {"session=1"}}
	req := &http.Request{Header: old}
	c, s, _ := newStep(t)
	require.NoError(t, c.newRetrier(s).PrepareRetry(req))
	assert.Empty(t, req.Header)
	assert.NotNil(t, req.Header)
	assert.Len(t, old, 1, "a transport may still read it")
}
