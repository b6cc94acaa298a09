package msgpush_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

type receivedRequest struct {
	Method, Path, Query string
	Header              http.Header
	Body                string
}

// handle returns a transport in memory that calls h as a server does.
func handle(h http.HandlerFunc) fixtures.RoundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		received := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.RequestURI(), r.Body)
		received.Header = r.Header
		w := httptest.NewRecorder()
		h(w, received)
		response := w.Result()
		response.Request = r
		return response, nil
	}
}

// recordRequests returns a handler that responds with a body, and the requests that the
// handler records. They may be read when the calls have returned.
func recordRequests(body string) (http.HandlerFunc, *[]receivedRequest) {
	var requests []receivedRequest
	return func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		requests = append(requests, receivedRequest{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Clone(), string(b)})
		fixtures.ServeJSON(body)(w, r)
	}, &requests
}

// acceptOnly returns a transport that accepts one key and calls reject for other keys.
func acceptOnly(key string, reject fixtures.RoundTripFunc) fixtures.RoundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("access-key") != key {
			return reject(r)
		}
		return fixtures.Succeed(r)
	}
}

// assertEncodesTo checks that data is encoded to the response body that it was decoded
// from.
func assertEncodesTo(t *testing.T, body string, data any) {
	t.Helper()
	b, err := json.Marshal(msgpush.Envelope[any]{Code: 200, Msg: "请求成功", Data: data})
	require.NoError(t, err)
	assert.JSONEq(t, body, string(b))
}
