package tests_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/tests/faults"
	"example.com/msgpush/internal/tests/fixtures"
)

func TestTLSFailuresArePermanent(t *testing.T) {
	server, trusting := newTLSService(t, false, fixtures.FailOnRequest(t))
	plain := httptest.NewServer(fixtures.FailOnRequest(t))
	defer plain.Close()
	tests := []struct {
		name      string
		baseURL   string
		configure func(*tls.Config)
		want      faults.Failure
	}{
		{
			name:      "unknown authority",
			baseURL:   server.URL,
			configure: func(c *tls.Config) { c.RootCAs = x509.NewCertPool() },
			want:      faults.Failure{Text: "certificate signed by unknown authority"},
		},
		{
			name:    "certificate of another host",
			baseURL: strings.Replace(server.URL, "127.0.0.1", "localhost", 1),
			want:    faults.Failure{Text: "not localhost"},
		},
		{
			name:    "certificate rejected by the caller",
			baseURL: server.URL,
			configure: func(c *tls.Config) {
				c.VerifyConnection = func(tls.ConnectionState) error { return x509.UnknownAuthorityError{} }
			},
			want: faults.Failure{Text: "certificate signed by unknown authority"},
		},
		{
			name:    "HTTP in place of HTTPS",
			baseURL: strings.Replace(plain.URL, "http:", "https:", 1),
			want:    faults.Failure{Is: http.ErrSchemeMismatch},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var dials atomic.Int32
			transport := trusting.Clone()
			transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			if tt.configure != nil {
				tt.configure(transport.TLSClientConfig)
			}
			tt.want.Kind = "RequestError"
			client := fixtures.NewClientAt(t, tt.baseURL, fixtures.ThreeAttempts,
				msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			attempts := fixtures.AssertEveryCallFails(t, client, tt.want)
			assert.EqualValues(t, attempts, dials.Load())
		})
	}
}

// A damagedConn changes the last byte of each TLS record with application data, if damaged is set.
type damagedConn struct {
	net.Conn
	damaged *atomic.Bool
}

func (c damagedConn) Write(p []byte) (int, error) {
	const applicationData = 23
	if c.damaged.Load() && p[0] == applicationData {
		p = slices.Clone(p)
		p[len(p)-1] ^= 1
	}
	return c.Conn.Write(p)
}

func TestRetriesRequestDamagedOnEstablishedTLSConnection(t *testing.T) {
	for proto, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(proto, func(t *testing.T) {
			var requests, dials atomic.Int32
			var damaged atomic.Bool
			server, transport := newTLSService(t, http2, func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, proto, r.Proto)
				requests.Add(1)
				fixtures.ServeJSON(fixtures.Success)(w, r)
			})
			transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if dials.Add(1) > 1 {
					return conn, err
				}
				return damagedConn{conn, &damaged}, err
			}
			client := fixtures.NewClientAt(t, server.URL, fixtures.ThreeAttempts,
				msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			require.NoError(t, err)
			damaged.Store(true)
			_, err = client.MPList(t.Context(), msgpush.PageRequest{}) // a POST, which net/http does not resend
			require.NoError(t, err)
			assert.EqualValues(t, 2, requests.Load())
			assert.EqualValues(t, 2, dials.Load())
		})
	}
}

func TestHTTP2FaultsCauseExpectedErrors(t *testing.T) {
	connKey := new(int)
	tests := []struct {
		name  string
		serve http.HandlerFunc
		want  faults.Failure
	}{
		{"stream reset before the header", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			faults.Failure{Kind: "RequestError", Transient: true, Text: "INTERNAL_ERROR"}},
		{"stream reset mid-body", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"code":200,`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, faults.Failure{Kind: "RequestError", Transient: true, Text: "INTERNAL_ERROR"}},
		{"connection closed before the header", func(_ http.ResponseWriter, r *http.Request) {
			r.Context().Value(connKey).(net.Conn).Close()
		}, faults.Failure{Kind: "RequestError", Transient: true}},
		{"permanent status, stream reset mid-body", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, faults.Failure{Kind: "APIError", Text: "HTTP 403"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server, transport := newTLSService(t, true, func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, 2, r.ProtoMajor)
				tt.serve(w, r)
			}, func(s *http.Server) {
				s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey, c) }
			})
			client := fixtures.NewClientAt(t, server.URL, fixtures.ThreeAttempts,
				msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			fixtures.AssertEveryCallFails(t, client, tt.want)
		})
	}
}

// If an empty body has an unknown length, a gateway may forward it as a chunked body, which some
// servers reject for a GET.
func TestRequestWithoutBodyIsNotChunked(t *testing.T) {
	for proto, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(proto, func(t *testing.T) {
			var methods []string
			server, transport := newTLSService(t, http2, func(w http.ResponseWriter, r *http.Request) {
				methods = append(methods, r.Method)
				assert.Equal(t, proto, r.Proto)
				assert.Zero(t, r.ContentLength, "%s: -1 is a body of unknown length", r.Method)
				assert.Empty(t, r.TransferEncoding, r.Method)
				fixtures.ServeJSON(fixtures.Success)(w, r)
			})
			client := fixtures.NewClientAt(t, server.URL, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			want := []string{"GET", "DELETE", "OPTIONS", "POST", "PUT"}
			for _, method := range want {
				_, err := msgpush.Call[any](t.Context(), client, msgpush.Request{Method: method, Path: "/x"})
				require.NoError(t, err, method)
			}
			assert.Equal(t, want, methods)
		})
	}
}

// A GOAWAY names the last stream that the server processes. net/http resends the requests of later
// streams on another connection.
func TestGracefullyClosedHTTP2ConnectionsFailNoCall(t *testing.T) {
	const callers, calls, perConnection = 16, 20, 20
	var requests, connections atomic.Int32
	server, transport := newTLSService(t, true, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		if requests.Add(1)%perConnection == 0 {
			w.Header().Set("Connection", "close") // net/http sends GOAWAY
		}
		fixtures.ServeJSON(fixtures.Success)(w, r)
	}, func(s *http.Server) {
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}
	})
	client := fixtures.NewClientAt(t, server.URL, fixtures.NoRetries,
		msgpush.WithHTTPClient(&http.Client{Transport: transport}))
	fixtures.Concurrently(callers, func() {
		for range calls {
			_, err := msgpush.Call[any](t.Context(), client, fixtures.Post)
			assert.NoError(t, err)
		}
	})
	assert.EqualValues(t, callers*calls, requests.Load(), "each call is processed once")
	assert.Greater(t, connections.Load(), int32(1))
}

// http2InMemory returns a transport of NewTransport that connects in memory to a service with the
// certificate of certified, and for each connection the flag that makes it silent.
func http2InMemory(certified *httptest.Server, h http.HandlerFunc) (*http.Transport, *[]*atomic.Bool) {
	var flags []*atomic.Bool
	transport := msgpush.NewTransport()
	transport.Proxy = nil
	transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
	transport.TLSClientConfig.RootCAs.AddCert(certified.Certificate())
	transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		service := &http.Server{
			Handler:           h,
			TLSConfig:         &tls.Config{Certificates: certified.TLS.Certificates},
			ReadHeaderTimeout: time.Minute,
			ErrorLog:          log.New(io.Discard, "", 0),
		}
		go func() { _ = service.ServeTLS(listenerOf(server), "", "") }()
		silent := new(atomic.Bool)
		flags = append(flags, silent)
		return silentConn{client, silent}, nil
	}
	return transport, &flags
}

// Without pings, an attempt would wait until its timeout, and the next attempt would use the same
// connection.
func TestDefaultTransportReplacesSilentHTTP2Connection(t *testing.T) {
	certified, _ := newTLSService(t, true, fixtures.FailOnRequest(t)) // only its certificate is used
	for _, timeout := range []time.Duration{5 * time.Second, msgpush.DefaultAttemptTimeout, time.Hour} {
		fixtures.RunInBubble(t, timeout.String(), func(t *testing.T) {
			transport, silent := http2InMemory(certified, func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, 2, r.ProtoMajor)
				fixtures.ServeJSON(fixtures.Success)(w, r)
			})
			defer stop(transport)
			option, attempts := fixtures.Observed()
			client := fixtures.NewClientAt(t, "https://example.com", option, fixtures.DefaultRetries,
				msgpush.WithAttemptTimeout(timeout), msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			for range 2 {
				_, err := client.MailDetail(t.Context(), "7")
				require.NoError(t, err)
			}
			require.Len(t, *silent, 1, "connections")

			(*silent)[0].Store(true)
			start := time.Now()
			_, err := client.MailDetail(t.Context(), "7")
			require.NoError(t, err)
			assert.Len(t, *silent, 2, "connections")
			assert.Less(t, time.Since(start), 11*time.Second)
			first := (*attempts)[2] // of the last call
			assert.Equal(t, min(timeout, 10*time.Second), first.Duration.Truncate(time.Second),
				"5 s until the ping, 5 s until its timeout")
		})
	}
}

// After the machine slept, or if a balancer has forgotten the connection, each stream of the connection
// would time out until pings close it.
func TestHTTP2ConnectionIsReplacedAfterATimeout(t *testing.T) {
	certified, _ := newTLSService(t, true, fixtures.FailOnRequest(t)) // only its certificate is used
	for name, tt := range map[string]struct {
		retries msgpush.Option
		failed  int // calls
	}{
		"retries":            {retries: fixtures.DefaultRetries, failed: 0},
		"one attempt a call": {retries: fixtures.NoRetries, failed: 1},
	} {
		fixtures.RunInBubble(t, name, func(t *testing.T) {
			transport, silent := http2InMemory(certified, fixtures.ServeJSON(fixtures.Success))
			defer stop(transport)
			client := fixtures.NewClientAt(t, "https://example.com", tt.retries,
				msgpush.WithAttemptTimeout(400*time.Millisecond), msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			_, err := client.MailDetail(t.Context(), "7")
			require.NoError(t, err)
			(*silent)[0].Store(true)
			failed := 0
			for range 5 {
				if _, err := client.MailDetail(t.Context(), "7"); err != nil {
					failed++
				}
				time.Sleep(time.Second) // an HTTP/2 stream ends a moment after its call
			}
			assert.Len(t, *silent, 2, "connections")
			assert.Equal(t, tt.failed, failed)
		})
	}
}
