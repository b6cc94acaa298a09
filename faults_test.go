package msgpush_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// fastRetries is the default policy with waits of at most 1 ms.
var fastRetries = msgpush.WithRetry(msgpush.RetryPolicy{MinWait: 1, MaxWait: time.Millisecond})

// maxFaultAttempts is the limit of faultRetries, the policy of tests that make every
// kind of call.
const maxFaultAttempts = 3

var faultRetries = msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: maxFaultAttempts, MinWait: 1, MaxWait: time.Millisecond})

// A kindOfCall is one way to make a call.
type kindOfCall struct {
	name       string
	idempotent bool
	make       func(*msgpush.Client, context.Context) (any, error)
}

// kindsOfCalls returns the specified operations, a Call with an idempotent request
// and a Call with a request that is not idempotent.
func kindsOfCalls() []kindOfCall {
	var kinds []kindOfCall
	for name, call := range specifiedCalls {
		kinds = append(kinds, kindOfCall{name, true, call})
	}
	for _, r := range []msgpush.Request{
		{Method: "GET", Path: "/x", Idempotent: true},
		{Method: "POST", Path: "/x", Body: map[string]int{"a": 1}},
	} {
		kinds = append(kinds, kindOfCall{r.Method + " " + r.Path, r.Idempotent, func(c *msgpush.Client, ctx context.Context) (any, error) {
			return msgpush.Call[map[string]any](ctx, c, r)
		}})
	}
	return kinds
}

// A wantFailure describes the error that every kind of call must return.
type wantFailure struct {
	kind      string // name of the error type
	transient bool   // the call is retried if it is idempotent
	notSent   bool   // the call is retried even if it is not idempotent
	is        error  // wrapped; nil: not checked
	text      string // part of the error text
}

// attempts returns the expected number of attempts of a call.
func (w wantFailure) attempts(k kindOfCall) int {
	if w.notSent || w.transient && k.idempotent {
		return maxFaultAttempts
	}
	return 1
}

// assertEveryCallFails makes every kind of call with a client that has the policy
// faultRetries. It returns the number of attempts.
func assertEveryCallFails(t *testing.T, client *msgpush.Client, want wantFailure) (attempts int) {
	t.Helper()
	for _, kind := range kindsOfCalls() {
		_, err := kind.make(client, t.Context())
		assert.ErrorContains(t, err, "msgpush: "+kind.name+": ")
		assertFailure(t, err, want, want.attempts(kind))
		attempts += want.attempts(kind)
	}
	return attempts
}

func assertFailure(t *testing.T, err error, want wantFailure, attempts int) {
	t.Helper()
	kind, got := inspectFailure(t, err)
	assert.Equal(t, want.kind, kind, "%v", err)
	assert.Equal(t, attempts, got, "attempts: %v", err)
	if want.is != nil {
		assert.ErrorIs(t, err, want.is)
	}
	assert.ErrorContains(t, err, want.text)
}

var attemptCount = regexp.MustCompile(`\b(\d+) attempts?\b`)

// inspectFailure checks that exactly one error type matches the error of a call, and
// that the text is short, repeats nothing and shows no access key. It returns the
// name of the type and the number of attempts.
func inspectFailure(t *testing.T, err error) (kind string, attempts int) {
	t.Helper()
	require.Error(t, err)
	var kinds []string
	if e, ok := errors.AsType[*msgpush.APIError](err); ok {
		kinds, attempts = append(kinds, "APIError"), e.Attempts
	}
	if e, ok := errors.AsType[*msgpush.DecodeError](err); ok {
		kinds, attempts = append(kinds, "DecodeError"), e.Attempts
	}
	if e, ok := errors.AsType[*msgpush.RequestError](err); ok {
		kinds, attempts = append(kinds, "RequestError"), e.Attempts
	}
	require.Len(t, kinds, 1, "the error types that match %T: %v", err, err)

	text := err.Error()
	assert.Less(t, len(text), 2000, text)
	assert.False(t, strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", text)
	assert.Equal(t, 1, strings.Count(text, "msgpush:"), text)
	counts := attemptCount.FindAllStringSubmatch(text, -1)
	if attempts == 0 {
		assert.Empty(t, counts, text)
	} else if assert.Len(t, counts, 1, text) {
		assert.Equal(t, fmt.Sprint(attempts), counts[0][1], text)
	}
	assert.LessOrEqual(t, strings.Count(strings.Replace(text, "previous attempt failed", "", 1), "attempt"), 1, text)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		shown := fmt.Sprintf(verb, err)
		assert.NotContains(t, shown, testKey, verb)
		assert.NotContains(t, shown, fmt.Sprintf("%x", testKey), verb)
	}
	return kinds[0], attempts
}

// A tcpService is a service that writes bytes to a connection in place of an HTTP
// response.
type tcpService struct {
	url      string
	requests atomic.Int32
	open     atomic.Int32 // connections
	conns    sync.WaitGroup
}

// newTCPService starts a service that reads one request from each connection, calls
// serve and closes the connection.
func newTCPService(t testing.TB, serve func(net.Conn)) *tcpService {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &tcpService{url: "http://" + listener.Addr().String()}
	t.Cleanup(func() {
		listener.Close()
		s.conns.Wait()
	})
	s.conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.open.Add(1)
			s.conns.Go(func() {
				defer s.open.Add(-1)
				defer conn.Close()
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				s.requests.Add(1)
				serve(conn)
			})
		}
	})
	return s
}

// write sends text.
func write(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

// reset sends text and resets the connection.
func reset(text string) func(net.Conn) {
	return func(c net.Conn) {
		write(text)(c)
		_ = c.(*net.TCPConn).SetLinger(0)
	}
}

// stall sends text and then nothing until the client closes the connection.
func stall(text string) func(net.Conn) {
	return func(c net.Conn) {
		write(text)(c)
		_, _ = io.Copy(io.Discard, c)
	}
}

// flood sends text and then repeats more until the client closes the connection.
func flood(text, more string) func(net.Conn) {
	return func(c net.Conn) {
		_, err := io.WriteString(c, text)
		for err == nil {
			_, err = io.WriteString(c, more)
		}
	}
}

const (
	okHeader   = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	ok10Header = "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" // the body ends with the connection
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
				attempts := assertEveryCallFails(t, newClientAt(t, service.url, faultRetries, msgpush.WithMaxResponseBytes(64<<10)), tt.want)
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
		mail, err := newClientAt(t, service.url, fastRetries).MailDetail(t.Context(), "7")
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
	for name, baseURL := range map[string]string{"connection refused": unused, "unknown host": "http://push.invalid"} {
		t.Run(name, func(t *testing.T) {
			assertNothingLeft(t, func() {
				want := wantFailure{kind: "RequestError", notSent: true, text: "the request to " + baseURL + " failed: dial"}
				assertEveryCallFails(t, newClientAt(t, baseURL, faultRetries), want)
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
				client := newClientAt(t, "https://push.example.com", faultRetries, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
				attempts := assertEveryCallFails(t, client, wantFailure{kind: "RequestError", notSent: true})
				assert.EqualValues(t, attempts, dials.Load())
			})
		})
	}
}

// newTLSService starts a service and returns it with a transport that trusts its
// certificate.
func newTLSService(t *testing.T, http2 bool, h http.HandlerFunc, configure ...func(*http.Server)) (*httptest.Server, *http.Transport) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	for _, f := range configure {
		f(server.Config)
	}
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{MaxVersion: tls.VersionTLS12} //nolint:gosec // a client may require a newer version
	server.StartTLS()
	t.Cleanup(server.Close)
	transport := server.Client().Transport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	return server, transport
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
			client := newClientAt(t, tt.baseURL, faultRetries, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			attempts := assertEveryCallFails(t, client, tt.want)
			assert.EqualValues(t, attempts, dials.Load())
		})
	}
}

func TestDoesNotRetryPermanentTransportErrors(t *testing.T) {
	for name, cause := range map[string]error{
		"certificate not verified":  &tls.CertificateVerificationError{Err: errors.New("no root certificates")},
		"unknown authority":         x509.UnknownAuthorityError{},
		"another host":              x509.HostnameError{Certificate: new(x509.Certificate), Host: "push.example.com"},
		"expired certificate":       x509.CertificateInvalidError{Reason: x509.Expired},
		"TLS alert":                 &net.OpError{Op: "remote error", Err: tls.AlertError(116)},
		"HTTP in place of HTTPS":    http.ErrSchemeMismatch,
		"checksum of a gzip stream": gzip.ErrChecksum,
	} {
		t.Run(name, func(t *testing.T) {
			client := newClientWithTransport(t, roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, cause }), faultRetries)
			assertEveryCallFails(t, client, wantFailure{kind: "RequestError", is: cause})
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
		{"no response", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			wantFailure{kind: "RequestError", transient: true, is: context.DeadlineExceeded}},
		{"endless body", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 4096))
			}
		}, wantFailure{kind: "RequestError", text: "the limit is 65536 bytes"}},
		{"truncated JSON framed as complete", respondWithJSON(`{"code":200,"data":`), wantFailure{kind: "DecodeError", transient: true, is: io.ErrUnexpectedEOF}},
		{"transient status", respondWith(http.StatusBadGateway, "text/html", "<html>"), wantFailure{kind: "APIError", transient: true, text: "HTTP 502"}},
		{"permanent status", respondWith(http.StatusNotFound, "text/html", "<html>"), wantFailure{kind: "APIError", text: "HTTP 404"}},
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
			timeout := msgpush.DefaultTimeout
			if errors.Is(tt.want.is, context.DeadlineExceeded) {
				timeout = 50 * time.Millisecond
			}
			assertEveryCallFails(t, newClientAt(t, server.URL, faultRetries, msgpush.WithHTTPClient(&http.Client{Transport: transport}),
				msgpush.WithTimeout(timeout), msgpush.WithMaxResponseBytes(64<<10)), tt.want)
		})
	}
}

// If an empty body has an unknown length, a gateway may forward it as a chunked body,
// which servers reject for a GET.
func TestRequestWithoutBodyIsNotChunked(t *testing.T) {
	for proto, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		for name, policy := range map[string]msgpush.Option{"one attempt": noRetries, "retries": fastRetries} {
			t.Run(proto+" "+name, func(t *testing.T) {
				requests := 0
				server, transport := newTLSService(t, http2, func(w http.ResponseWriter, r *http.Request) {
					requests++
					assert.Equal(t, proto, r.Proto)
					assert.Zero(t, r.ContentLength, "%s: -1 is a body of unknown length", r.Method)
					assert.Empty(t, r.TransferEncoding, r.Method)
					respondWithJSON(`{"code":200,"data":{}}`)(w, r)
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
	const callers, calls, perConnection = 16, 40, 20
	var requests, connections atomic.Int32
	server, transport := newTLSService(t, true, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		if requests.Add(1)%perConnection == 0 {
			w.Header().Set("Connection", "close") // net/http sends GOAWAY
		}
		respondWithJSON(`{"code":200,"data":{}}`)(w, r)
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
				respondWithJSON(fmt.Sprintf(`{"code":200,"data":%q}`, body))(w, r)
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

// bodyOf returns a transport whose responses have a status, a body and headers.
func bodyOf(status int, body func(r *http.Request) io.Reader, headers ...string) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		header := http.Header{"Content-Type": {"application/json"}}
		for i := 0; i < len(headers); i += 2 {
			header.Set(headers[i], headers[i+1])
		}
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(body(r)), ContentLength: -1, Request: r}, nil
	}
}

// textOf is bodyOf with a string as the body.
func textOf(status int, body string, headers ...string) roundTripFunc {
	return bodyOf(status, func(*http.Request) io.Reader { return strings.NewReader(body) }, headers...)
}

// cutBody returns a body that returns text and then io.ErrUnexpectedEOF.
func cutBody(text string) func(*http.Request) io.Reader {
	return func(*http.Request) io.Reader {
		return io.MultiReader(strings.NewReader(text), readerFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }))
	}
}

func endlessBody(*http.Request) io.Reader {
	return readerFunc(func(p []byte) (int, error) { return len(p), nil })
}

// stalledBody blocks until the attempt ends.
func stalledBody(r *http.Request) io.Reader {
	return readerFunc(func([]byte) (int, error) { <-r.Context().Done(); return 0, r.Context().Err() })
}

// inSequence returns a transport that uses step n for request n, and the last step
// for all later requests.
func inSequence(steps ...roundTripFunc) roundTripFunc {
	n := 0
	return func(r *http.Request) (*http.Response, error) {
		n++
		return steps[min(n, len(steps))-1](r)
	}
}

// Exactly one error type matches each error of a call, even if a key source or a
// limiter returns an error of another client. So the order of the cases in a switch
// does not matter.
func TestEveryFaultMatchesExactlyOneErrorType(t *testing.T) {
	foreign := map[string]error{
		"plain error":                       errors.New("vault sealed"),
		"APIError":                          &msgpush.APIError{Operation: "GET /key", HTTPStatus: 503, Attempts: 4},
		"wrapped APIError":                  fmt.Errorf("get key: %w", &msgpush.APIError{Operation: "GET /key", HTTPStatus: 503, Code: 7, Attempts: 4}),
		"DecodeError":                       &msgpush.DecodeError{Operation: "GET /key", HTTPStatus: 200, Attempts: 1, Err: io.EOF},
		"RequestError":                      &msgpush.RequestError{Operation: "GET /key", Attempts: 2, Err: io.EOF},
		"RequestError with Last":            &msgpush.RequestError{Operation: "GET /key", Attempts: 2, Err: io.EOF, Last: &msgpush.APIError{HTTPStatus: 500, Attempts: 1}},
		"UnimplementedError":                &msgpush.UnimplementedError{Operation: msgpush.Operation{Group: "access key", Name: "obtain"}},
		"context error of another context":  context.Canceled,
		"deadline error of another context": context.DeadlineExceeded,
	}
	type setup struct {
		kind       string
		needsRetry bool // only a call that is retried fails in this way
		client     func(t *testing.T) *msgpush.Client
		ctx        func(context.Context) (context.Context, context.CancelFunc) // nil: no deadline
	}
	withTransport := func(transport http.RoundTripper, opts ...msgpush.Option) func(*testing.T) *msgpush.Client {
		return func(t *testing.T) *msgpush.Client {
			return newClientWithTransport(t, transport, append([]msgpush.Option{faultRetries, msgpush.WithMaxResponseBytes(1000)}, opts...)...)
		}
	}
	withSource := func(source msgpush.AccessKeyFunc, transport http.RoundTripper) func(*testing.T) *msgpush.Client {
		return func(t *testing.T) *msgpush.Client {
			client, err := msgpush.NewClient("http://push.example.com", "", faultRetries, msgpush.WithAccessKeySource(source),
				msgpush.WithHTTPClient(&http.Client{Transport: transport}))
			require.NoError(t, err)
			return client
		}
	}
	blocked := func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }
	busy := textOf(503, `{"code":1,"msg":"busy"}`, "Retry-After", "20")
	twoAttempts := msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 2})
	withTimeout := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 25*time.Second)
	}
	withCause := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		timer := time.AfterFunc(10*time.Second, func() { cancel(foreign["APIError"]) })
		return ctx, func() { timer.Stop(); cancel(nil) }
	}
	ended := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}

	tests := map[string]setup{
		"no connection":               {kind: "RequestError", client: withTransport(failWith(&net.OpError{Op: "dial", Err: errors.New("refused")}))},
		"connection lost":             {kind: "RequestError", client: withTransport(failWith(io.EOF))},
		"truncated body":              {kind: "RequestError", client: withTransport(bodyOf(200, cutBody(`{"code":200,`)))},
		"body too large":              {kind: "RequestError", client: withTransport(bodyOf(200, endlessBody))},
		"redirect to an invalid URL":  {kind: "RequestError", client: withTransport(textOf(302, "", "Location", "::"))},
		"attempt timeout":             {kind: "RequestError", client: withTransport(roundTripFunc(blocked))},
		"attempt timeout in the body": {kind: "RequestError", client: withTransport(bodyOf(200, stalledBody))},

		"truncated JSON":       {kind: "DecodeError", client: withTransport(textOf(200, `{"code":200,"data":`))},
		"empty body":           {kind: "DecodeError", client: withTransport(textOf(200, ""))},
		"HTML":                 {kind: "DecodeError", client: withTransport(textOf(200, "<html>"))},
		"no code":              {kind: "DecodeError", client: withTransport(textOf(200, `{"data":{}}`))},
		"data of another type": {kind: "DecodeError", client: withTransport(textOf(200, `{"code":200,"data":"text"}`))},
		"decoder fails": {kind: "DecodeError", client: withTransport(textOf(200, `{"code":200,"data":{}}`), msgpush.WithUnmarshal(func([]byte, any) error {
			return foreign["APIError"]
		}))},

		"error code with HTTP 200":                          {kind: "APIError", client: withTransport(textOf(200, `{"code":500,"msg":"no","data":"why"}`))},
		"quota used up":                                     {kind: "APIError", client: withTransport(textOf(500, ""), msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 5, Quota: 1}))},
		"Retry-After too long":                              {kind: "APIError", client: withTransport(textOf(503, "", "Retry-After", "86400"))},
		"no time for a retry":                               {kind: "APIError", client: withTransport(textOf(503, "", "Retry-After", "28"), msgpush.WithRetry(msgpush.RetryPolicy{})), ctx: withTimeout},
		"truncated body, no time for a retry":               {kind: "RequestError", client: withTransport(bodyOf(200, cutBody("{")), msgpush.WithRetry(msgpush.RetryPolicy{MinWait: 1e6 * time.Hour, MaxWait: 1e6 * time.Hour})), ctx: withTimeout},
		"rejected static key":                               {kind: "APIError", client: withTransport(textOf(401, ""))},
		"rejected key, source has no other key":             {kind: "APIError", client: withSource(func(context.Context, string) (string, error) { return testKey, nil }, textOf(401, ""))},
		"rejected key, source returns another rejected key": {kind: "APIError", client: withSource(func(_ context.Context, rejected string) (string, error) { return testKey + rejected, nil }, textOf(401, ""))},
		"key that is invalid in a header":                   {kind: "RequestError", client: withSource(func(context.Context, string) (string, error) { return testKey + "\n", nil }, failWith(io.EOF))},

		"context ended before the call":               {kind: "RequestError", client: withTransport(textOf(200, "")), ctx: ended},
		"deadline in an attempt":                      {kind: "RequestError", client: withTransport(roundTripFunc(blocked)), ctx: withTimeout},
		"deadline in the body":                        {kind: "RequestError", client: withTransport(bodyOf(200, stalledBody)), ctx: withTimeout},
		"deadline in the body of an error":            {kind: "RequestError", client: withTransport(bodyOf(404, stalledBody)), ctx: withTimeout},
		"deadline in the second attempt":              {kind: "RequestError", client: withTransport(inSequence(textOf(503, "busy"), blocked), twoAttempts), ctx: withTimeout},
		"cancelled in an attempt":                     {kind: "RequestError", client: withTransport(roundTripFunc(blocked)), ctx: withCause},
		"cancelled in a wait":                         {kind: "RequestError", needsRetry: true, client: withTransport(busy, twoAttempts), ctx: withCause},
		"cancelled in a wait after a lost connection": {kind: "RequestError", needsRetry: true, client: withTransport(failWith(io.EOF), msgpush.WithRetry(msgpush.RetryPolicy{MinWait: 1e6 * time.Hour, MaxWait: 1e6 * time.Hour})), ctx: withCause},
		"cancelled in a wait after a truncated body":  {kind: "RequestError", needsRetry: true, client: withTransport(textOf(200, `{`), msgpush.WithRetry(msgpush.RetryPolicy{MinWait: 1e6 * time.Hour, MaxWait: 1e6 * time.Hour})), ctx: withCause},
		"cancelled in the limiter": {kind: "RequestError", ctx: withCause, client: withTransport(busy, msgpush.WithRateLimiter(limiterFunc(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})))},
		"cancelled in the key source": {kind: "RequestError", ctx: withCause, client: withSource(func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}, busy)},
	}
	for name, cause := range foreign {
		tests["key source returns "+name] = setup{kind: "RequestError", client: withSource(func(context.Context, string) (string, error) { return "", cause }, busy)}
		tests["key source returns "+name+" after a rejection"] = setup{kind: "RequestError", client: withSource(func(_ context.Context, rejected string) (string, error) {
			if rejected != "" {
				return "", cause
			}
			return testKey, nil
		}, textOf(401, `{"code":1,"msg":"no"}`))}
		tests["limiter returns "+name] = setup{kind: "RequestError", client: withTransport(busy, msgpush.WithRateLimiter(limiterFunc(func(context.Context) error { return cause })))}
		tests["transport returns "+name] = setup{kind: "RequestError", client: withTransport(failWith(cause))}
		tests["body returns "+name] = setup{kind: "RequestError", client: withTransport(bodyOf(200, func(*http.Request) io.Reader {
			return readerFunc(func([]byte) (int, error) { return 0, cause })
		}))}
	}
	for status := 201; status < 600; status++ {
		for name, body := range map[string]func(*http.Request) io.Reader{
			"no body":        func(*http.Request) io.Reader { return http.NoBody },
			"success":        func(*http.Request) io.Reader { return strings.NewReader(`{"code":200,"data":{"list":[]}}`) },
			"error":          func(*http.Request) io.Reader { return strings.NewReader(`{"code":7,"msg":"no","data":"why"}`) },
			"HTML":           func(*http.Request) io.Reader { return strings.NewReader("<html><p>\n" + testKey) },
			"truncated body": cutBody(`{"code":`),
			"endless body":   endlessBody,
		} {
			if status < 210 || status%10 < 5 && status != 304 {
				tests[fmt.Sprintf("HTTP %d, %s", status, name)] = setup{kind: "APIError", client: withTransport(bodyOf(status, body))}
			}
		}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, call := range kindsOfCalls() {
				if tt.needsRetry && !call.idempotent {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := t.Context(), func() {}
					if tt.ctx != nil {
						ctx, cancel = tt.ctx(ctx)
					}
					defer cancel()
					_, err := call.make(tt.client(t), ctx)
					kind, _ := inspectFailure(t, err)
					assert.Equal(t, tt.kind, kind, "%v", err)
					if ctx.Err() != nil {
						assert.ErrorIs(t, err, ctx.Err())
					}
				})
			}
		})
	}
}

// The limit applies to the decompressed body.
func TestDefaultBodyLimitIs4MiB(t *testing.T) {
	const envelope = `{"code":200,"data":""}`
	require.Equal(t, 4<<20, msgpush.DefaultMaxResponseBytes)
	for name, compress := range map[string]bool{"plain": false, "gzip": true} {
		t.Run(name, func(t *testing.T) {
			length := 0
			client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
				body := `{"code":200,"data":"` + strings.Repeat("x", length-len(envelope)) + `"}`
				if !compress {
					_, _ = io.WriteString(w, body)
					return
				}
				assert.Equal(t, "gzip", r.Header.Get("Accept-Encoding"))
				w.Header().Set("Content-Encoding", "gzip")
				z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
				assert.NoError(t, err)
				_, _ = io.WriteString(z, body)
				_ = z.Close() // fails if the client has stopped reading
			})
			for length = range map[int]bool{4<<20 - 1: true, 4 << 20: true} {
				data, err := msgpush.Call[string](t.Context(), client, msgpush.Request{Method: "GET", Path: "/x"})
				require.NoError(t, err, length)
				assert.Len(t, data, length-len(envelope))
			}
			for length = range map[int]bool{4<<20 + 1: true, 40 << 20: true} {
				_, err := msgpush.Call[string](t.Context(), client, msgpush.Request{Method: "GET", Path: "/x"})
				assertFailure(t, err, wantFailure{kind: "RequestError", text: "the limit is 4194304 bytes (see WithMaxResponseBytes)"}, 1)
			}
		})
	}
}

func TestWithMaxResponseBytes(t *testing.T) {
	const body = `{"code":200,"data":{}}`
	for name, h := range map[string]http.HandlerFunc{
		"known length": respondWithJSON(body),
		"chunked": func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, body)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for limit, fits := range map[int64]bool{1: false, int64(len(body)) - 1: false, int64(len(body)): true, 1<<63 - 1: true} {
				_, err := newClient(t, h, msgpush.WithMaxResponseBytes(limit)).MPList(t.Context(), msgpush.PageRequest{})
				if fits {
					assert.NoError(t, err)
				} else {
					assertFailure(t, err, wantFailure{kind: "RequestError", text: fmt.Sprintf("the limit is %d bytes", limit)}, 1)
				}
			}
		})
	}
	for _, limit := range []int64{0, -1} {
		_, err := msgpush.NewClient("http://push.example.com", testKey, msgpush.WithMaxResponseBytes(limit))
		assert.ErrorContains(t, err, "WithMaxResponseBytes")
	}
}

func TestReadsAtMostOneByteMoreThanTheLimit(t *testing.T) {
	read := 0
	client := newClientWithTransport(t, bodyOf(200, func(*http.Request) io.Reader {
		return readerFunc(func(p []byte) (int, error) { read += len(p); return len(p), nil })
	}), msgpush.WithMaxResponseBytes(1000))
	_, err := client.MPList(t.Context(), msgpush.PageRequest{})
	require.Error(t, err)
	assert.LessOrEqual(t, read, 1001)
}

func TestSizeLimitIgnoresContentLengthOfHEAD(t *testing.T) {
	client := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		w.WriteHeader(http.StatusNotFound)
	}, msgpush.WithMaxResponseBytes(1000))
	_, err := msgpush.Call[struct{}](t.Context(), client, msgpush.Request{Method: http.MethodHead, Path: "/x"})
	assertFailure(t, err, wantFailure{kind: "APIError", text: "HTTP 404"}, 1)
}

// A closeCounter is a body that counts the calls of Close.
type closeCounter struct {
	io.Reader
	closed *int
}

func (c closeCounter) Close() error {
	*c.closed++
	return nil
}

func TestBodiesAreClosed(t *testing.T) {
	for name, step := range map[string]roundTripFunc{
		"success":                    textOf(200, `{"code":200,"data":{}}`),
		"transient status":           textOf(503, "busy"),
		"permanent status":           textOf(404, "no"),
		"redirect":                   textOf(302, "", "Location", "/x"),
		"redirect to an invalid URL": textOf(302, "", "Location", "::"),
		"protocol switched":          bodyOf(101, endlessBody),
		"truncated body":             bodyOf(200, cutBody("{")),
		"endless body":               bodyOf(200, endlessBody),
		"HTML":                       textOf(200, "<html>"),
	} {
		t.Run(name, func(t *testing.T) {
			opened, closed := 0, 0
			client := newClientWithTransport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
				opened++
				resp, err := step(r)
				resp.Body = closeCounter{resp.Body, &closed}
				return resp, err
			}), faultRetries, msgpush.WithMaxResponseBytes(1000))
			for _, call := range kindsOfCalls() {
				_, _ = call.make(client, t.Context())
			}
			assert.NotZero(t, opened)
			assert.GreaterOrEqual(t, closed, opened)
		})
	}
}

func TestDoesNotModifyResponseOfTransport(t *testing.T) {
	for name, shared := range map[string]*http.Response{
		"no body":   {StatusCode: 204, Header: http.Header{"X-Key": {testKey}}, Body: http.NoBody},
		"redirect":  {StatusCode: 302, Header: http.Header{"X-Key": {testKey}, "Location": {"/elsewhere"}}, Body: http.NoBody},
		"no header": {StatusCode: 302, Body: http.NoBody},
	} {
		t.Run(name, func(t *testing.T) {
			before := *shared
			before.Header = shared.Header.Clone()
			client := newClientWithTransport(t, roundTripFunc(func(*http.Request) (*http.Response, error) { return shared, nil }))
			for range 2 {
				_, err := client.MPList(t.Context(), msgpush.PageRequest{})
				assertFailure(t, err, wantFailure{kind: "APIError", text: fmt.Sprint("HTTP ", shared.StatusCode)}, 1)
			}
			assert.Equal(t, before.Header, shared.Header)
			assert.Equal(t, before.Body, shared.Body)
		})
	}
}

// If a body violates the contract of io.Reader and writes to its buffer after Read
// has returned, this must not change the response of another call.
func TestLateWriteOfBodyReaderDoesNotReachAnotherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := func(*http.Request) io.Reader {
			return readerFunc(func(p []byte) (int, error) {
				go func() {
					time.Sleep(time.Second)
					copy(p, strings.Repeat("x", 100))
				}()
				return 0, errors.New("connection lost")
			})
		}
		client := newClientWithTransport(t, inSequence(
			textOf(200, `{"code":200,"data":{"id":1},"more":"`+strings.Repeat(" ", 4096)+`"}`), // fills the pool
			bodyOf(200, late),
			bodyOf(200, func(*http.Request) io.Reader {
				return io.MultiReader(strings.NewReader(`{"code":200,"data":{"id":7`), readerFunc(func([]byte) (int, error) {
					time.Sleep(2 * time.Second)
					return 0, io.EOF
				}), strings.NewReader(`}}`))
			}),
		))
		_, err := client.MailDetail(t.Context(), "1")
		require.NoError(t, err)
		_, err = client.MailDetail(t.Context(), "1")
		require.ErrorContains(t, err, "connection lost")
		mail, err := client.MailDetail(t.Context(), "7")
		require.NoError(t, err)
		assert.EqualValues(t, 7, mail.ID)
	})
}

var redirectStatuses = []int{300, 301, 302, 303, 304, 305, 307, 308}

func TestRedirectIsPermanentAPIError(t *testing.T) {
	service := msgpushtest.New(t)
	service.SetAccessKey(testKey)
	client := service.Client(faultRetries)
	for _, location := range []string{"/api/open/other", "https://push.example.com/a?b=c", "/" + strings.Repeat("a", 10_000), ""} {
		for _, status := range redirectStatuses {
			service.ClearFaults()
			service.ClearRequests()
			if location == "" {
				service.Inject(msgpushtest.Status(status).Always())
			} else {
				service.Inject(msgpushtest.Redirect(location).WithStatus(status).Always())
			}
			text, _, _ := strings.Cut("redirect to "+location[:min(len(location), 100)], "?")
			if location == "" {
				text = fmt.Sprint("HTTP ", status)
			}
			attempts := assertEveryCallFails(t, client, wantFailure{kind: "APIError", text: text})
			assert.Len(t, service.Requests(), attempts)
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			var apiErr *msgpush.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.Equal(t, status, apiErr.HTTPStatus)
			assert.Equal(t, location, apiErr.Header.Get("Location"))
		}
	}
}

func TestRedirectToInvalidURLIsPermanentRequestError(t *testing.T) {
	service := msgpushtest.New(t)
	service.SetAccessKey(testKey)
	client := service.Client(faultRetries)
	for _, location := range []string{"http://[broken", "::", "http://push.example.com/%zz"} {
		for _, status := range redirectStatuses {
			service.ClearFaults()
			service.Inject(msgpushtest.Redirect(location).WithStatus(status).Always())
			want := wantFailure{kind: "RequestError", text: "the response is a redirect whose Location is not a URL"}
			if status == 300 || status == 304 || status == 305 { // net/http does not parse the Location
				want = wantFailure{kind: "APIError", text: "redirect to " + location}
			}
			assertEveryCallFails(t, client, want)
		}
	}
}

// TestDoesNotFollowRedirects redirects to another port, host or scheme.
func TestDoesNotFollowRedirects(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	var connections atomic.Int32
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			conn.Close()
		}
	}()
	elsewhere := listener.Addr().String()
	locations := []string{
		"http://" + elsewhere + "/port",
		"http://" + strings.Replace(elsewhere, "127.0.0.1", "localhost", 1) + "/host",
		"https://" + elsewhere + "/scheme",
		"//" + elsewhere + "/no-scheme",
		"http://127.0.0.1@" + elsewhere + "/user",
	}
	var status int
	var location string
	redirect := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(status)
	}
	follow := func(*http.Request, []*http.Request) error { return nil }
	plain := httptest.NewServer(http.HandlerFunc(redirect))
	defer plain.Close()
	secure, transport := newTLSService(t, true, redirect)
	for name, client := range map[string]*msgpush.Client{
		"default client":                       newClientAt(t, plain.URL, faultRetries),
		"HTTP client that follows redirects":   newClientAt(t, plain.URL, faultRetries, msgpush.WithHTTPClient(&http.Client{CheckRedirect: follow})),
		"HTTP client without CheckRedirect":    newClientAt(t, plain.URL, faultRetries, msgpush.WithHTTPClient(&http.Client{})),
		"HTTP/2 client that follows redirects": newClientAt(t, secure.URL, faultRetries, msgpush.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: follow})),
	} {
		t.Run(name, func(t *testing.T) {
			for _, location = range locations {
				for _, status = range redirectStatuses {
					assertEveryCallFails(t, client, wantFailure{kind: "APIError", text: "redirect to " + location + ", not followed"})
				}
			}
		})
	}
	assert.Zero(t, connections.Load(), "connections to the other service")
}

// countConnections starts a service and returns its URL and the number of connections
// made to it.
func countConnections(t *testing.T, h http.HandlerFunc) (url string, connections *atomic.Int32) {
	t.Helper()
	connections = new(atomic.Int32)
	server := httptest.NewUnstartedServer(h)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, connections
}

func TestClientsShareConnections(t *testing.T) {
	url, connections := countConnections(t, respondWithJSON(`{"code":200,"data":{}}`))
	for range 5 {
		_, err := newClientAt(t, url).MPList(t.Context(), msgpush.PageRequest{})
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, connections.Load())
}

func TestConcurrentCallersReuseConnections(t *testing.T) {
	const callers, rounds = 64, 5
	var arrived sync.WaitGroup // gives each call of a round its own connection
	stalled := make(chan struct{})
	url, connections := countConnections(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("mailId") {
		case "stall":
			stalled <- struct{}{}
			<-r.Context().Done()
		case "fail":
			w.WriteHeader(http.StatusBadGateway)
		default:
			arrived.Done()
			arrived.Wait()
			respondWithJSON(`{"code":200,"data":{}}`)(w, r)
		}
	})
	client := newClientAt(t, url, fastRetries)
	round := func(t *testing.T) {
		t.Helper()
		arrived.Add(callers)
		var calls sync.WaitGroup
		for range callers {
			calls.Go(func() {
				_, err := client.MailDetail(t.Context(), "1")
				assert.NoError(t, err)
			})
		}
		calls.Wait()
	}
	for range rounds {
		round(t)
		_, err := client.MailDetail(t.Context(), "fail") // go-retryablehttp would close the idle connections
		require.Error(t, err)
	}
	assert.EqualValues(t, callers, connections.Load())

	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-stalled; cancel() }()
	_, err := client.MailDetail(ctx, "stall")
	require.ErrorIs(t, err, context.Canceled)
	round(t)
	assert.EqualValues(t, callers+1, connections.Load(), "a cancelled call closes its connection")
}
