package msgpush_test

import (
	"bufio"
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
	"net/url"
	"os"
	"os/exec"
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

// pipeTransport returns a transport of net/http with connections in memory. It calls
// serve for each connection and then closes the connection.
func pipeTransport(serve func(net.Conn)) *http.Transport {
	return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			serve(server)
		}()
		return client, nil
	}}
}

// afterRequest returns a function for pipeTransport that reads a request and then
// calls serve.
func afterRequest(serve func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		serve(c)
	}
}

// stalledTransports returns transports that stall at each stage of an attempt. The last
// six are not of net/http: they return the error of the context, its cause or another
// error.
func stalledTransports() map[string]http.RoundTripper {
	errGone := errors.New("gone")
	header := func(err func(context.Context) error) roundTripFunc {
		return func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, err(r.Context())
		}
	}
	body := func(err func(context.Context) error) roundTripFunc {
		return respondFrom(200, func(r *http.Request) io.Reader {
			return readerFunc(func([]byte) (int, error) { <-r.Context().Done(); return 0, err(r.Context()) })
		})
	}
	another := func(context.Context) error { return errGone }
	return map[string]http.RoundTripper{
		"dialing": &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		"sending the request":    pipeTransport(func(net.Conn) { time.Sleep(time.Hour) }),
		"waiting for the header": pipeTransport(stall("")),
		"reading the header":     pipeTransport(afterRequest(stall("HTTP/1.1 200 OK\r\nContent-"))),
		"reading the body":       pipeTransport(afterRequest(stall(okHeader + "Content-Length: 100\r\n\r\n{"))),
		"reading a slow body": pipeTransport(afterRequest(func(c net.Conn) {
			_, err := io.WriteString(c, okHeader+"Content-Length: 10000000\r\n\r\n")
			for err == nil {
				time.Sleep(time.Second)
				_, err = io.WriteString(c, " ")
			}
		})),
		"header, transport returns the error": header(context.Context.Err),
		"header, transport returns the cause": header(context.Cause),
		"header, transport hides both":        header(another),
		"body, transport returns the error":   body(context.Context.Err),
		"body, transport returns the cause":   body(context.Cause),
		"body, transport hides both":          body(another),
	}
}

func TestEachAttemptHasTimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		client time.Duration // Timeout of the http.Client
		opts   []msgpush.Option
		want   time.Duration
	}{
		"default":                             {0, nil, msgpush.DefaultTimeout},
		"WithTimeout":                         {0, []msgpush.Option{msgpush.WithTimeout(3 * time.Second)}, 3 * time.Second},
		"Timeout of the http.Client":          {5 * time.Second, nil, 5 * time.Second},
		"WithTimeout overrides Timeout":       {time.Second, []msgpush.Option{msgpush.WithTimeout(3 * time.Second)}, 3 * time.Second},
		"negative Timeout":                    {-1, nil, msgpush.DefaultTimeout},
		"later WithTimeout overrides earlier": {0, []msgpush.Option{msgpush.WithTimeout(time.Hour), msgpush.WithTimeout(time.Second)}, time.Second},
	} {
		for stage := range stalledTransports() {
			t.Run(name+"/"+stage, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
					h := &http.Client{Transport: stalledTransports()[stage], Timeout: tt.client}
					defer h.CloseIdleConnections()
					start := time.Now()
					opts := append([]msgpush.Option{
						msgpush.WithHTTPClient(h), msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: 3, MinWait: 1, MaxWait: 1}),
					}, tt.opts...)
					_, err := newClientAt(t, "http://push.example.com", opts...).MPList(t.Context(), msgpush.PageRequest{})
					assert.Equal(t, 3*tt.want, time.Since(start).Truncate(time.Microsecond), "three attempts")
					assertFailure(t, err, wantFailure{
						kind: "RequestError",
						is:   context.DeadlineExceeded,
						text: fmt.Sprintf("no complete response within %v (see WithTimeout)", tt.want),
					}, 3)
					var netErr net.Error
					require.ErrorAs(t, err, &netErr)
					assert.True(t, netErr.Timeout())
					time.Sleep(time.Hour) // until the service has stopped
				})
			})
		}
	}
}

func TestContextDeadlineEndsAttempt(t *testing.T) {
	for stage := range stalledTransports() {
		t.Run(stage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &http.Client{Transport: stalledTransports()[stage]}
				defer h.CloseIdleConnections()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				_, err := newClientAt(t, "http://push.example.com", msgpush.WithHTTPClient(h), threeAttempts).MPList(ctx, msgpush.PageRequest{})
				assert.Equal(t, 10*time.Second, time.Since(start))
				assertFailure(t, err, wantFailure{kind: "RequestError", is: context.DeadlineExceeded}, 1)
				assert.NotContains(t, err.Error(), "WithTimeout")
				time.Sleep(time.Hour) // until the service has stopped
			})
		})
	}
}

func TestAttemptContextEndsWithAttempt(t *testing.T) {
	for name, step := range map[string]roundTripFunc{
		"no response":                fail(io.EOF),
		"status":                     respond(503, "busy"),
		"truncated body":             respondFrom(200, cutBody("{")),
		"truncated body of HTTP 503": respondFrom(503, cutBody("{")),
		"success":                    succeed,
		"no body": func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var attempts []context.Context
			client := newClientWithTransport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
				attempts = append(attempts, r.Context())
				return step(r)
			}), threeAttempts)
			_, _ = client.MPList(t.Context(), msgpush.PageRequest{})
			assert.NotEmpty(t, attempts)
			for _, ctx := range attempts {
				assert.Error(t, ctx.Err())
			}
		})
	}
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

func (l pipeListener) Close() error   { return nil }
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
		assertEveryCallFails(t, client, wantFailure{kind: "RequestError", transient: true, is: context.DeadlineExceeded})
	})
}

// newProxy starts a proxy that responds to CONNECT with a status. If the status is 200,
// it tunnels to target. It returns the URL of the proxy, which contains a password, the
// proxy itself, and the requests that arrived.
func newProxy(t *testing.T, target string, status *int) (*url.URL, *httptest.Server, *[]string) {
	t.Helper()
	var requests []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.RequestURI)
		if r.Method != http.MethodConnect {
			serveJSON(success)(w, r)
			return
		}
		assert.Empty(t, r.Header.Get("access-key"), "CONNECT is not encrypted")
		w.WriteHeader(*status)
		if *status != http.StatusOK {
			return
		}
		client, received, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer client.Close()
		server, err := net.Dial("tcp", target)
		if !assert.NoError(t, err) {
			return
		}
		defer server.Close()
		go func() {
			_, _ = io.Copy(server, received)
			server.Close()
		}()
		_, _ = io.Copy(client, server)
	}))
	t.Cleanup(proxy.Close)
	proxyURL, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	proxyURL.User = url.UserPassword("user", "proxy-password")
	return proxyURL, proxy, &requests
}

func TestDefaultTransportReportsStatusOfProxy(t *testing.T) {
	server, trusting := newTLSService(t, true, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		assert.Equal(t, testKey, r.Header.Get("access-key"))
		serveJSON(success)(w, r)
	})
	var status int
	proxyURL, proxy, requests := newProxy(t, server.Listener.Addr().String(), &status)
	transport := msgpush.NewTransport()
	transport.Proxy = http.ProxyURL(proxyURL)
	transport.TLSClientConfig = trusting.TLSClientConfig
	t.Cleanup(transport.CloseIdleConnections)
	clientAt := func(baseURL string, policy msgpush.Option) *msgpush.Client {
		return newClientAt(t, baseURL, policy, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
	}
	for _, tt := range []struct {
		status    int
		transient bool
		text      string
	}{
		{201, true, "HTTP 201 Created"},
		{400, false, "HTTP 400 Bad Request"},
		{401, false, "HTTP 401 Unauthorized"},
		{403, false, "HTTP 403 Forbidden"},
		{407, false, "HTTP 407 Proxy Authentication Required"},
		{429, false, "HTTP 429 Too Many Requests"},
		{500, true, "HTTP 500 Internal Server Error"},
		{502, true, "HTTP 502 Bad Gateway"},
		{503, true, "HTTP 503 Service Unavailable"},
	} {
		*requests, status = nil, tt.status
		client := clientAt("https://push.example.com", threeAttempts)
		attempts := assertEveryCallFails(t, client, wantFailure{
			kind:    "RequestError",
			notSent: tt.transient,
			text:    "the proxy " + proxyURL.Host + " rejected CONNECT: " + tt.text,
		})
		assert.Len(t, *requests, attempts)
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		assert.NotContains(t, fmt.Sprintf("%+v", err), "proxy-password")
	}

	*requests, status = nil, http.StatusOK
	client := clientAt("https://example.com", noRetries) // the host name in the certificate
	for range 2 {
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"CONNECT example.com:443"}, *requests)

	proxy.Config.SetKeepAlivesEnabled(false)
	proxy.Listener.Close()
	assertEveryCallFails(t, clientAt("https://push.example.com", threeAttempts),
		wantFailure{kind: "RequestError", notSent: true, text: "connection refused"})
}

// Without the status of the proxy, the client cannot know whether a retry may succeed.
func TestOtherTransportsRetryRejectedCONNECT(t *testing.T) {
	status := http.StatusProxyAuthRequired
	proxyURL, _, _ := newProxy(t, "", &status)
	transport := &http.Transport{Proxy: http.ProxyURL(proxyURL)}
	client := newClientAt(t, "https://push.example.com", threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: transport}))
	assertEveryCallFails(t, client, wantFailure{kind: "RequestError", notSent: true, text: "Proxy Authentication Required"})
}

func TestDefaultTransportHasTimeoutsOfNetHTTP(t *testing.T) {
	transport, netHTTP := msgpush.NewTransport(), http.DefaultTransport.(*http.Transport)
	assert.Equal(t, netHTTP.IdleConnTimeout, transport.IdleConnTimeout)
	assert.Equal(t, netHTTP.TLSHandshakeTimeout, transport.TLSHandshakeTimeout)
	assert.Equal(t, netHTTP.ExpectContinueTimeout, transport.ExpectContinueTimeout)
}

// net/http reads the environment once, so the test runs in a child process.
func TestDefaultTransportUsesProxyFromEnvironment(t *testing.T) {
	const childProcess = "MSGPUSH_TEST_CHILD_PROCESS"
	if os.Getenv(childProcess) == "" {
		executable, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), executable, "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), childProcess+"=1")
		output, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s", output)
		assert.Contains(t, string(output), "--- PASS: "+t.Name())
		return
	}
	status := http.StatusForbidden
	proxyURL, _, requests := newProxy(t, "", &status)
	for _, name := range []string{"http_proxy", "https_proxy", "NO_PROXY", "no_proxy", "REQUEST_METHOD"} {
		t.Setenv(name, "")
	}
	t.Setenv("HTTP_PROXY", proxyURL.String())
	t.Setenv("HTTPS_PROXY", proxyURL.String())

	_, err := newClientAt(t, "http://push.example.com").MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, []string{"POST http://push.example.com/api/open/mp/list"}, *requests)
	_, err = newClientAt(t, "https://push.example.com").MPList(t.Context(), msgpush.PageRequest{})
	assertFailure(t, err, wantFailure{kind: "RequestError", text: "rejected CONNECT: HTTP 403 Forbidden"}, 1)
}

var redirectStatuses = []int{300, 301, 302, 303, 304, 305, 307, 308}

func TestRedirectIsPermanentAPIError(t *testing.T) {
	for _, location := range []string{"/api/open/other", "https://push.example.com/a?b=c", "/" + strings.Repeat("a", 10_000), "", "http://[broken", "::", "http://push.example.com/%zz"} {
		for _, status := range redirectStatuses {
			text, _, _ := strings.Cut("redirect to "+location[:min(len(location), 100)], "?")
			if location == "" {
				text = fmt.Sprint("HTTP ", status)
			}
			client := newClientWithTransport(t, respond(status, "", "Location", location), threeAttempts)
			assertEveryCallFails(t, client, wantFailure{kind: "APIError", text: text})
			_, err := client.MPList(t.Context(), msgpush.PageRequest{})
			apiErr := onlyError[*msgpush.APIError](t, err)
			assert.Equal(t, status, apiErr.HTTPStatus)
			assert.Equal(t, location, apiErr.Header.Get("Location"))
		}
	}
}

// The redirects are to another port, host or scheme.
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
		"default client":                       newClientAt(t, plain.URL, threeAttempts),
		"HTTP client that follows redirects":   newClientAt(t, plain.URL, threeAttempts, msgpush.WithHTTPClient(&http.Client{CheckRedirect: follow})),
		"HTTP client without CheckRedirect":    newClientAt(t, plain.URL, threeAttempts, msgpush.WithHTTPClient(&http.Client{})),
		"HTTP/2 client that follows redirects": newClientAt(t, secure.URL, threeAttempts, msgpush.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: follow})),
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
	url, connections := countConnections(t, serveJSON(success))
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
			serveJSON(success)(w, r)
		}
	})
	client := newClientAt(t, url, threeAttempts)
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
