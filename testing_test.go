package msgpush_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// testKey is a unique string, so that a search finds it in any text that leaks it.
const testKey = "ak-7Qx9-never-to-be-seen"

// noRetries is the policy of clients in tests that do not test retries.
var noRetries = msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 1})

// newClient returns a client of a service below the path prefix /gateway that
// responds with h. By default, it does not retry.
func newClient(t testing.TB, h http.HandlerFunc, opts ...msgpush.Option) *msgpush.Client {
	t.Helper()
	server := httptest.NewServer(http.StripPrefix("/gateway", h))
	t.Cleanup(server.Close)
	return newClientAt(t, server.URL+"/gateway", opts...)
}

// newClientAt returns a client of the service at a URL. By default, it does not
// retry.
func newClientAt(t testing.TB, baseURL string, opts ...msgpush.Option) *msgpush.Client {
	t.Helper()
	client, err := msgpush.NewClient(baseURL, testKey, append([]msgpush.Option{noRetries}, opts...)...)
	require.NoError(t, err)
	return client
}

// newClientWithTransport returns a client that uses a transport. By default, it does
// not retry.
func newClientWithTransport(t testing.TB, transport http.RoundTripper, opts ...msgpush.Option) *msgpush.Client {
	t.Helper()
	return newClientAt(t, "http://push.example.com", append([]msgpush.Option{msgpush.WithHTTPClient(&http.Client{Transport: transport})}, opts...)...)
}

// respondWith is a service that sends the same response to every request.
func respondWith(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// respondWithJSON is a service that responds to every request with HTTP 200 and a body.
func respondWithJSON(body string) http.HandlerFunc {
	return respondWith(http.StatusOK, "application/json", body)
}

// A receivedRequest is a request that a service received.
type receivedRequest struct {
	Method, Path, Query string
	Header              http.Header
	Body                string
}

// recordRequests is a service that records requests and responds with a body. The
// requests may be read when the calls have returned.
func recordRequests(body string) (http.HandlerFunc, *[]receivedRequest) {
	var requests []receivedRequest
	return func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		requests = append(requests, receivedRequest{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Clone(), string(b)})
		respondWithJSON(body)(w, r)
	}, &requests
}

// failOnRequest is a service that must receive no request.
func failOnRequest(t testing.TB) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was sent", r.Method, r.URL)
	}
}

// A roundTripFunc is a transport in memory.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func readFile(t testing.TB, elem ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, elem...)...))
	require.NoError(t, err)
	return strings.TrimSpace(string(b))
}

// specifiedCalls calls each specified operation with minimal arguments.
var specifiedCalls = map[string]func(*msgpush.Client, context.Context) (any, error){
	"mail channel detail": func(c *msgpush.Client, ctx context.Context) (any, error) {
		return c.MailDetail(ctx, "5")
	},
	"official-account channel list": func(c *msgpush.Client, ctx context.Context) (any, error) {
		return c.MPList(ctx, msgpush.PageRequest{})
	},
	"message rule list": func(c *msgpush.Client, ctx context.Context) (any, error) {
		return c.ForwardRuleList(ctx, msgpush.PageRequest{})
	},
	"trigger record list": func(c *msgpush.Client, ctx context.Context) (any, error) {
		return c.ForwardLogList(ctx, msgpush.ForwardLogRequest{})
	},
}
