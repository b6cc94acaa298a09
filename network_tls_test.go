package msgpush_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/internal/faults"
)

func TestTLSFailuresArePermanent(t *testing.T) {
	server, trusting := newTLSService(t, false, failOnRequest(t))
	plain := httptest.NewServer(failOnRequest(t))
	defer plain.Close()
	tests := []struct {
		name      string
		baseURL   string
		configure func(*tls.Config)
		want      faults.Failure
	}{
		{"unknown authority", server.URL, func(c *tls.Config) { c.RootCAs = x509.NewCertPool() }, faults.Failure{Text: "certificate signed by unknown authority"}},
		{"certificate of another host", strings.Replace(server.URL, "127.0.0.1", "localhost", 1), nil, faults.Failure{Text: "not localhost"}},
		{"certificate rejected by the caller", server.URL, func(c *tls.Config) {
			c.VerifyConnection = func(tls.ConnectionState) error { return x509.UnknownAuthorityError{} }
		}, faults.Failure{Text: "certificate signed by unknown authority"}},
		{"alert protocol_version", server.URL, func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }, faults.Failure{Text: "remote error: tls: protocol version not supported"}},
		{"HTTP in place of HTTPS", strings.Replace(plain.URL, "http:", "https:", 1), nil, faults.Failure{Is: http.ErrSchemeMismatch}},
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
			client := newClientAt(t, tt.baseURL, threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			attempts := assertEveryCallFails(t, client, tt.want)
			assert.EqualValues(t, attempts, dials.Load())
		})
	}
}

// A damagedConn changes the last byte of each TLS record with application data, if
// damaged is set.
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
				serveJSON(success)(w, r)
			})
			transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if dials.Add(1) > 1 {
					return conn, err
				}
				return damagedConn{conn, &damaged}, err
			}
			client := newClientAt(t, server.URL, threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
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
		{"endless body", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 4096))
			}
		}, faults.Failure{Kind: "RequestError", Text: "the limit is 65536 bytes"}},
		{"truncated JSON framed as complete", serveJSON(`{"code":200,"data":`), faults.Failure{Kind: "DecodeError", Transient: true, Is: io.ErrUnexpectedEOF}},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, faults.Failure{Kind: "APIError", Text: "redirect to /elsewhere, not followed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server, transport := newTLSService(t, true, func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, 2, r.ProtoMajor)
				tt.serve(w, r)
			}, func(s *http.Server) {
				s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey, c) }
			})
			assertEveryCallFails(t, newClientAt(t, server.URL, threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: transport}),
				msgpush.WithMaxResponseBytes(64<<10)), tt.want)
		})
	}
}

// If an empty body has an unknown length, a gateway may forward it as a chunked body,
// which some servers reject for a GET.
func TestRequestWithoutBodyIsNotChunked(t *testing.T) {
	for proto, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		for name, policy := range map[string]msgpush.Option{"one attempt": noRetries, "retries": threeAttempts} {
			t.Run(proto+" "+name, func(t *testing.T) {
				requests := 0
				server, transport := newTLSService(t, http2, func(w http.ResponseWriter, r *http.Request) {
					requests++
					assert.Equal(t, proto, r.Proto)
					assert.Zero(t, r.ContentLength, "%s: -1 is a body of unknown length", r.Method)
					assert.Empty(t, r.TransferEncoding, r.Method)
					serveJSON(success)(w, r)
				})
				client := newClientAt(t, server.URL, policy, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
				_, err := client.MailDetail(t.Context(), "5")
				require.NoError(t, err)
				for _, method := range []string{"GET", "DELETE", "OPTIONS", "POST", "PUT"} {
					for _, idempotent := range []bool{false, true} {
						_, err := msgpush.Call[any](t.Context(), client, msgpush.Request{Method: method, Path: "/x", Idempotent: idempotent})
						require.NoError(t, err, method)
					}
				}
				assert.Equal(t, 11, requests)
			})
		}
	}
}

// A GOAWAY names the last stream that the server processes. net/http resends the
// requests of later streams on another connection.
func TestGracefullyClosedHTTP2ConnectionsFailNoCall(t *testing.T) {
	const callers, calls, perConnection = 16, 20, 20
	var requests, connections atomic.Int32
	server, transport := newTLSService(t, true, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		if requests.Add(1)%perConnection == 0 {
			w.Header().Set("Connection", "close") // net/http sends GOAWAY
		}
		serveJSON(success)(w, r)
	}, func(s *http.Server) {
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}
	})
	client := newClientAt(t, server.URL, noRetries, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := range calls {
				var err error
				if i%2 == 0 {
					_, err = client.MPList(t.Context(), msgpush.PageRequest{})
				} else {
					_, err = msgpush.Call[any](t.Context(), client, msgpush.Request{Method: "POST", Path: "/x", Body: i})
				}
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, callers*calls, requests.Load(), "each call is processed once")
	assert.Greater(t, connections.Load(), int32(1))
}

// A silentConn is a connection that may become silent: it loses what either side
// writes, but is not closed.
type silentConn struct {
	net.Conn
	silent *atomic.Bool
}

func (c silentConn) Write(p []byte) (int, error) {
	if c.silent.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c silentConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for err == nil && c.silent.Load() {
		n, err = c.Conn.Read(p)
	}
	return n, err
}

// A pipeListener accepts one connection.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error { return nil }

func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// http2InMemory returns a transport of NewTransport that connects in memory to a service
// with the certificate of certified. dialed is called for each connection, and returns the
// flag that makes the connection silent.
func http2InMemory(certified *httptest.Server, h http.HandlerFunc, dialed func() (silent *atomic.Bool)) *http.Transport {
	transport := msgpush.NewTransport()
	transport.Proxy = nil
	transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
	transport.TLSClientConfig.RootCAs.AddCert(certified.Certificate())
	transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		listener := make(pipeListener, 1)
		listener <- server
		close(listener)
		service := &http.Server{
			Handler:           h,
			TLSConfig:         &tls.Config{Certificates: certified.TLS.Certificates},
			ReadHeaderTimeout: time.Minute,
			ErrorLog:          log.New(io.Discard, "", 0),
		}
		go func() { _ = service.ServeTLS(listener, "", "") }()
		return silentConn{client, dialed()}, nil
	}
	return transport
}

// Without pings, an attempt would wait until its timeout, and the next attempt would
// use the same connection.
func TestDefaultTransportReplacesSilentHTTP2Connection(t *testing.T) {
	certified, _ := newTLSService(t, true, failOnRequest(t)) // only its certificate is used
	synctest.Test(t, func(t *testing.T) {
		var silent []*atomic.Bool // one for each connection
		transport := http2InMemory(certified, func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, 2, r.ProtoMajor)
			serveJSON(successOf(`{"id":7}`))(w, r)
		}, func() *atomic.Bool {
			silent = append(silent, new(atomic.Bool))
			return silent[len(silent)-1]
		})
		defer func() {
			synctest.Wait() // until the connections are idle
			transport.CloseIdleConnections()
		}()
		client := newClientAt(t, "https://example.com", threeAttempts, msgpush.WithTimeout(time.Hour), msgpush.WithHTTPClient(&http.Client{Transport: transport}))
		for range 2 {
			_, err := client.MailDetail(t.Context(), "7")
			require.NoError(t, err)
		}
		require.Len(t, silent, 1, "connections")

		silent[0].Store(true)
		start := time.Now()
		mail, err := client.MailDetail(t.Context(), "7")
		require.NoError(t, err)
		assert.EqualValues(t, 7, mail.ID)
		assert.Len(t, silent, 2, "connections")
		assert.Equal(t, 10*time.Second, time.Since(start).Truncate(time.Second), "5 s until the ping, 5 s until its timeout")
	})
}

func TestTimeoutAppliesToHTTP2(t *testing.T) {
	certified, _ := newTLSService(t, true, failOnRequest(t))
	synctest.Test(t, func(t *testing.T) {
		transport := http2InMemory(certified, func(_ http.ResponseWriter, r *http.Request) {
			assert.Equal(t, 2, r.ProtoMajor)
			<-r.Context().Done()
		}, func() *atomic.Bool { return new(atomic.Bool) })
		defer func() {
			synctest.Wait() // until the connections are idle
			transport.CloseIdleConnections()
		}()
		client := newClientAt(t, "https://example.com", threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
		assertEveryCallFails(t, client, faults.Failure{Kind: "RequestError", Transient: true, Is: context.DeadlineExceeded})
	})
}

// serveHTTP2Frames serves a connection in frames. It processes the first request, then resets
// its stream and closes the connection, and responds to each later request.
func serveHTTP2Frames(conn net.Conn, processed *atomic.Int32) {
	const data, headers, rstStream, settings, goAway, endStream, endHeaders = 0, 1, 3, 4, 7, 1, 4
	write := func(kind, flags byte, stream uint32, payload string) {
		frame := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))[1:]
		frame = binary.BigEndian.AppendUint32(append(frame, kind, flags), stream)
		_, _ = conn.Write(append(frame, payload...))
	}
	number := func(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }
	_, _ = io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
	write(settings, 0, 0, "")
	for {
		var header [9]byte
		if _, err := io.ReadFull(conn, header[:]); err != nil {
			return
		}
		length := int64(header[0])<<16 | int64(header[1])<<8 | int64(header[2])
		kind, flags, stream := header[3], header[4], binary.BigEndian.Uint32(header[5:])
		_, _ = io.CopyN(io.Discard, conn, length)
		switch {
		case kind == settings && flags == 0:
			write(settings, 1, 0, "")
		case kind > headers || flags&endStream == 0:
		case processed.Add(1) == 1:
			const protocolError, noError = 1, 0
			write(rstStream, 0, stream, number(protocolError))
			write(goAway, 0, 0, number(stream)+number(noError))
			return
		default:
			const status200 = "\x88" // in HPACK
			write(headers, endHeaders, stream, status200)
			write(data, endStream, stream, success)
		}
	}
}

// If a stream is reset after the service has processed its request, net/http may dial again. It
// reports that dial as refused, if the service is restarting.
func TestRequestThatIsNotIdempotentIsNotAddedAfterResetStream(t *testing.T) {
	// processed returns how many of the requests of send the service processes.
	processed := func(send func(url string, transport *http.Transport)) int32 {
		var processed, dials atomic.Int32
		server, transport := newTLSService(t, true, failOnRequest(t), func(s *http.Server) {
			s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
				"h2": func(_ *http.Server, conn *tls.Conn, _ http.Handler) { serveHTTP2Frames(conn, &processed) },
			}
		})
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1) == 2 {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		send(server.URL, transport)
		return processed.Load()
	}
	alone := processed(func(url string, transport *http.Transport) {
		resp, err := transport.RoundTrip(httptest.NewRequest(http.MethodPost, url+"/x", strings.NewReader("{}")))
		if err == nil {
			resp.Body.Close()
		}
	})
	withClient := processed(func(url string, transport *http.Transport) {
		_, err := msgpush.Call[any](t.Context(), newClientAt(t, url, threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: transport})), post)
		onlyError[*msgpush.RequestError](t, err)
	})
	assert.Equal(t, alone, withClient)
	assert.EqualValues(t, 1, withClient)
}
