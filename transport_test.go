package msgpush_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
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

// stalledTransports returns transports that stall at each stage of an attempt.
func stalledTransports() map[string]*http.Transport {
	return map[string]*http.Transport{
		"dialing": {DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
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
	}
}

func TestTimeoutAppliesAtEachStageOfAttempt(t *testing.T) {
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
					transport := stalledTransports()[stage]
					defer transport.CloseIdleConnections()
					client := newClientAt(t, "http://push.example.com", append([]msgpush.Option{msgpush.WithHTTPClient(&http.Client{Transport: transport, Timeout: tt.client})}, tt.opts...)...)
					start := time.Now()
					_, err := client.MPList(t.Context(), msgpush.PageRequest{})
					assert.Equal(t, tt.want, time.Since(start))
					assertFailure(t, err, wantFailure{
						kind: "RequestError",
						is:   context.DeadlineExceeded,
						text: fmt.Sprintf("no complete response within %v (see WithTimeout)", tt.want),
					}, 1)
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
				transport := stalledTransports()[stage]
				defer transport.CloseIdleConnections()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				_, err := newClientWithTransport(t, transport, fastRetries).MPList(ctx, msgpush.PageRequest{})
				assert.Equal(t, 10*time.Second, time.Since(start))
				assertFailure(t, err, wantFailure{kind: "RequestError", is: context.DeadlineExceeded}, 1)
				assert.NotContains(t, err.Error(), "WithTimeout")
				time.Sleep(time.Hour) // until the service has stopped
			})
		})
	}
}

func TestRetriesAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var connections atomic.Int32
		transport := pipeTransport(afterRequest(func(c net.Conn) {
			if connections.Add(1) < 3 {
				stall(okHeader)(c)
				return
			}
			write(okHeader + "Connection: close\r\n\r\n" + `{"code":200,"data":{"id":7}}`)(c)
		}))
		defer transport.CloseIdleConnections()
		mail, err := newClientWithTransport(t, transport, fastRetries).MailDetail(t.Context(), "7")
		require.NoError(t, err)
		assert.EqualValues(t, 7, mail.ID)
		assert.EqualValues(t, 3, connections.Load())
	})
}

func TestReportsTimeoutIfTransportHidesCause(t *testing.T) {
	for name, transport := range map[string]roundTripFunc{
		"header": func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, errors.New("gone") },
		"body":   bodyOf(200, stalledBody),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := newClientWithTransport(t, transport).MPList(t.Context(), msgpush.PageRequest{})
				assertFailure(t, err, wantFailure{kind: "RequestError", is: context.DeadlineExceeded, text: "no complete response within 30s"}, 1)
			})
		})
	}
}

func TestAttemptContextEndsWithAttempt(t *testing.T) {
	for name, step := range map[string]roundTripFunc{
		"no response":                failWith(io.EOF),
		"status":                     textOf(503, "busy"),
		"truncated body":             bodyOf(200, cutBody("{")),
		"truncated body of HTTP 503": bodyOf(503, cutBody("{")),
		"success":                    textOf(200, `{"code":200,"data":{}}`),
		"no body": func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var attempts []context.Context
			client := newClientWithTransport(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
				attempts = append(attempts, r.Context())
				return step(r)
			}), faultRetries)
			_, _ = client.MPList(t.Context(), msgpush.PageRequest{})
			assert.NotEmpty(t, attempts)
			for _, ctx := range attempts {
				assert.Error(t, ctx.Err())
			}
		})
	}
}

const childProcess = "MSGPUSH_TEST_CHILD_PROCESS"

// inChildProcess runs the calling test in a child process. It returns true in the
// child process and false in the parent. In the child, unlike in the parent, the
// default transport has not yet read the proxy settings, and a test may change the
// trusted certificates.
func inChildProcess(t *testing.T) bool {
	t.Helper()
	if os.Getenv(childProcess) == t.Name() {
		for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "REQUEST_METHOD"} {
			t.Setenv(name, "")
		}
		return true
	}
	executable, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), executable, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), childProcess+"="+t.Name())
	output, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s", output)
	assert.Contains(t, string(output), "--- PASS: "+t.Name())
	return false
}

// trustServer makes the child process trust the certificate of a server, which is
// valid for 127.0.0.1 and example.com.
func trustServer(t *testing.T, server *httptest.Server) {
	t.Helper()
	t.Setenv("GODEBUG", "x509usefallbackroots=1")
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	x509.SetFallbackRoots(roots)
}

// A relay forwards TCP connections to an address.
type relay struct {
	url      string
	accepted atomic.Int32
	mu       sync.Mutex
	silent   *atomic.Bool // for the connections accepted from now on
}

func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{url: "https://" + listener.Addr().String(), silent: new(atomic.Bool)}
	var conns sync.WaitGroup
	var open []net.Conn
	forward := func(to, from net.Conn, silent *atomic.Bool) {
		defer to.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if !silent.Load() {
				_, _ = to.Write(buf[:n])
			}
		}
	}
	conns.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				break
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			r.accepted.Add(1)
			r.mu.Lock()
			silent := r.silent
			r.mu.Unlock()
			open = append(open, client, server)
			conns.Go(func() { forward(server, client, silent) })
			conns.Go(func() { forward(client, server, silent) })
		}
		for _, c := range open {
			c.Close()
		}
	})
	t.Cleanup(func() {
		listener.Close()
		conns.Wait()
	})
	return r
}

// silence stops forwarding on the open connections without closing them.
func (r *relay) silence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent.Store(true)
	r.silent = new(atomic.Bool)
}

// The default transport replaces an HTTP/2 connection that is silent for 10 s.
// Without pings, an attempt would wait 30 s, and the next attempt would use the same
// connection.
func TestDefaultTransportReplacesSilentHTTP2Connection(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s of real time")
	}
	if !inChildProcess(t) {
		return
	}
	server, _ := newTLSService(t, true, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		respondWithJSON(`{"code":200,"data":{"id":7}}`)(w, r)
	})
	trustServer(t, server)
	relay := newRelay(t, server.Listener.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := newClientAt(t, relay.url, fastRetries, msgpush.WithTimeout(time.Hour))
	_, err := client.MailDetail(ctx, "7")
	require.NoError(t, err)

	relay.silence()
	mail, err := client.MailDetail(ctx, "7")
	require.NoError(t, err)
	assert.EqualValues(t, 7, mail.ID)
	assert.EqualValues(t, 2, relay.accepted.Load(), "connections")
}

func TestDefaultTransportUsesProxyFromEnvironment(t *testing.T) {
	if !inChildProcess(t) {
		return
	}
	server, _ := newTLSService(t, true, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		assert.Equal(t, testKey, r.Header.Get("access-key"))
		respondWithJSON(`{"code":200,"data":{}}`)(w, r)
	})
	trustServer(t, server)
	status := http.StatusOK // of the response to CONNECT
	var requests []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.RequestURI)
		if r.Method != http.MethodConnect {
			respondWithJSON(`{"code":200,"data":{}}`)(w, r)
			return
		}
		assert.Empty(t, r.Header.Get("access-key"), "CONNECT is not encrypted")
		w.WriteHeader(status)
		if status != http.StatusOK {
			return
		}
		client, _, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer client.Close()
		target, err := net.Dial("tcp", server.Listener.Addr().String())
		if !assert.NoError(t, err) {
			return
		}
		defer target.Close()
		go func() {
			_, _ = io.Copy(target, client)
			target.Close()
		}()
		_, _ = io.Copy(client, target)
	}))
	defer proxy.Close()
	withPassword, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	withPassword.User = url.UserPassword("user", "proxy-password")
	t.Setenv("HTTP_PROXY", withPassword.String())
	t.Setenv("HTTPS_PROXY", withPassword.String())

	_, err = newClientAt(t, "http://push.example.com").MPList(t.Context(), msgpush.PageRequest{})
	require.NoError(t, err)
	assert.Equal(t, []string{"POST http://push.example.com/api/open/mp/list"}, requests)

	for _, tt := range []struct {
		status    int
		transient bool
		text      string
	}{
		{400, false, "HTTP 400 Bad Request"},
		{401, false, "HTTP 401 Unauthorized"},
		{403, false, "HTTP 403 Forbidden"},
		{407, false, "HTTP 407 Proxy Authentication Required"},
		{429, false, "HTTP 429 Too Many Requests"},
		{500, true, "HTTP 500 Internal Server Error"},
		{502, true, "HTTP 502 Bad Gateway"},
		{503, true, "HTTP 503 Service Unavailable"},
	} {
		requests, status = nil, tt.status
		client := newClientAt(t, "https://push.example.com", faultRetries)
		attempts := assertEveryCallFails(t, client, wantFailure{
			kind:    "RequestError",
			notSent: tt.transient,
			text:    "the proxy " + withPassword.Host + " rejected CONNECT: " + tt.text,
		})
		assert.Len(t, requests, attempts)
		_, err := client.MPList(t.Context(), msgpush.PageRequest{})
		assert.NotContains(t, fmt.Sprintf("%+v", err), "proxy-password")
	}

	requests, status = nil, http.StatusOK
	client := newClientAt(t, "https://example.com") // the host name in the certificate
	for range 2 {
		_, err = client.MPList(t.Context(), msgpush.PageRequest{})
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"CONNECT example.com:443"}, requests)

	proxy.Config.SetKeepAlivesEnabled(false)
	proxy.Listener.Close()
	assertEveryCallFails(t, newClientAt(t, "https://push.example.com", faultRetries),
		wantFailure{kind: "RequestError", notSent: true, text: "connection refused"})
}
