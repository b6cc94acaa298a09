package msgpush_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

var redirects = []int{300, 301, 302, 303, 304, 305, 307, 308}

func TestARedirectIsAnAnswer(t *testing.T) {
	long := "/" + strings.Repeat("a", 10_000)
	for _, location := range []string{"/api/open/other", "https://push.example.com/a?b=c", "http://[broken", "::", "/a\x80b", long, ""} {
		for _, status := range redirects {
			client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
				if !assert.True(t, strings.HasPrefix(r.URL.Path, "/api/open/"), "followed to %s", r.URL) {
					return
				}
				if location != "" {
					w.Header().Set("Location", location)
				}
				w.WriteHeader(status)
			})
			for _, call := range specified {
				_, err := call(client, ctx)
				require.IsType(t, &msgpush.APIError{}, err)
				var apiErr *msgpush.APIError
				require.ErrorAs(t, err, &apiErr)
				assert.Equal(t, status, apiErr.HTTPStatus)
				assert.Equal(t, location, apiErr.Location)
				assert.Equal(t, 1, apiErr.Attempts)
				if !strings.Contains(location, "\x80") {
					assert.ErrorContains(t, err, location[:min(len(location), 40)])
				}
				assertShortAndPrintable(t, err.Error())
			}
		}
	}
}

// eavesdropper is a listener that notes every connection made to it and every
// byte that arrives.
type eavesdropper struct {
	port        string
	connections atomic.Int32
	bytes       atomic.Int64
}

func newEavesdropper(t *testing.T) *eavesdropper {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	e := &eavesdropper{}
	_, e.port, err = net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			e.connections.Add(1)
			n, _ := io.Copy(io.Discard, conn)
			e.bytes.Add(n)
			conn.Close()
		}
	}()
	return e
}

func TestNoRedirectIsFollowedAnywhere(t *testing.T) {
	elsewhere := newEavesdropper(t)
	targets := []string{
		"http://127.0.0.1:" + elsewhere.port + "/port",
		"http://localhost:" + elsewhere.port + "/host",
		"https://127.0.0.1:" + elsewhere.port + "/scheme",
		"//127.0.0.1:" + elsewhere.port + "/no-scheme",
		"http://127.0.0.1@127.0.0.1:" + elsewhere.port + "/user",
	}
	var status int
	var location string
	redirect := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(status)
	}
	plain := httptest.NewServer(http.HandlerFunc(redirect))
	defer plain.Close()
	secure, transport := newTLSService(t, false, redirect)
	clients := map[string]*msgpush.Client{
		"default client":                    clientOf(t, plain.URL, fast),
		"caller's client":                   clientOf(t, plain.URL, fast, msgpush.WithHTTPClient(&http.Client{})),
		"caller's client that would follow": clientOf(t, plain.URL, fast, msgpush.WithHTTPClient(&http.Client{CheckRedirect: follow})),
		"TLS":                               clientOf(t, secure.URL, fast, msgpush.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: follow})),
	}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			for _, location = range targets {
				for _, status = range redirects {
					for _, call := range specified {
						_, err := call(client, ctx)
						var apiErr *msgpush.APIError
						require.ErrorAs(t, err, &apiErr)
						assert.Equal(t, location, apiErr.Location)
						assert.ErrorContains(t, err, location)
					}
					_, err := msgpush.Call[any](ctx, client, msgpush.Request{Method: "PUT", Path: "/x", Body: "secret body"})
					require.IsType(t, &msgpush.APIError{}, err)
				}
			}
		})
	}
	assert.Zero(t, elsewhere.connections.Load())
	assert.Zero(t, elsewhere.bytes.Load())
}

func follow(*http.Request, []*http.Request) error { return nil }
