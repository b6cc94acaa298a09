//go:build js

package browser

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/testcalls"
	"example.com/msgpush/msgpushtest"
)

// hidesRedirects reports whether the host is a browser.
var hidesRedirects = os.Getenv("HOST") == "Chromium"

// A wrapper is a transport that the client does not recognize.
type wrapper struct{ http.RoundTripper }

func transports() map[string]*http.Client {
	return map[string]*http.Client{
		"default":                        {},
		"NewTransport":                   {Transport: msgpush.NewTransport()},
		"http.DefaultTransport":          {Transport: http.DefaultTransport},
		"clone of http.DefaultTransport": {Transport: http.DefaultTransport.(*http.Transport).Clone()},
		"zero http.Transport":            {Transport: &http.Transport{}},
		"wrapper of NewTransport":        {Transport: wrapper{msgpush.NewTransport()}},
		"client that follows redirects":  {CheckRedirect: func(*http.Request, []*http.Request) error { return nil }},
	}
}

// newClient returns a client of a path of the service.
func newClient(t *testing.T, path string, opts ...msgpush.Option) *msgpush.Client {
	t.Helper()
	retries := msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 2, MinWait: time.Millisecond})
	client, err := msgpush.NewClient(
		os.Getenv("SERVICE")+path,
		os.Getenv("ACCESS_KEY"),
		append([]msgpush.Option{retries}, opts...)...)
	require.NoError(t, err)
	return client
}

func TestEveryTransportReachesTheService(t *testing.T) {
	for name, h := range transports() {
		t.Run(name, func(t *testing.T) {
			for _, call := range testcalls.Idempotent() {
				_, err := call.Do(t.Context(), newClient(t, "", msgpush.WithHTTPClient(h)))
				assert.NoError(t, err, call.Operation)
			}
		})
	}
}

// The test of the host checks that no request reached the target of the redirects.
func TestNoRedirectIsFollowed(t *testing.T) {
	for name, h := range transports() {
		for _, status := range []int{301, 302, 303, 307, 308} {
			t.Run(fmt.Sprint(name, " ", status), func(t *testing.T) {
				client := newClient(t, fmt.Sprint("/redirect/", status), msgpush.WithHTTPClient(h))
				check := func(err error) {
					t.Helper()
					var apiErr *msgpush.APIError
					var requestErr *msgpush.RequestError
					if hidesRedirects {
						require.ErrorAs(t, err, &requestErr)
						assert.ErrorContains(t, err, "redirect")
						assert.Equal(t, 1, requestErr.Attempts)
					} else {
						require.ErrorAs(t, err, &apiErr)
						assert.Equal(t, status, apiErr.HTTPStatus)
						assert.Equal(t, 1, apiErr.Attempts)
					}
				}
				for _, call := range testcalls.All() { // a GET, and POSTs
					_, err := call.Do(t.Context(), client)
					check(err)
				}
				for _, method := range []string{"GET", "POST", "PUT"} {
					_, err := msgpush.Call[any](t.Context(), client, msgpush.Request{Method: method, Path: "/x"})
					check(err)
				}
			})
		}
	}
}

func TestAttemptEndsAtTimeoutOrDeadline(t *testing.T) {
	for _, path := range []string{"/stall/header", "/stall/body"} {
		t.Run(path, func(t *testing.T) {
			_, err := newClient(t, path, msgpush.WithTimeout(200*time.Millisecond)).MPList(t.Context(), msgpush.PageRequest{})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "no complete response within 200ms (see WithTimeout) (2 attempts)")

			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err = newClient(t, path).MPList(ctx, msgpush.PageRequest{})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "(1 attempt")
		})
	}
}

// A browser shows a header of another origin only if the response exposes it.
func TestRetryAfterIsHonoured(t *testing.T) {
	_, err := newClient(t, "/unavailable").MPList(t.Context(), msgpush.PageRequest{})
	var apiErr *msgpush.APIError
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, 503, apiErr.HTTPStatus)
	assert.Equal(t, time.Hour, apiErr.RetryAfter)
}

func TestFakeServerWorks(t *testing.T) {
	for name, opts := range map[string][]msgpushtest.Option{"socket": nil, "in memory": {msgpushtest.InMemory()}} {
		t.Run(name, func(t *testing.T) {
			srv := msgpushtest.New(t, opts...)
			client := srv.Client()
			for _, call := range testcalls.All() {
				srv.SetRecords(msgpushtest.SampleRecords()) // a call may change them
				_, err := call.Do(t.Context(), client)
				assert.NoError(t, err, call.Operation)
			}
			srv.Inject(msgpushtest.Status(503), msgpushtest.Reset(), msgpushtest.ResetInBody(), msgpushtest.Truncate())
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			assert.NoError(t, err)
			assert.Len(t, srv.Requests(), len(testcalls.All())+5)
		})
	}
}
