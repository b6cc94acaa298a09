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

	"example.com/msgpush/internal/redact"
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
	c := NewCaller(config, redact.Keys{})
	s := &state{spec: Spec{Operation: "Test", Method: http.MethodGet}}
	c.begin(t.Context(), s)
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "https://push.example.com/x", nil)
	require.NoError(t, err)
	return c, s, req
}

func respond(status int, body io.Reader) roundTripFunc {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(body)}, nil
	}
}

func fail(err error) roundTripFunc {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

func TestTransportOfRetryLoopHasNoMethodCloseIdleConnections(t *testing.T) {
	c, s, _ := newStep(t)
	_, ok := c.newRetrier(s).HTTPClient.Transport.(interface{ CloseIdleConnections() })
	assert.False(t, ok, "go-retryablehttp would call it after each call that fails")
}
