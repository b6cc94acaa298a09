package msgpush_test

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

func TestNetworkFaultsCauseExpectedErrors(t *testing.T) {
	tests := []struct {
		name  string
		serve func(net.Conn)
		want  wantFailure
	}{
		{"connection closed before the header", write(""), wantFailure{kind: "RequestError", transient: true, is: io.EOF}},
		{"connection reset before the header", reset(""), wantFailure{kind: "RequestError", transient: true, text: "reset by peer"}},
		{"connection closed in the protocol version", write("HT"), wantFailure{kind: "RequestError", transient: true}},
		{"connection closed in the status line", write("HTTP/1.1 2"), wantFailure{kind: "RequestError", transient: true}},
		{"connection closed in the header", write("HTTP/1.1 200 OK\r\nContent-"), wantFailure{kind: "RequestError", transient: true}},
		{"connection closed after the header", write(okHeader), wantFailure{kind: "RequestError", transient: true, is: io.ErrUnexpectedEOF}},
		{"connection closed before the body", write(okHeader + "Content-Length: 100\r\n\r\n"), wantFailure{kind: "RequestError", transient: true, is: io.ErrUnexpectedEOF}},
		{"connection closed mid-body", write(okHeader + "Content-Length: 100\r\n\r\n{\"code\":200,"), wantFailure{kind: "RequestError", transient: true, is: io.ErrUnexpectedEOF}},
		{"connection reset mid-body", reset(okHeader + "Content-Length: 100\r\n\r\n{"), wantFailure{kind: "RequestError", transient: true, text: "reading the response from"}},
		{"chunked body without a last chunk", write(okHeader + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"cod\r\n"), wantFailure{kind: "RequestError", transient: true, is: io.ErrUnexpectedEOF}},
		{"chunked body cut in a chunk", write(okHeader + "Transfer-Encoding: chunked\r\n\r\n500\r\n{\"cod"), wantFailure{kind: "RequestError", transient: true, is: io.ErrUnexpectedEOF}},
		{"gzip body cut", write(okHeader + "Content-Encoding: gzip\r\nConnection: close\r\n\r\n\x1f\x8b\x08\x00"), wantFailure{kind: "RequestError", transient: true, is: io.ErrUnexpectedEOF}},

		{"truncated JSON framed as complete", write(ok10Header + `{"code":200,"data":{"list":[{"id":1},`), wantFailure{kind: "DecodeError", transient: true, is: io.ErrUnexpectedEOF, text: "ends too early"}},
		{"cut literal framed as complete", write(ok10Header + `{"code":200,"data":tru`), wantFailure{kind: "DecodeError", transient: true, is: io.ErrUnexpectedEOF, text: "ends too early"}},
		{"cut escape framed as complete", write(ok10Header + `{"code":200,"msg":"\u12`), wantFailure{kind: "DecodeError", transient: true, is: io.ErrUnexpectedEOF, text: "ends too early"}},
		{"empty body framed as complete", write(ok10Header), wantFailure{kind: "DecodeError", transient: true, is: io.EOF, text: "the JSON ends too early, after 0 bytes"}},
		{"empty body with Content-Length", write(okHeader + "Content-Length: 0\r\nConnection: close\r\n\r\n"), wantFailure{kind: "DecodeError", transient: true, is: io.EOF, text: "the JSON ends too early, after 0 bytes"}},
		{"HTML", write(ok10Header + "<html>"), wantFailure{kind: "DecodeError", text: "found invalid JSON"}},

		{"endless body", flood(okHeader+"\r\n", strings.Repeat(" ", 4096)), wantFailure{kind: "RequestError", text: "the limit is 65536 bytes"}},
		{"endless chunks", flood(okHeader+"Transfer-Encoding: chunked\r\n\r\n", "5\r\n{\"cod\r\n"), wantFailure{kind: "RequestError", text: "the limit is 65536 bytes"}},
		{"endless header", flood(okHeader, "X-More: "+strings.Repeat("x", 4096)+"\r\n"), wantFailure{kind: "RequestError", transient: true, text: "exceeded"}},

		{"not HTTP", write("SSH-2.0-OpenSSH_9.2\r\n" + strings.Repeat("garbage ", 100_000) + "\r\n\r\n"), wantFailure{kind: "RequestError", transient: true, text: "malformed HTTP"}},
		{"malformed header with the key", write("HTTP/1.1 200 OK\r\naccess-key " + testKey + "\r\n\r\n"), wantFailure{kind: "RequestError", transient: true, text: "malformed"}},
		{"malformed status with the key", write("HTTP/1.1 " + testKey + "\r\n\r\n"), wantFailure{kind: "RequestError", transient: true, text: "malformed HTTP"}},
		{"malformed Content-Length with the key", write(okHeader + "Content-Length: " + testKey + "\r\n\r\n"), wantFailure{kind: "RequestError", transient: true, text: "bad Content-Length"}},
		{"malformed chunks", write(okHeader + "Transfer-Encoding: chunked\r\n\r\nhello\r\nworld\r\n"), wantFailure{kind: "RequestError", transient: true, text: "chunk"}},
		{"malformed gzip", write(okHeader + "Content-Encoding: gzip\r\nConnection: close\r\nContent-Length: 12\r\n\r\n{\"code\":200}"), wantFailure{kind: "RequestError", is: gzip.ErrHeader}},
		{"protocol switched", stall("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), wantFailure{kind: "APIError", text: "HTTP 101"}},

		{"permanent status, connection closed mid-body", write("HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\nno"), wantFailure{kind: "APIError", text: "HTTP 404 Not Found: no"}},
		{"permanent status, connection reset mid-body", reset("HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\n{\"code\":1,"), wantFailure{kind: "APIError", text: "HTTP 403"}},
		{"permanent status, malformed gzip", write("HTTP/1.1 404 Not Found\r\nContent-Encoding: gzip\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"), wantFailure{kind: "APIError", text: "HTTP 404"}},
		{"permanent status, endless body", flood("HTTP/1.1 400 Bad Request\r\n\r\n", strings.Repeat("x", 4096)), wantFailure{kind: "APIError", text: "HTTP 400"}},
		{"transient status, connection reset mid-body", reset("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 100\r\n\r\nbusy"), wantFailure{kind: "APIError", transient: true, text: "HTTP 503"}},
		{"transient status, endless body", flood("HTTP/1.1 502 Bad Gateway\r\n\r\n", strings.Repeat("x", 4096)), wantFailure{kind: "APIError", transient: true, text: "HTTP 502"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assertNothingLeft(t, func() {
				service := newTCPService(t, tt.serve)
				transport := msgpush.NewTransport()
				transport.MaxResponseHeaderBytes = 64 << 10 // by default 10 MiB
				attempts := assertEveryCallFails(t, newClientAt(t, service.url, threeAttempts,
					msgpush.WithHTTPClient(&http.Client{Transport: transport}), msgpush.WithMaxResponseBytes(64<<10)), tt.want)
				assert.EqualValues(t, attempts, service.requests.Load(), "requests")
				assert.Eventually(t, func() bool { return service.open.Load() == 0 }, time.Minute, time.Millisecond, "a connection is still open")
			})
		})
	}
}

// assertNothingLeft checks that f leaves no goroutine of a call or of a connection.
func assertNothingLeft(t *testing.T, f func()) {
	t.Helper()
	before := countCallGoroutines()
	f()
	assert.Eventually(t, func() bool { return countCallGoroutines() <= before }, time.Minute, time.Millisecond, "a goroutine is still running")
}

func countCallGoroutines() (n int) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "net/http.(*persistConn)") || strings.Contains(stack, "net/http.(*Transport)") ||
			strings.Contains(stack, "retryablehttp.") || strings.Contains(stack, "example.com/msgpush.") {
			n++
		}
	}
	return n
}

// A gateway that uses HTTP/1.0 to the service forwards a cut response as a complete
// one.
func TestRetriesCutResponseFramedAsComplete(t *testing.T) {
	const body = `{"code":200,"msg":"ok","data":{"id":7,"list":[]}}`
	for cut := range len(body) {
		var served atomic.Int32
		service := newTCPService(t, func(c net.Conn) {
			if served.Add(1) == 1 {
				write(ok10Header + body[:cut])(c)
				return
			}
			write(ok10Header + body)(c)
		})
		mail, err := newClientAt(t, service.url, threeAttempts).MailDetail(t.Context(), "7")
		require.NoError(t, err, body[:cut])
		assert.EqualValues(t, 7, mail.ID)
		assert.EqualValues(t, 2, served.Load())
	}
}

func TestRetriesIfNoConnectionIsMade(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	unused := "http://" + listener.Addr().String()
	listener.Close()
	withoutNameServer := msgpush.NewTransport()
	withoutNameServer.DialContext = (&net.Dialer{Resolver: &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no name server")
		},
	}}).DialContext
	for name, baseURL := range map[string]string{"connection refused": unused, "unknown host": "http://push.invalid"} {
		t.Run(name, func(t *testing.T) {
			assertNothingLeft(t, func() {
				want := wantFailure{kind: "RequestError", notSent: true, text: "the request to " + baseURL + " failed: dial"}
				assertEveryCallFails(t, newClientAt(t, baseURL, threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: withoutNameServer})), want)
			})
		})
	}
}

func TestRetriesIfTLSHandshakeFails(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"connection closed": func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			c.Close()
		},
		"timeout": func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dials atomic.Int32
				transport := &http.Transport{
					TLSHandshakeTimeout: time.Second,
					DialContext: func(context.Context, string, string) (net.Conn, error) {
						dials.Add(1)
						client, server := net.Pipe()
						go serve(server)
						return client, nil
					},
				}
				client := newClientAt(t, "https://push.example.com", threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
				attempts := assertEveryCallFails(t, client, wantFailure{kind: "RequestError", notSent: true})
				assert.EqualValues(t, attempts, dials.Load())
			})
		})
	}
}

func TestTLSFailuresArePermanent(t *testing.T) {
	server, trusting := newTLSService(t, false, failOnRequest(t))
	plain := httptest.NewServer(failOnRequest(t))
	defer plain.Close()
	tests := []struct {
		name      string
		baseURL   string
		configure func(*tls.Config)
		want      wantFailure
	}{
		{"unknown authority", server.URL, func(c *tls.Config) { c.RootCAs = x509.NewCertPool() }, wantFailure{text: "certificate signed by unknown authority"}},
		{"certificate of another host", strings.Replace(server.URL, "127.0.0.1", "localhost", 1), nil, wantFailure{text: "not localhost"}},
		{"certificate rejected by the caller", server.URL, func(c *tls.Config) {
			c.VerifyConnection = func(tls.ConnectionState) error { return x509.UnknownAuthorityError{} }
		}, wantFailure{text: "certificate signed by unknown authority"}},
		{"alert protocol_version", server.URL, func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }, wantFailure{text: "remote error: tls: protocol version not supported"}},
		{"HTTP in place of HTTPS", strings.Replace(plain.URL, "http:", "https:", 1), nil, wantFailure{is: http.ErrSchemeMismatch}},
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
			tt.want.kind = "RequestError"
			client := newClientAt(t, tt.baseURL, threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			attempts := assertEveryCallFails(t, client, tt.want)
			assert.EqualValues(t, attempts, dials.Load())
		})
	}
}

// With TLS 1.3, a server rejects the certificate of a client after the handshake of the
// client.
func TestAlertIsPermanentDuringHandshakeOrAboutCertificate(t *testing.T) {
	const badRecordMAC, internalError, badCertificate, unknownCA, certificateRequired tls.AlertError = 20, 80, 42, 48, 116
	alert := func(a tls.AlertError) error { return &net.OpError{Op: "remote error", Err: a} }
	connect := func(trace *httptrace.ClientTrace) {
		trace.GetConn("push.example.com:443")
		trace.GotConn(httptrace.GotConnInfo{})
	}
	wrapped := func(err error) error { return fmt.Errorf("net/http: connection broken: %w", err) }
	tests := []struct {
		name      string
		before    func(*httptrace.ClientTrace) // reports of the transport before err
		err       error
		transient bool
		notSent   bool
	}{
		{"transport without a trace", func(*httptrace.ClientTrace) {}, alert(badRecordMAC), false, false},
		{"handshake", func(trace *httptrace.ClientTrace) { trace.GetConn("push.example.com:443") }, alert(internalError), false, false},
		{"handshake after a request for a token", func(trace *httptrace.ClientTrace) {
			trace.GetConn("tokens.example.com:443")
			trace.GotConn(httptrace.GotConnInfo{})
			trace.GetConn("push.example.com:443")
		}, alert(internalError), false, false},
		{"handshake with a proxy", func(trace *httptrace.ClientTrace) { trace.GetConn("push.example.com:443") },
			&net.OpError{Op: "proxyconnect", Err: alert(internalError)}, false, false},
		{"proxy that is not reached", func(trace *httptrace.ClientTrace) { trace.GetConn("push.example.com:443") },
			&net.OpError{Op: "proxyconnect", Err: &net.OpError{Op: "dial", Err: io.EOF}}, true, true},
		{"connection", connect, alert(badRecordMAC), true, false},
		{"connection, error of net/http", connect, wrapped(alert(internalError)), true, false},
		{"certificate rejected after the handshake", connect, alert(badCertificate), false, false},
		{"authority rejected after the handshake", connect, wrapped(alert(unknownCA)), false, false},
		{"certificate missed after the handshake", connect, alert(certificateRequired), false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			transport := roundTripFunc(func(r *http.Request) (*http.Response, error) {
				if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
					tt.before(trace)
				}
				return nil, tt.err
			})
			client := newClientAt(t, "https://push.example.com", threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			assertEveryCallFails(t, client, wantFailure{kind: "RequestError", transient: tt.transient, notSent: tt.notSent, text: tt.err.Error()})
		})
	}
	t.Run("body", func(t *testing.T) {
		client := newClientWithTransport(t, respondFrom(200, failingBody(`{"code":`, alert(badRecordMAC))), threeAttempts)
		assertEveryCallFails(t, client, wantFailure{kind: "RequestError", transient: true, text: "bad record MAC"})
	})
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
		want  wantFailure
	}{
		{"stream reset before the header", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			wantFailure{kind: "RequestError", transient: true, text: "INTERNAL_ERROR"}},
		{"stream reset mid-body", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"code":200,`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, wantFailure{kind: "RequestError", transient: true, text: "INTERNAL_ERROR"}},
		{"connection closed before the header", func(_ http.ResponseWriter, r *http.Request) {
			r.Context().Value(connKey).(net.Conn).Close()
		}, wantFailure{kind: "RequestError", transient: true}},
		{"permanent status, stream reset mid-body", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, wantFailure{kind: "APIError", text: "HTTP 403"}},
		{"endless body", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 4096))
			}
		}, wantFailure{kind: "RequestError", text: "the limit is 65536 bytes"}},
		{"truncated JSON framed as complete", serveJSON(`{"code":200,"data":`), wantFailure{kind: "DecodeError", transient: true, is: io.ErrUnexpectedEOF}},
		{"transient status", serve(http.StatusBadGateway, "text/html", "<html>"), wantFailure{kind: "APIError", transient: true, text: "HTTP 502"}},
		{"permanent status", serve(http.StatusNotFound, "text/html", "<html>"), wantFailure{kind: "APIError", text: "HTTP 404"}},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, wantFailure{kind: "APIError", text: "redirect to /elsewhere, not followed"}},
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

// A staleConn is a connection that the peer closes after the first request. net/http
// detects this when it writes the second request.
type staleConn struct {
	net.Conn
	requests *atomic.Int32
}

func (c *staleConn) Write(p []byte) (int, error) {
	if c.requests.Load() == 1 {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func TestRequestOnStaleConnectionIsResent(t *testing.T) {
	for name, r := range map[string]msgpush.Request{
		"POST":              {Method: "POST", Path: "/x", Body: map[string]int{"a": 1}},
		"POST without body": {Method: "POST", Path: "/x"},
		"GET":               {Method: "GET", Path: "/x"},
		"idempotent POST":   {Method: "POST", Path: "/x", Body: map[string]int{"a": 1}, Idempotent: true},
	} {
		t.Run(name, func(t *testing.T) {
			var requests, dials atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				requests.Add(1)
				serveJSON(fmt.Sprintf(`{"code":200,"data":%q}`, body))(w, r)
			}))
			defer server.Close()
			transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if dials.Add(1) == 1 && err == nil {
					return &staleConn{Conn: conn, requests: &requests}, nil
				}
				return conn, err
			}}
			defer transport.CloseIdleConnections()
			client := newClientAt(t, server.URL, noRetries, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			want, err := msgpush.Call[string](t.Context(), client, r)
			require.NoError(t, err)
			got, err := msgpush.Call[string](t.Context(), client, r)
			require.NoError(t, err)
			assert.Equal(t, want, got, "the body is sent again")
			assert.EqualValues(t, 2, dials.Load())
			assert.EqualValues(t, 2, requests.Load())
		})
	}
}

// The service fails one request in five.
func TestConcurrentCallsReturnTheirOwnDataDespiteFaults(t *testing.T) {
	const callers = 64
	calls := int64(10_000)
	if testing.Short() {
		calls /= 10
	}
	var requests atomic.Int64
	var mu sync.Mutex
	open, maxOpen := 0, 0 // connections
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		id := r.URL.Query().Get("mailId")
		body := `{"code":200,"msg":"ok","data":{"id":` + id + `,"mailName":"mail ` + id + `"}}`
		if rand.N(5) == 0 {
			failAtRandom(w, r, body)
			return
		}
		serveJSON(body)(w, r)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		switch state {
		case http.StateNew:
			open++
			maxOpen = max(maxOpen, open)
		case http.StateClosed, http.StateHijacked:
			open--
		}
	}
	server.Start()
	defer server.Close()
	client := newClientAt(t, server.URL, msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1, MaxWait: time.Millisecond}))

	var next, succeeded atomic.Int64
	var failed sync.Map // *atomic.Int64 by name of the error type
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for id := next.Add(1); id <= calls; id = next.Add(1) {
				mail, err := client.MailDetail(t.Context(), strconv.FormatInt(id, 10))
				if err != nil {
					n, _ := failed.LoadOrStore(fmt.Sprintf("%T", err), new(atomic.Int64))
					n.(*atomic.Int64).Add(1)
					continue
				}
				succeeded.Add(1)
				if mail.ID != id || mail.MailName != fmt.Sprint("mail ", id) {
					t.Errorf("call %d returned the data of another: %v", id, mail)
				}
			}
		})
	}
	wg.Wait()
	total := succeeded.Load()
	failed.Range(func(name, n any) bool {
		assert.Contains(t, []string{"*msgpush.APIError", "*msgpush.DecodeError", "*msgpush.RequestError"}, name)
		t.Logf("%v: %d calls", name, n.(*atomic.Int64).Load())
		total += n.(*atomic.Int64).Load()
		return true
	})
	t.Logf("%d calls, %d requests, %d succeeded, at most %d connections", calls, requests.Load(), succeeded.Load(), maxOpen)
	assert.Equal(t, calls, total)
	assert.Greater(t, succeeded.Load(), calls/2)
	// The server may accept a new connection before it notices that an old one was
	// closed.
	assert.LessOrEqual(t, maxOpen, 4*callers)
}

// failAtRandom fails like a broken network, a gateway or a busy service.
func failAtRandom(w http.ResponseWriter, r *http.Request, body string) {
	faults := []func(){
		func() { panic(http.ErrAbortHandler) },
		func() {
			w.Header().Set("Content-Length", "10000")
			_, _ = io.WriteString(w, body)
			panic(http.ErrAbortHandler)
		},
		func() {
			_, _ = io.WriteString(w, body[:10])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		func() { serve(http.StatusBadGateway, "text/html", "<html>bad gateway")(w, r) },
		func() {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		func() { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		func() { serveJSON(`{"code":500,"msg":"no","data":"why"}`)(w, r) },
		func() { serveJSON("<html>")(w, r) },
		func() {
			w.Header().Set("Retry-After", "100")
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		func() { serveJSON(body[:len(body)/2])(w, r) },
	}
	faults[rand.N(len(faults))]()
}
