package transport

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimeoutsOfDefaultTransport(t *testing.T) {
	transport, netHTTP := New(), http.DefaultTransport.(*http.Transport)
	assert.Equal(t, 55*time.Second, transport.IdleConnTimeout, "many balancers close a connection after 60 s")
	assert.Equal(t, netHTTP.TLSHandshakeTimeout, transport.TLSHandshakeTimeout)
	assert.Equal(t, netHTTP.ExpectContinueTimeout, transport.ExpectContinueTimeout)
}

func TestHeaderOfAResponseIsLimited(t *testing.T) {
	for size, isError := range map[int]bool{1 << 19: false, 1 << 21: true} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", size))
		}))
		defer server.Close()
		transport := New()
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		response, err := transport.RoundTrip(request)
		if err == nil {
			require.NoError(t, response.Body.Close())
		}
		assert.Equal(t, isError, err != nil, size)
	}
}

func TestRejectedCONNECTIsError(t *testing.T) {
	proxy := &url.URL{Scheme: "http", User: url.UserPassword("user", "secret"), Host: "proxy.example.com:3128"}
	connect := func(status int, header http.Header) error {
		response := &http.Response{StatusCode: status, Header: header}
		return checkConnect(context.Background(), proxy, nil, response)
	}
	assert.NoError(t, connect(200, nil))
	err := connect(429, http.Header{"Retry-After": {"7"}})
	assert.EqualError(t, err, "the proxy proxy.example.com:3128 rejected CONNECT: HTTP 429 Too Many Requests")
	assert.Equal(t, 7*time.Second, ProxyRetryAfter(err))
	assert.Zero(t, ProxyRetryAfter(connect(201, nil)))
	assert.Zero(t, ProxyRetryAfter(http.ErrSchemeMismatch))
}
