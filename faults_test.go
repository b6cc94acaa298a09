package msgpush_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// fast is a policy like the default one, but for the waits.
var fast = msgpush.WithRetry(msgpush.RetryPolicy{MinWait: 1, MaxWait: time.Millisecond})

// tcpService is a service that speaks, or does not speak, raw TCP.
type tcpService struct {
	url      string
	requests atomic.Int32
	open     atomic.Int32 // connections
	conns    sync.WaitGroup
}

// newTCPService starts a service that answers each request with serve, and then
// closes the connection.
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

// write sends text as it is.
func write(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

// reset sends text and breaks the connection.
func reset(text string) func(net.Conn) {
	return func(c net.Conn) {
		write(text)(c)
		_ = c.(*net.TCPConn).SetLinger(0)
	}
}

// stall sends text and then nothing, until the client goes.
func stall(text string) func(net.Conn) {
	return func(c net.Conn) {
		write(text)(c)
		_, _ = io.Copy(io.Discard, c)
	}
}

// pour sends text and then more without an end, until the client goes.
func pour(text, more string) func(net.Conn) {
	return func(c net.Conn) {
		_, err := io.WriteString(c, text)
		for err == nil {
			_, err = io.WriteString(c, more)
		}
	}
}

const okHeader = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

func TestFaultsOfTheNetwork(t *testing.T) {
	short := msgpush.WithTimeout(50 * time.Millisecond)
	limit := msgpush.WithMaxResponseBytes(64 << 10)
	timedOut := func(t *testing.T, err error) { assert.ErrorIs(t, err, context.DeadlineExceeded) }
	is := func(target error) func(*testing.T, error) {
		return func(t *testing.T, err error) { assert.ErrorIs(t, err, target) }
	}
	says := func(text string) func(*testing.T, error) {
		return func(t *testing.T, err error) { assert.ErrorContains(t, err, text) }
	}
	tests := []struct {
		name     string
		serve    func(net.Conn)
		opts     []msgpush.Option
		requests int
		check    func(*testing.T, error)
	}{
		{"closed before the header", write(""), nil, 4, is(io.EOF)},
		{"reset before the header", reset(""), nil, 4, says("reset by peer")},
		{"closed in the name of the protocol", write("HT"), nil, 4, nil},
		{"closed in the status line", write("HTTP/1.1 2"), nil, 4, nil},
		{"closed in the header", write("HTTP/1.1 200 OK\r\nContent-"), nil, 4, nil},
		{"closed behind the header", write(okHeader), nil, 4, is(io.ErrUnexpectedEOF)},
		{"reset in the body", reset(okHeader + "Content-Length: 100\r\n\r\n{"), nil, 4, nil},
		{"short body", write(okHeader + "Content-Length: 100\r\n\r\n{\"code\":200,"), nil, 4, is(io.ErrUnexpectedEOF)},
		{"no body", write(okHeader + "Content-Length: 100\r\n\r\n"), nil, 4, is(io.ErrUnexpectedEOF)},
		{"chunked body that stops", write(okHeader + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"cod\r\n"), nil, 4, is(io.ErrUnexpectedEOF)},
		{"chunked body that stops in a chunk", write(okHeader + "Transfer-Encoding: chunked\r\n\r\n500\r\n{\"cod"), nil, 4, is(io.ErrUnexpectedEOF)},
		{"gzip that stops", write(okHeader + "Content-Encoding: gzip\r\nConnection: close\r\n\r\n\x1f\x8b\x08\x00"), nil, 4, is(io.ErrUnexpectedEOF)},
		{"stalled before the header", stall(""), []msgpush.Option{short}, 4, timedOut},
		{"stalled in the header", stall("HTTP/1.1 200 OK\r\nContent-"), []msgpush.Option{short}, 4, timedOut},
		{"stalled in the body", stall(okHeader + "Content-Length: 100\r\n\r\n{"), []msgpush.Option{short}, 4, timedOut},
		{"endless body", pour(okHeader+"\r\n", strings.Repeat(" ", 4096)), []msgpush.Option{limit}, 1, says("limit of 65536 bytes")},
		{"endless chunks", pour(okHeader+"Transfer-Encoding: chunked\r\n\r\n", "5\r\n{\"cod\r\n"), []msgpush.Option{limit}, 1, says("limit of 65536 bytes")},
		{"long body", write(okHeader + "Content-Length: 1000000000\r\n\r\n"), []msgpush.Option{limit}, 1, says("limit of 65536 bytes")},
		{"endless header", pour(okHeader, "X-More: "+strings.Repeat("x", 4096)+"\r\n"), nil, 4, says("exceeded")},
		{"garbage instead of HTTP", write("SSH-2.0-OpenSSH_9.2\r\n" + strings.Repeat("garbage ", 100_000) + "\r\n\r\n"), nil, 1, says("malformed HTTP")},
		{"garbage instead of a header", write("HTTP/1.1 200 OK\r\naccess-key " + testKey + "\r\n\r\n"), nil, 4, says("malformed")},
		{"status that is none", write("HTTP/1.1 " + testKey + "\r\n\r\n"), nil, 4, says("malformed HTTP")},
		{"protocol switched", stall("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), nil, 1, says("HTTP 101")},
		{"gzip that is none", write(okHeader + "Content-Encoding: gzip\r\nContent-Length: 12\r\n\r\n{\"code\":200}"), nil, 1, is(gzip.ErrHeader)},
		{"chunks that are none", write(okHeader + "Transfer-Encoding: chunked\r\n\r\nhello\r\nworld\r\n"), nil, 1, says("chunk")},
		{"length that is none", write(okHeader + "Content-Length: " + testKey + "\r\n\r\n"), nil, 1, says("bad Content-Length")},
		{"refusal and reset", reset("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 100\r\n\r\nbusy"), nil, 4, says("HTTP 503")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, once := range []bool{false, true} {
				assertNothingLeft(t, func() {
					service := newTCPService(t, tt.serve)
					client := clientOf(t, service.url, append([]msgpush.Option{fast}, tt.opts...)...)
					requests, call := tt.requests, specified["message rule list"]
					if once {
						requests = 1
						call = func(c *msgpush.Client, ctx context.Context) (any, error) {
							return msgpush.Call[any](ctx, c, msgpush.Request{Method: "POST", Path: "/x", Body: 1})
						}
					}
					_, err := call(client, ctx)
					require.Error(t, err)
					assertDocumented(t, err)
					assertShortAndPrintable(t, err.Error())
					assertHidden(t, testKey, err)
					assertAttempts(t, requests, err)
					assert.Equal(t, int32(requests), service.requests.Load())
					if tt.check != nil {
						tt.check(t, err)
					}
					assert.Eventually(t, func() bool { return service.open.Load() == 0 }, time.Minute, time.Millisecond, "a connection is left")
				})
			}
		})
	}
}

// assertDocumented checks that an error is of one of the types that a call that
// was sent may end with.
func assertDocumented(t testing.TB, err error) {
	t.Helper()
	var apiErr *msgpush.APIError
	var callErr *msgpush.CallError
	var decodeErr *msgpush.DecodeError
	assert.True(t, errors.As(err, &apiErr) || errors.As(err, &callErr) || errors.As(err, &decodeErr), "%T: %v", err, err)
}

// assertNothingLeft checks that no goroutine of this package or of net/http's
// connections is left of what f began.
func assertNothingLeft(t *testing.T, f func()) {
	t.Helper()
	before := clientGoroutines()
	f()
	assert.Eventually(t, func() bool { return clientGoroutines() <= before }, time.Minute, time.Millisecond, "a goroutine is left")
}

// clientGoroutines counts the goroutines in which a client may be.
func clientGoroutines() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "net/http.(*persistConn)") || strings.Contains(stack, "net/http.(*Transport)") ||
			strings.Contains(stack, "retryablehttp.") || strings.Contains(stack, "example.com/msgpush.") {
			n++
		}
	}
	return n
}

func TestAServiceThatIsNotThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := "http://" + listener.Addr().String()
	listener.Close()
	for _, baseURL := range []string{url, "http://push.invalid"} {
		assertNothingLeft(t, func() {
			for operation, call := range specified {
				_, err := call(clientOf(t, baseURL, fast), ctx)
				assertAttempts(t, 4, err)
				assert.ErrorContains(t, err, operation)
				var opErr *net.OpError
				assert.ErrorAs(t, err, &opErr)
			}
			_, err := msgpush.Call[any](ctx, clientOf(t, baseURL, fast), msgpush.Request{Method: "POST", Path: "/x"})
			assertAttempts(t, 4, err)
		})
	}
}

// newTLSService starts a service with a certificate of its own, and returns it
// with a transport that trusts it.
func newTLSService(t *testing.T, http2 bool, h http.HandlerFunc) (*httptest.Server, *http.Transport) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	transport := server.Client().Transport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	return server, transport
}

func TestACertificateThatIsNotTrustedIsFinal(t *testing.T) {
	server, _ := newTLSService(t, false, refusingAll(t))
	dials := 0
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	for _, baseURL := range []string{server.URL, strings.Replace(server.URL, "127.0.0.1", "localhost", 1)} {
		for _, call := range specified {
			dials = 0
			_, err := call(clientOf(t, baseURL, fast, msgpush.WithHTTPClient(&http.Client{Transport: transport})), ctx)
			assertAttempts(t, 1, err)
			var untrusted *tls.CertificateVerificationError
			assert.ErrorAs(t, err, &untrusted)
			assert.Equal(t, 1, dials)
		}
	}
}

func TestHTTPWhereHTTPSIsExpectedIsFinal(t *testing.T) {
	server := httptest.NewServer(refusingAll(t))
	defer server.Close()
	_, err := clientOf(t, strings.Replace(server.URL, "http:", "https:", 1), fast).MPList(ctx, msgpush.PageRequest{})
	assertAttempts(t, 1, err)
	assert.ErrorIs(t, err, http.ErrSchemeMismatch)
}

func TestFaultsOfHTTP2(t *testing.T) {
	tests := []struct {
		name     string
		serve    http.HandlerFunc
		requests int32
		check    func(*testing.T, error)
	}{
		{"stream reset before the header", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 4, nil},
		{"stream reset in the body", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"code":200,`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 4, nil},
		{"stalled", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 4, func(t *testing.T, err error) {
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}},
		{"endless body", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 4096))
			}
		}, 1, func(t *testing.T, err error) { assert.ErrorContains(t, err, "limit of 65536 bytes") }},
		{"HTTP 502", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, 4, func(t *testing.T, err error) {
			assert.ErrorContains(t, err, "HTTP 502")
		}},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, 1, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var requests atomic.Int32
			server, transport := newTLSService(t, true, func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, 2, r.ProtoMajor)
				requests.Add(1)
				tt.serve(w, r)
			})
			timeout := time.Minute
			if tt.name == "stalled" {
				timeout = 100 * time.Millisecond
			}
			client := clientOf(t, server.URL, fast, msgpush.WithHTTPClient(&http.Client{Transport: transport}),
				msgpush.WithTimeout(timeout), msgpush.WithMaxResponseBytes(64<<10))
			_, err := client.ForwardRuleList(ctx, msgpush.PageRequest{})
			require.Error(t, err)
			assertDocumented(t, err)
			assertAttempts(t, int(tt.requests), err)
			assert.Equal(t, tt.requests, requests.Swap(0))
			if tt.check != nil {
				tt.check(t, err)
			}
			_, err = msgpush.Call[any](ctx, client, msgpush.Request{Method: "POST", Path: "/x", Body: 1})
			require.Error(t, err)
			assert.Equal(t, int32(1), requests.Load(), "a request that may not be repeated")
		})
	}
}

func TestTheBodyIsCountedAfterDecompression(t *testing.T) {
	var bomb bytes.Buffer
	w, err := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	require.NoError(t, err)
	zeros := make([]byte, 1<<20)
	for range 40 {
		_, _ = w.Write(zeros)
	}
	require.NoError(t, w.Close())
	client := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "gzip", r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = client.MPList(ctx, msgpush.PageRequest{})
	runtime.ReadMemStats(&after)
	assert.ErrorContains(t, err, "limit of 16777216 bytes")
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(150<<20), "the bomb went off")
}

func TestTheLimitIsTheLastLengthThatIsTaken(t *testing.T) {
	body := `{"code":200,"data":{}}`
	exact, more := int64(len(body)), int64(len(body))-1
	for name, h := range map[string]http.HandlerFunc{
		"known length": answeringJSON(body),
		"chunked": func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, body)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int64{exact, exact + 1, 1 << 62, 1<<63 - 1} {
				_, err := newClient(t, h, msgpush.WithMaxResponseBytes(n)).MPList(ctx, msgpush.PageRequest{})
				assert.NoError(t, err)
			}
			for _, n := range []int64{more, 1} {
				_, err := newClient(t, h, msgpush.WithMaxResponseBytes(n)).MPList(ctx, msgpush.PageRequest{})
				assert.ErrorContains(t, err, fmt.Sprintf("limit of %d bytes", n))
			}
		})
	}
}

func TestNoMoreThanTheLimitIsRead(t *testing.T) {
	read := 0
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		resp := response(r, 200, "")
		resp.ContentLength = -1
		resp.Body = io.NopCloser(readerFunc(func(p []byte) (int, error) { read += len(p); return len(p), nil }))
		return resp, nil
	})
	_, err := clientThrough(t, transport, msgpush.WithMaxResponseBytes(1000)).MPList(ctx, msgpush.PageRequest{})
	require.Error(t, err)
	assert.Equal(t, 1001, read, "one byte more tells that there is more")
}

func TestLimitsThatMakeNoSense(t *testing.T) {
	for _, n := range []int64{0, -1} {
		_, err := msgpush.NewClient("http://push.example.com", testKey, msgpush.WithMaxResponseBytes(n))
		assert.ErrorContains(t, err, "WithMaxResponseBytes")
	}
}

func TestARequestThatMustNotBeRepeatedIsNotReplayedByNetHTTPEither(t *testing.T) {
	for name, r := range map[string]msgpush.Request{
		"GET":            {Method: "GET", Path: "/set"},
		"DELETE":         {Method: "DELETE", Path: "/set"},
		"OPTIONS":        {Method: "OPTIONS", Path: "/set"},
		"POST":           {Method: "POST", Path: "/set"},
		"POST of a body": {Method: "POST", Path: "/set", Body: 1},
		"repeatable, but not to be repeated by the policy": {Method: "GET", Path: "/set", Repeatable: true},
	} {
		t.Run(name, func(t *testing.T) {
			service := msgpushtest.New(t)
			client, err := msgpush.NewClient(service.URL, service.AccessKey, once)
			require.NoError(t, err)
			_, err = client.MPList(ctx, msgpush.PageRequest{}) // so that there is a kept connection
			require.NoError(t, err)
			service.Inject(msgpushtest.Reset().Always())
			_, err = msgpush.Call[any](ctx, client, r)
			assertAttempts(t, 1, err)
			require.Len(t, service.Requests(), 2)
			assert.Empty(t, service.Requests()[1].Header.Get("Transfer-Encoding"))
		})
	}
}

func TestClientsShareAPool(t *testing.T) {
	var dialled atomic.Int32
	server := httptest.NewUnstartedServer(answeringJSON(`{"code":200,"data":{}}`))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dialled.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	for range 5 {
		_, err := clientOf(t, server.URL).MPList(ctx, msgpush.PageRequest{})
		require.NoError(t, err)
	}
	assert.Equal(t, int32(1), dialled.Load())
}

func TestACertificateThatTheCallerDoesNotTrustIsFinal(t *testing.T) {
	server, transport := newTLSService(t, false, refusingAll(t))
	refused := 0
	transport.TLSClientConfig.VerifyConnection = func(tls.ConnectionState) error {
		refused++
		return x509.UnknownAuthorityError{}
	}
	_, err := clientOf(t, server.URL, fast, msgpush.WithHTTPClient(&http.Client{Transport: transport})).MPList(ctx, msgpush.PageRequest{})
	assertAttempts(t, 1, err)
	assert.Equal(t, 1, refused)
}

func TestEveryErrorAboutACertificateIsFinal(t *testing.T) {
	for _, cause := range []error{
		&tls.CertificateVerificationError{Err: errors.New("no root certificates")},
		x509.UnknownAuthorityError{},
		x509.HostnameError{Certificate: new(x509.Certificate), Host: "push.example.com"},
		x509.CertificateInvalidError{Reason: x509.Expired},
	} {
		_, err := clientThrough(t, failing(cause), fast).MPList(ctx, msgpush.PageRequest{})
		assertAttempts(t, 1, err)
		assert.ErrorIs(t, err, cause)
	}
}

func TestBodiesAreClosed(t *testing.T) {
	for _, step := range []roundTripper{
		status(503), status(404), status(302, "Location", "/x"), succeeding,
		reading(200, func(*http.Request) io.Reader { return endless{} }),
	} {
		opened, closed := 0, 0
		transport := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := step(r)
			opened++
			resp.Body = &closing{resp.Body, &closed}
			return resp, err
		})
		_, _ = clientThrough(t, transport, fast, msgpush.WithMaxResponseBytes(1000)).MPList(ctx, msgpush.PageRequest{})
		assert.Equal(t, opened, closed)
	}
}

// closing counts how many bodies are closed, each once.
type closing struct {
	io.ReadCloser
	closed *int
}

func (c *closing) Close() error {
	if c.closed != nil {
		*c.closed++
		c.closed = nil
	}
	return c.ReadCloser.Close()
}

func TestAResponseOfTheCallersTransportIsNotChanged(t *testing.T) {
	kept := response(nil, 302, //nolint:bodyclose // the client closes it
		"", "Location", "/elsewhere")
	client := clientThrough(t, roundTripper(func(*http.Request) (*http.Response, error) { return kept, nil }))
	_, err := client.MPList(ctx, msgpush.PageRequest{})
	var apiErr *msgpush.APIError
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, "/elsewhere", apiErr.Location)
	assert.Equal(t, http.Header{"Location": {"/elsewhere"}}, kept.Header)
}

func TestConcurrentCallersShareAPoolThatKeepsTheirConnections(t *testing.T) {
	const callers, calls = 64, 50
	var dialled, open, most atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("mailId") == "stall" {
			<-r.Context().Done()
			return
		}
		if r.URL.Query().Get("mailId") == "fail" {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		answeringJSON(`{"code":200,"data":{}}`)(w, r)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			dialled.Add(1)
			most.Store(max(most.Load(), open.Add(1)))
		case http.StateClosed:
			open.Add(-1)
		}
	}
	server.Start()
	defer server.Close()
	client := clientOf(t, server.URL, fast)
	giveUps := 0
	for round := range calls {
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				_, err := client.MailDetail(ctx, "1")
				assert.NoError(t, err, "caller %d, round %d", caller, round)
			})
		}
		if round%10 == 9 {
			giveUps += 2
			wg.Go(func() { // fails after its last attempt
				_, err := client.MailDetail(ctx, "fail")
				assert.Error(t, err)
			})
			wg.Go(func() { // is cancelled, which costs its connection
				ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				_, err := client.MailDetail(ctx, "stall")
				assert.Error(t, err)
			})
		}
		wg.Wait()
	}
	t.Logf("%d callers dialled %d connections for %d calls, %d of which gave up; at most %d were open at once",
		callers, dialled.Load(), callers*calls+giveUps, giveUps, most.Load())
	assert.LessOrEqual(t, int(dialled.Load()), callers+7+2*giveUps)
}

// A body that, against the contract of io.Reader, still writes when it has been
// given up must not write into the answer to another call.
func TestABodyThatWritesAfterItsEndSpoilsNoOtherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := readerFunc(func(p []byte) (int, error) {
			go func() {
				time.Sleep(time.Second)
				copy(p, strings.Repeat("x", 100))
			}()
			return 0, errors.New("given up")
		})
		steps := newScript(
			inMemory(`{"code":200,"data":{"id":1},"more":"`+strings.Repeat(" ", 4096)+`"}`), // so that there is a buffer for all of them
			reading(200, func(*http.Request) io.Reader { return late }),
			inMemory(`{"code":200,"data":{"id":7}}`),
		)
		client := clientThrough(t, steps, msgpush.WithUnmarshal(func(data []byte, v any) error {
			time.Sleep(2 * time.Second)
			return json.Unmarshal(data, v)
		}))
		_, err := client.MailDetail(ctx, "1")
		require.NoError(t, err)
		_, err = client.MailDetail(ctx, "1")
		require.ErrorContains(t, err, "given up")
		mail, err := client.MailDetail(ctx, "7")
		require.NoError(t, err)
		assert.EqualValues(t, 7, mail.ID)
	})
}

func TestARedirectWithoutAnyHeaderIsAnAPIError(t *testing.T) {
	client := clientThrough(t, roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusFound, Body: http.NoBody}, nil
	}))
	_, err := client.MPList(ctx, msgpush.PageRequest{})
	var apiErr *msgpush.APIError
	require.ErrorAs(t, err, &apiErr)
	assert.Empty(t, apiErr.Location)
}

func TestAHeadHasNoBodyToBeTooLong(t *testing.T) {
	client := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		w.WriteHeader(http.StatusNotFound)
	}, msgpush.WithMaxResponseBytes(1000))
	_, err := msgpush.Call[struct{}](ctx, client, msgpush.Request{Method: http.MethodHead, Path: "/x"})
	var apiErr *msgpush.APIError
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, http.StatusNotFound, apiErr.HTTPStatus)
}

func TestAResponseWithoutABodyMayBeShared(t *testing.T) {
	shared := &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}
	client := clientThrough(t, roundTripper(func(*http.Request) (*http.Response, error) { return shared, nil }))
	for range 3 {
		_, err := client.MPList(ctx, msgpush.PageRequest{})
		require.Error(t, err)
	}
	assert.Equal(t, http.NoBody, shared.Body)
}
