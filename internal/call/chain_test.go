package call

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newStep returns a caller whose source returns "first-key", the state of a call, and its request.
func newStep(t *testing.T) (*Caller, *state, *http.Request) {
	t.Helper()
	config := Config{
		Base:             &url.URL{Scheme: "https", Host: "push.example.com"},
		AttemptTimeout:   time.Second,
		Retry:            RetryPolicy{MaxAttempts: 3, MinWait: 200, MaxWait: 30_000},
		UserAgent:        "test/1",
		MaxResponseBytes: 100,
		Source:           func(context.Context, string) (string, error) { return "first-key", nil },
		Transport:        respond(200, strings.NewReader("{}")),
	}
	c := &Caller{Config: config, quota: newQuota(0), attemptTimeoutErr: timeoutError("timeout %v", time.Second)}
	s := &state{spec: Spec{Operation: "Test", Method: http.MethodGet}}
	c.begin(t.Context(), s)
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "https://push.example.com/x", nil)
	require.NoError(t, err)
	return c, s, req
}

func respond(status int, body io.Reader, location ...string) roundTripFunc {
	return func(*http.Request) (*http.Response, error) {
		resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(body)}
		if location != nil {
			resp.Header["Location"] = location
		}
		return resp, nil
	}
}

func fail(err error) roundTripFunc {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

func TestRequestPassesStepsFromTopToBottom(t *testing.T) {
	var passed []string
	named := func(name string) step {
		return func(next http.RoundTripper) http.RoundTripper {
			return roundTripFunc(func(r *http.Request) (*http.Response, error) {
				passed = append(passed, name)
				resp, err := next.RoundTrip(r)
				passed = append(passed, "after "+name)
				return resp, err
			})
		}
	}
	_, _, req := newStep(t)
	_, err := through(respond(200, nil), named("a"), named("b")).RoundTrip(req) //nolint:bodyclose // there is none
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "after b", "after a"}, passed)
}

func TestChainHasNoMethodCloseIdleConnections(t *testing.T) {
	c, _, _ := newStep(t)
	c.Transport = new(http.Transport)
	_, ok := c.chain().(interface{ CloseIdleConnections() })
	assert.False(t, ok, "go-retryablehttp would call it after each call that fails")
}
