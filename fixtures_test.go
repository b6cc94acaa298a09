package msgpush_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/fixtures"
)

// steps are the responses of a script, one for each request.
type steps = []fixtures.RoundTripFunc

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

// recordRequests returns a handler that responds with a body, and the requests that the handler
// records. They may be read when the calls have returned.
func recordRequests(body string) (http.HandlerFunc, *[]receivedRequest) {
	var requests []receivedRequest
	return func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		requests = append(requests,
			receivedRequest{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Clone(), string(b)})
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

// assertEncodesTo checks that data is encoded to the response body that it was decoded from.
func assertEncodesTo(t *testing.T, body string, data any) {
	t.Helper()
	b, err := json.Marshal(msgpush.Envelope[any]{Code: 200, Msg: "请求成功", Data: data})
	require.NoError(t, err)
	assert.JSONEq(t, body, string(b))
}

// assertIterates checks that a list delivers the records 7, 8 and 9 of a service, in pages of two
// records. params is the rest of the body of each request, after the page size.
func assertIterates[T any](t *testing.T, path, params string, want []T, list func(*msgpush.Client) msgpush.Pager[T]) {
	t.Helper()
	var requests []string
	client := fixtures.NewClient(t, fixtures.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, r.Method+" "+r.URL.Path+" "+string(body))
		if strings.Contains(string(body), `"current":1,`) {
			return fixtures.Respond(200,
				fixtures.SuccessOf(`{"pageNum":1,"pageSize":2,"total":3,"pages":2,"list":[{"id":7},{"id":8}]}`))(r)
		}
		return fixtures.Respond(200,
			fixtures.SuccessOf(`{"pageNum":2,"pageSize":2,"total":3,"pages":2,"list":[{"id":9}]}`))(r)
	}))
	wantRequests := []string{
		`POST ` + path + ` {"current":1,"pageSize":2` + params + `}`,
		`POST ` + path + ` {"current":2,"pageSize":2` + params + `}`,
	}
	l := list(client)
	l.PageSize = 2
	records, err := fixtures.Collect(l.All(t.Context()))
	require.NoError(t, err)
	assert.Equal(t, want, records)
	assert.Equal(t, wantRequests, requests)

	requests = nil
	delivered, err := fixtures.Collect(l.Pages(t.Context()))
	require.NoError(t, err)
	assert.Equal(t, []*msgpush.Page[T]{
		{PageNum: 1, PageSize: 2, Total: 3, Pages: 2, List: want[:2]},
		{PageNum: 2, PageSize: 2, Total: 3, Pages: 2, List: want[2:]},
	}, delivered)
	assert.Equal(t, wantRequests, requests)

	// Without an ID function, two records with one id would be no error.
	same := fixtures.NewClient(
		t,
		fixtures.Respond(200,
			fixtures.SuccessOf(`{"pageNum":1,"pageSize":2,"total":2,"pages":1,"list":[{"id":7},{"id":7}]}`)),
	)
	_, err = fixtures.Collect(list(same).All(t.Context()))
	assert.ErrorIs(t, err, msgpush.ErrInconsistentList)
}
